// What the machine is, for reports of people and benchmarks: processor, cores, memory, system. For
// decisions use base/system.h. Unknown parts are empty; nothing here fails.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace kapitsa {

struct MachineInfo {
  std::string cpu;                    // "AMD EPYC 9654"
  std::vector<std::string> features;  // those that kernels may use, in the system's spelling
  int logical_cores = 0;              // hardware threads of the machine
  int usable_cores = 0;               // what this process may use: available_cores()
  int64_t memory_bytes = 0;
  int64_t available_bytes = 0;
  std::string huge_pages;    // Linux: "always", "madvise" or "never"
  std::string system;        // "Linux 6.1.0"
  std::string architecture;  // "x86_64"
};

// `root` as in available_cores().
MachineInfo machine_info(const std::filesystem::path& root = "/");

}  // namespace kapitsa
