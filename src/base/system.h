// What this process may use of the machine: cores, memory, its data folder, its terminal. Knows the
// limits of containers (cgroup v1 and v2). It reads no environment variables and keeps no state;
// every number is as of the call.
#pragma once

#include "base/result.h"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace kapitsa {

// Physical cores that this process may run on, at least 1: its affinity mask without the second
// threads of a core, and not more than the whole cores of its CPU quota (threads beyond the quota
// only get throttled). `root` is where /proc and /sys are found; tests give a made-up tree.
int available_cores(const std::filesystem::path& root = "/");

// Whether a 64-bit Arm processor has the dot product instructions of Armv8.2; false on others.
bool has_arm_dot_product();

struct MemoryInfo {
  int64_t total_bytes = 0;      // of the machine, or the limit of the container if that is lower
  int64_t available_bytes = 0;  // what can be taken without swapping, page cache included
};
Result<MemoryInfo> memory_info(const std::filesystem::path& root = "/");

// The variables that the folders depend on, as base/env.h gives them.
struct DataFolderVariables {
  std::optional<std::string> kapitsa_home = {};     // KAPITSA_HOME
  std::optional<std::string> xdg_data_home = {};    // XDG_DATA_HOME, ignored unless absolute
  std::optional<std::string> xdg_config_home = {};  // XDG_CONFIG_HOME, ignored unless absolute
  std::optional<std::string> home = {};             // HOME
};
// KAPITSA_HOME itself; else kapitsa in XDG_DATA_HOME, ~/.local/share, or on macOS in
// ~/Library/Application Support. Does not create it.
Result<std::filesystem::path> data_folder(const DataFolderVariables& variables);
// Where the user's own settings are: KAPITSA_HOME itself; else kapitsa in XDG_CONFIG_HOME or
// ~/.config, on macOS the data folder. Nothing without HOME.
std::optional<std::filesystem::path> config_folder(const DataFolderVariables& variables);

bool is_terminal(int fd);
std::optional<int> terminal_width(int fd);  // columns

}  // namespace kapitsa
