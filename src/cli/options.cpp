#include "cli/options.h"

#include "cli/models.h"

#include <fmt/format.h>

#include <map>

namespace kapitsa::cli {
namespace {

const std::map<std::string, Compute> kComputes = {{"fast", Compute::fast}, {"f32", Compute::f32}};
const std::map<std::string, KvType> kKvTypes = {{"auto", KvType::automatic},
                                                {"f32", KvType::f32},
                                                {"f16", KvType::f16},
                                                {"bf16", KvType::bf16},
                                                {"int8", KvType::int8}};

template <typename Map>
std::vector<std::string> keys(const Map& map) {
  std::vector<std::string> names;
  for (const auto& [name, value] : map)
    names.push_back(name);
  return names;
}

constexpr const char* kGroup = "Machine";

}  // namespace

void add_machine_options_without_context(const Command& command, MachineOptions& options) {
  command.option("-t,--threads", options.load.threads, "CPU threads; default: one per core")
      .group(kGroup);
  command
      .option("--backend", options.load.backend,
              "cuda, cpu or ref; default: the fastest that this machine has")
      .group(kGroup);
  command
      .option("--isa", options.load.isa, "CPU instruction set; default: KAPITSA_ISA, or the best")
      .group(kGroup);
  command.option("--compute", options.compute, "fast, or f32 for exact comparisons")
      .one_of(keys(kComputes))
      .group(kGroup);
  command
      .option("--kv", options.kv, "Type of the key/value cache; int8 takes half the memory of f16")
      .one_of(keys(kKvTypes))
      .group(kGroup);
}

void add_machine_options(const Command& command, MachineOptions& options) {
  command
      .option(
          "--ctx", options.load.context,
          "Tokens of prompt and answer together; default: as many as fit in the free memory, at "
          "most what the model was trained for")
      .group(kGroup);
  add_machine_options_without_context(command, options);
}

LoadOptions load_options(const MachineOptions& options, const std::filesystem::path& path) {
  return load_options(options, path, 1);
}

LoadOptions load_options(const MachineOptions& options, const std::filesystem::path& path,
                         int32_t parallel) {
  LoadOptions load = options.load;
  load.model = path;
  load.max_sequences = parallel;
  load.compute = kComputes.at(options.compute);
  load.kv_type = kKvTypes.at(options.kv);
  return load;
}

std::string flags_text(const MachineOptions& options) {
  std::string flags;
  const auto add = [&](const char* flag, const std::string& value) {
    flags += fmt::format("{}{} {}", flags.empty() ? "" : " ", flag, value);
  };
  if (options.load.context != 0) add("--ctx", std::to_string(options.load.context));
  if (options.load.threads != 0) add("--threads", std::to_string(options.load.threads));
  if (!options.load.backend.empty()) add("--backend", options.load.backend);
  if (!options.load.isa.empty()) add("--isa", options.load.isa);
  if (options.compute != "fast") add("--compute", options.compute);
  if (options.kv != "auto") add("--kv", options.kv);
  return flags;
}

Result<std::filesystem::path> find_model(const std::string& name) {
  KAPITSA_ASSIGN(const hub::LocalFolders folders, model_folders());
  return hub::resolve_model(name, folders);
}

}  // namespace kapitsa::cli
