// Guesses what a file is from its first bytes, for the error message about a file that is not what
// its reader expects. A guess only: never a reason to accept a file.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace kapitsa::weights {

// "a safetensors file", "an HTML page", ...; "an unknown format" when nothing matches.
std::string_view guess_file_kind(std::span<const std::byte> bytes);

}  // namespace kapitsa::weights
