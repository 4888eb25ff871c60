// kapitsa verify MODEL: whether a model file is whole and computed right here.
#include "kapitsa/verify.h"

#include "base/json_write.h"
#include "cli/cli.h"
#include "cli/models.h"
#include "cli/options.h"
#include "cli/show.h"
#include "hub/catalog.h"
#include "hub/sha256.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <optional>

namespace kapitsa::cli {
namespace {

struct VerifyCommand {
  std::string model;
  MachineOptions machine;
  bool json = false;
};

// The catalog's file that lies at this path; nothing for any other model.
std::optional<hub::CatalogFile> catalog_file(const std::string& model,
                                             const std::filesystem::path& path) {
  const auto folders = model_folders();
  const hub::CatalogEntry* entry = folders ? folders->catalog.find(model) : nullptr;
  if (entry == nullptr) return std::nullopt;
  for (const hub::CatalogFile& file : entry->files) {
    if (!file.sha256.empty() && path.filename() == file.file) return file;
  }
  return std::nullopt;
}

Check check_hash(const hub::CatalogFile& file, const std::filesystem::path& path) {
  Check check{.name = "hash"};
  hub::Sha256 hash;
  if (const Status read = hub::hash_file(path, hash); !read) {
    check.detail = read.error().message;
    return check;
  }
  const std::string found = hash.hex();
  check.passed = found == file.sha256;
  check.detail = check.passed ? "SHA-256 as in the catalog"
                              : fmt::format("SHA-256 is {}..., expected {}...", found.substr(0, 12),
                                            file.sha256.substr(0, 12));
  return check;
}

// Perplexities of verify's text, computed from the same file in f32.
struct KnownPerplexity {
  std::string_view alias;
  double value;
};
constexpr KnownPerplexity kKnown[] = {{"smollm2", 22.816}};

double known_perplexity(const std::string& model) {
  for (const KnownPerplexity& known : kKnown) {
    if (known.alias == model) return known.value;
  }
  return 0.0;
}

void print_check(const Check& check) {
  fmt::print("{:<12}{:<8}{}\n", check.name, check.passed ? "ok" : "FAILED", check.detail);
  std::fflush(stdout);
}

std::string to_json(const std::string& path, const std::vector<Check>& checks, bool passed) {
  JsonWriter json(2);
  json.begin_object().member("model", path).member("passed", passed).key("checks").begin_array();
  for (const Check& check : checks) {
    json.begin_object()
        .member("name", check.name)
        .member("passed", check.passed)
        .member("detail", check.detail)
        .member("value", check.value)
        .end_object();
  }
  return json.end_array().end_object().take();
}

int verify_command(const VerifyCommand& command) {
  const auto path = find_model(command.model);
  if (!path) return report(path.error());
  VerifyOptions options;
  options.load = load_options(command.machine, *path);
  if (options.load.context == 0) options.load.context = 512;  // the text is shorter
  options.known_perplexity = known_perplexity(command.model);
  if (!command.json) options.finished = print_check;
  std::vector<Check> checks;
  if (const auto file = catalog_file(command.model, *path)) {
    checks.push_back(check_hash(*file, *path));
    if (!command.json) print_check(checks.back());
  }
  const auto content = verify(options);
  if (!content) return report(content.error());
  checks.insert(checks.end(), content->begin(), content->end());
  const bool passed = std::ranges::all_of(checks, &Check::passed);
  if (command.json) {
    fmt::print("{}\n", to_json(path->string(), checks, passed));
  } else {
    fmt::print("{}\n", passed ? "The model is sound." : "The model is not sound.");
  }
  return passed ? 0 : kExitFailed;
}

}  // namespace

void add_verify(const Command& app, int& exit_code) {
  auto options = std::make_shared<VerifyCommand>();
  const Command command =
      app.subcommand("verify", "Check that a model is whole and computed right here");
  command
      .option("MODEL", options->model,
              "Name as in 'kapitsa list', or path of a model file or folder")
      .required();
  command.flag("--json", options->json, "The checks as one JSON object");
  add_machine_options_without_context(command, options->machine);
  command.footer("Exit code 1 when a check fails.\n"
                 "Examples:\n"
                 "  kapitsa verify smollm2\n"
                 "  kapitsa verify model.gguf --isa avx2");
  command.on_run([options, &exit_code] { exit_code = verify_command(*options); });
}

}  // namespace kapitsa::cli
