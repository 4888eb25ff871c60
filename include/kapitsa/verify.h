// Whether a model file is sound and computed right on this machine. Where the file's hash is known,
// the hub checks that; here only the content counts.
#pragma once

#include "base/result.h"
#include "kapitsa/engine.h"

#include <functional>
#include <string>
#include <vector>

namespace kapitsa {

struct Check {
  std::string name;  // "perplexity"
  bool passed = false;
  std::string detail;  // one line: what was found
  double value = 0.0;  // the number behind it, as the name says
  double limit = 0.0;  // the largest value that passes; 0: the check is not of this kind
};

struct VerifyOptions {
  LoadOptions load;                            // model, backend, isa, threads, compute, kv_type
  double known_perplexity = 0.0;               // of the built-in text; 0: not known
  std::function<void(const Check&)> finished;  // after each check
};

// Runs the checks in turn: weights (every value finite), layers (a few of them against the
// reference, in f32 and in the arithmetic of load.compute), perplexity (of a built-in English
// text). Fails where the model cannot be loaded; a check that cannot run is one that did not pass.
Result<std::vector<Check>> verify(const VerifyOptions& options);

}  // namespace kapitsa
