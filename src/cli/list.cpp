// kapitsa list: the models on this machine, and with --all those of the catalog that are not here.
#include "base/env.h"
#include "cli/cli.h"
#include "cli/models.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>

namespace kapitsa::cli {
namespace {

struct ListCommand {
  bool all = false;
  bool json = false;
};

using Row = std::array<std::string, 5>;

std::string shortened(const std::filesystem::path& path) {
  std::string text = path.string();
  const auto home = environment("HOME");
  if (home && text.starts_with(*home + "/")) return "~" + text.substr(home->size());
  return text;
}

void print_table(const std::vector<Row>& rows) {
  std::array<size_t, 5> widths{};
  for (const Row& row : rows) {
    for (size_t i = 0; i < row.size(); ++i)
      widths[i] = std::max(widths[i], row[i].size());
  }
  for (const Row& row : rows)
    std::printf("%s\n", fmt::format("{:<{}}  {:>{}}  {:<{}}  {:<{}}  {}", row[0], widths[0], row[1],
                                    widths[1], row[2], widths[2], row[3], widths[3], row[4])
                            .c_str());
}

int list_command(const ListCommand& command) {
  const auto folders = model_folders();
  if (!folders) return report(folders.error());
  const std::vector<hub::LocalModel> models = hub::find_local_models(*folders);
  if (command.json) {
    std::printf("%s\n", hub::to_json(models).c_str());
    return 0;
  }
  std::vector<Row> rows = {{"NAME", "SIZE", "TYPE", "FROM", "PATH"}};
  for (const hub::LocalModel& model : models)
    rows.push_back({model.name, hub::shown_bytes(model.bytes), model.type,
                    hub::to_string(model.origin), shortened(model.path)});
  if (command.all) {
    for (const hub::CatalogEntry& entry : hub::catalog()) {
      const bool here =
          std::any_of(models.begin(), models.end(),
                      [&](const hub::LocalModel& model) { return model.name == entry.alias; });
      if (here) continue;
      const bool runs = !entry.files.empty();
      rows.push_back(
          {std::string(entry.alias), runs ? hub::shown_bytes(entry.files.front().bytes) : "-",
           std::string(entry.full_name), "catalog",
           runs ? fmt::format("kapitsa pull {}", entry.alias) : "not in this version yet"});
    }
  }
  if (rows.size() == 1)
    std::fprintf(stderr, "No model is here yet: 'kapitsa pull smollm2' downloads one.\n");
  else
    print_table(rows);
  return 0;
}

}  // namespace

void add_list(const Command& app, int& exit_code) {
  auto options = std::make_shared<ListCommand>();
  const Command command = app.subcommand("list", "Show the models on this machine");
  command.flag("-a,--all", options->all, "Also the models of the catalog that are not here");
  command.flag("--json", options->json, "The models that are here, as JSON");
  command.footer("Looks in Kapitsa's own folder and in the caches of Hugging Face, LM Studio and "
                 "Ollama.\nEnvironment: KAPITSA_HOME, HF_HOME, HF_HUB_CACHE, OLLAMA_MODELS.\n"
                 "Examples:\n"
                 "  kapitsa list --all\n"
                 "  kapitsa list --json");
  command.on_run([options, &exit_code] { exit_code = list_command(*options); });
}

}  // namespace kapitsa::cli
