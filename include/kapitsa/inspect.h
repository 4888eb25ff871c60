// What a model file holds and what running it would take, without running it. Works for files of
// architectures that this build cannot run: they still have tensors and metadata to show.
#pragma once

#include "base/result.h"
#include "kapitsa/engine.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace kapitsa {

struct TensorInfo {
  std::string name;
  std::string type;            // "q4_1"
  std::vector<int64_t> shape;  // outermost first
  int64_t bytes = 0;
};

// All tensors of one element type together.
struct TypeShare {
  std::string type;
  int64_t n_tensors = 0;
  int64_t n_elements = 0;
  int64_t bytes = 0;
};

// Memory for max_sequences sequences of `context` tokens, in bytes, known before anything is
// allocated.
struct MemoryReport {
  std::string backend;
  int32_t context = 0;
  int64_t weights_mapped = 0;  // used where the file is mapped: page cache
  int64_t weights_copied = 0;
  int64_t tables_in_file = 0;  // n-gram tables: the rows of a token are read when it comes
  int64_t kv_cache = 0;
  int64_t states = 0;   // of recurrent layers
  int64_t buffers = 0;  // activations and tables
  int64_t available = 0;
  // The longest contexts that fit and that load, at most what the model was trained for; 0: none.
  int32_t largest_context = 0;
  int32_t largest_loadable = 0;

  int64_t allocated() const { return weights_copied + kv_cache + states + buffers; }
  int64_t total() const { return weights_mapped + allocated(); }
  bool loads() const { return allocated() <= available; }
  // Loads, and the weights stay in memory; otherwise each token reads some from the disk again.
  bool fits() const { return total() <= available; }
};

struct FileReport {
  std::string path;
  std::string format;        // "gguf", "hf", "mlx"
  std::string name;          // as the file calls itself
  std::string architecture;  // as the file calls it
  std::string quantisation;  // type that holds the most elements
  int64_t n_elements = 0;
  int64_t weight_bytes = 0;
  std::vector<std::pair<std::string, std::string>> metadata;  // key, value in short
  std::vector<TensorInfo> tensors;
  std::vector<TypeShare> types;  // largest first

  std::string not_runnable;  // why this build cannot run it; empty: it can
  // What follows is of runnable ones.
  int32_t n_layers = 0;
  int32_t n_vocab = 0;
  int32_t context_trained = 0;
  int64_t n_parameters = 0;
  std::optional<MemoryReport> memory;
};

// Reads options.model, a file or a folder; of the others it takes backend, context, kv_type,
// threads, isa and max_sequences. Fails only where the file cannot be read.
Result<FileReport> inspect(const LoadOptions& options);

}  // namespace kapitsa
