// What `serve` and the agents' commands share.
#pragma once

#include <cstdint>
#include <string>

namespace kapitsa::cli {

inline constexpr int32_t kDefaultPort = 8421;

// How the API calls a model that the command line names so: an alias as it is, a path by its last
// part.
std::string served_name(const std::string& model);

}  // namespace kapitsa::cli
