// Options that several commands share: which model, on what part of the machine.
#pragma once

#include "base/result.h"
#include "cli/command.h"
#include "kapitsa/engine.h"

#include <filesystem>
#include <string>

namespace kapitsa::cli {

struct MachineOptions {
  LoadOptions load;
  std::string compute = "fast";
  std::string kv = "auto";
};

// --ctx, --threads, --backend, --isa, --compute, --kv
void add_machine_options(const Command& command, MachineOptions& options);
// The same without --ctx, for commands that choose the context themselves.
void add_machine_options_without_context(const Command& command, MachineOptions& options);

// What the options say, for one sequence of the model at `path`.
LoadOptions load_options(const MachineOptions& options, const std::filesystem::path& path);

// The same for a server of `parallel` sequences.
LoadOptions load_options(const MachineOptions& options, const std::filesystem::path& path,
                         int32_t parallel);

// The options that differ from the defaults, as on the command line: "--threads 2 --kv f32".
std::string flags_text(const MachineOptions& options);

// The file or folder of a model that is here; unlike find_or_pull_model it never downloads.
Result<std::filesystem::path> find_model(const std::string& name);

}  // namespace kapitsa::cli
