// Reads lines from a person: with editing and a history where the build has libedit and both ends
// are terminals, plainly elsewhere.
#pragma once

#include "base/interrupt.h"

#include <filesystem>
#include <memory>
#include <string>

namespace kapitsa::cli {

class LineReader {
public:
  enum class Ending : uint8_t { line, interrupted, end_of_input };

  virtual ~LineReader() = default;

  // The next line without its newline. Ctrl-C gives `interrupted`, and the line so far is lost. The
  // prompt goes to stderr.
  virtual Ending read(const std::string& prompt, std::string& line) = 0;

  // Ctrl-C reaches plain reading through `interrupt`. `history` is read and kept up to date by
  // editing only; "" keeps none.
  static std::unique_ptr<LineReader> open(InterruptGuard& interrupt,
                                          const std::filesystem::path& history);
};

}  // namespace kapitsa::cli
