// SHA-256 of data that comes in pieces, and of files. The only file that names OpenSSL.
#pragma once

#include "base/result.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>

namespace kapitsa::hub {

class Sha256 {
public:
  Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;
  ~Sha256();

  void update(std::span<const std::byte> bytes);
  std::string hex();  // of all so far, 64 lower-case digits; ends the object's use

private:
  struct State;
  std::unique_ptr<State> state_;
};

// Feeds a file to `hash` piece by piece. `keep_going` is told the bytes read so far; when it
// returns false the result is an error of code `cancelled`.
Status hash_file(const std::filesystem::path& path, Sha256& hash,
                 const std::function<bool(int64_t)>& keep_going = {});

}  // namespace kapitsa::hub
