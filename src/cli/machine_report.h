// The machine and this build, for `doctor` and in every cell of `bench --json`.
#pragma once

#include "base/json_write.h"
#include "base/machine.h"

#include <string>

namespace kapitsa::cli {

// "AMD EPYC 9654, 8 cores, 31.3 GiB"
std::string show_machine(const MachineInfo& machine);

// An object as the next value: cpu, features, cores, memory, huge pages, system.
void write_machine(JsonWriter& json, const MachineInfo& machine);

// "g++ 12.2.0, optimised"
std::string build_text();

}  // namespace kapitsa::cli
