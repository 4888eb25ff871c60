#include "cli/machine_report.h"

#include "cli/show.h"

#include <fmt/format.h>

namespace kapitsa::cli {

std::string show_machine(const MachineInfo& machine) {
  return fmt::format("{}, {} core{}, {}", machine.cpu.empty() ? "unknown CPU" : machine.cpu,
                     machine.usable_cores, machine.usable_cores == 1 ? "" : "s",
                     show_bytes(machine.memory_bytes));
}

void write_machine(JsonWriter& json, const MachineInfo& machine) {
  json.begin_object().member("cpu", machine.cpu).key("features").begin_array();
  for (const std::string& feature : machine.features)
    json.value(feature);
  json.end_array()
      .member("cores", machine.usable_cores)
      .member("hardware_threads", machine.logical_cores)
      .member("memory_bytes", machine.memory_bytes)
      .member("available_bytes", machine.available_bytes)
      .member("huge_pages", machine.huge_pages)
      .member("system", machine.system)
      .member("architecture", machine.architecture)
      .end_object();
}

std::string build_text() {
#ifdef __clang__
  const char* compiler = "clang " __clang_version__;
#else
  const char* compiler = "g++ " __VERSION__;
#endif
#ifdef NDEBUG
  const char* kind = "optimised";
#else
  const char* kind = "debug";
#endif
  return fmt::format("{}, {}", compiler, kind);
}

}  // namespace kapitsa::cli
