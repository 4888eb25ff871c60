// kapitsa list: the models on this machine, and with --all those of the catalog that are not here.
#include "base/env.h"
#include "base/json_write.h"
#include "cli/cli.h"
#include "cli/models.h"
#include "cli/show.h"
#include "kapitsa/families.h"

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

constexpr size_t kColumns = 80;  // of a line with --all

template <size_t N>
using Row = std::array<std::string, N>;

std::string shortened(const std::filesystem::path& path) {
  std::string text = path.string();
  const auto home = environment("HOME");
  if (home && text.starts_with(*home + "/")) return "~" + text.substr(home->size());
  return text;
}

// Columns flush left, two spaces between. The last one of a line that is longer than `columns` is
// cut at its beginning: of a path the end says more.
template <size_t N>
void print_table(const std::vector<Row<N>>& rows, size_t columns) {
  std::array<size_t, N> widths{};
  for (const Row<N>& row : rows) {
    for (size_t i = 0; i < N; ++i)
      widths[i] = std::max(widths[i], row[i].size());
  }
  for (const Row<N>& row : rows) {
    std::string line;
    for (size_t i = 0; i + 1 < N; ++i)
      line += fmt::format("{:<{}}  ", row[i], widths[i]);
    std::string last = row[N - 1];
    const size_t room = columns > line.size() + 8 ? columns - line.size() : 8;
    if (last.size() > room) last = "..." + last.substr(last.size() - (room - 3));
    std::printf("%s\n", one_line(line + last).c_str());
  }
}

void print_local(const std::vector<hub::LocalModel>& models, size_t columns) {
  std::vector<Row<5>> rows = {{"NAME", "SIZE", "TYPE", "FROM", "PATH"}};
  for (const hub::LocalModel& model : models)
    rows.push_back({model.name, hub::shown_bytes(model.bytes), model.type,
                    hub::to_string(model.origin), shortened(model.path)});
  print_table(rows, columns);
}

// "34.7/3.45 B"; one number where a token uses all of them.
std::string parameters_text(const hub::CatalogEntry& entry) {
  if (entry.n_parameters == 0) return "-";
  std::string all = show_count(entry.n_parameters);
  if (entry.n_active == 0 || entry.n_active == entry.n_parameters) return all;
  return fmt::format("{}/{}", all.substr(0, all.find(' ')), show_count(entry.n_active));
}

std::string memory_text(const hub::CatalogEntry& entry) {
  if (entry.memory_1k == 0) return "-";
  std::string short_context = hub::shown_bytes(entry.memory_1k);
  if (entry.memory_32k == 0) return short_context;
  const std::string long_context = hub::shown_bytes(entry.memory_32k);
  const size_t unit = short_context.find(' ');
  const bool same_unit = short_context.substr(unit) == long_context.substr(long_context.find(' '));
  return fmt::format("{}/{}", same_unit ? short_context.substr(0, unit) : short_context,
                     long_context);
}

bool is_here(const hub::CatalogEntry& entry, const hub::LocalFolders& folders) {
  return hub::resolve_entry(entry, folders).ok();
}

std::string download_text(const hub::CatalogEntry& entry, const hub::LocalFolders& folders) {
  if (is_here(entry, folders)) return "here";
  if (!entry.path.empty()) return "missing";
  if (!entry.runs) return "not yet";
  const int64_t bytes = entry.files.front().bytes;
  return bytes == 0 ? "?" : hub::shown_bytes(bytes);
}

void print_catalog(const hub::LocalFolders& folders) {
  constexpr size_t kNameWidth = 28;
  std::vector<Row<5>> rows = {{"CATALOG", "MODEL", "PARAMETERS", "MEMORY 1K/32K", "PULL"}};
  for (const hub::CatalogEntry& entry : folders.catalog.entries)
    rows.push_back({shorten(entry.alias, 16), shorten(entry.full_name, kNameWidth),
                    parameters_text(entry), memory_text(entry), download_text(entry, folders)});
  print_table(rows, kColumns);
  std::printf("\nParameters in all and of one token; memory at 4 bits for 1K and 32K tokens of\n"
              "context. 'kapitsa pull NAME' downloads a model.\n");
}

void write_entry(JsonWriter& json, const hub::CatalogEntry& entry,
                 const hub::LocalFolders& folders) {
  json.begin_object()
      .member("name", entry.alias)
      .member("full_name", entry.full_name)
      .member("family", entry.family)
      .member("architecture", entry.architecture)
      .member("parameters", entry.n_parameters)
      .member("active_parameters", entry.n_active)
      .member("context_trained", entry.context_trained)
      .member("memory_4bit_1k", entry.memory_1k)
      .member("memory_4bit_32k", entry.memory_32k)
      .member("drafter", entry.drafter)
      .member("runs", entry.runs)
      .member("here", is_here(entry, folders));
  if (!entry.path.empty()) json.member("path", entry.path.string());
  json.key("quirks").begin_array();
  for (const std::string& quirk : entry.quirks)
    json.value(quirk);
  json.end_array().key("files").begin_array();
  for (const hub::CatalogFile& file : entry.files) {
    json.begin_object()
        .member("format", file.format)
        .member("file", file.file)
        .member("sha256", file.sha256)
        .member("bytes", file.bytes)
        .key("sources")
        .begin_array();
    for (const hub::ModelSource& source : file.sources)
      json.begin_object()
          .member("kind",
                  source.kind == hub::SourceKind::hugging_face ? "hugging_face" : "python_index")
          .member("repository", source.repository)
          .member("revision", source.revision)
          .end_object();
    json.end_array().end_object();
  }
  json.end_array().end_object();
}

void write_family(JsonWriter& json, const FamilyInfo& family) {
  json.begin_object()
      .member("name", family.name)
      .member("reasoning", family.reasoning)
      .member("reasoning_open", family.reasoning_open)
      .member("reasoning_close", family.reasoning_close)
      .member("tool_calls", family.tool_calls)
      .member("thinking_argument", family.thinking_argument)
      .member("effort_argument", family.effort_argument)
      .member("effort_default", family.effort_default)
      .member("keep_reasoning_argument", family.keep_reasoning_argument);
  json.key("efforts").begin_array();
  for (const std::string_view effort : family.efforts)
    json.value(effort);
  json.end_array().key("stop_tokens").begin_array();
  for (const std::string_view token : family.stop_tokens)
    json.value(token);
  json.end_array().end_object();
}

std::string everything_as_json(const std::vector<hub::LocalModel>& models,
                               const hub::LocalFolders& folders) {
  JsonWriter json(2);
  json.begin_object().key("models").raw(hub::to_json(models)).key("catalog").begin_array();
  for (const hub::CatalogEntry& entry : folders.catalog.entries)
    write_entry(json, entry, folders);
  json.end_array().key("families").begin_array();
  for (const FamilyInfo& family : families())
    write_family(json, family);
  return json.end_array().end_object().take();
}

int list_command(const ListCommand& command) {
  const auto folders = model_folders();
  if (!folders) return report(folders.error());
  const std::vector<hub::LocalModel> models = hub::find_local_models(*folders);
  if (command.json) {
    std::printf(
        "%s\n",
        (command.all ? everything_as_json(models, *folders) : hub::to_json(models)).c_str());
    return 0;
  }
  if (models.empty())
    std::fprintf(stderr, "No model is here yet: 'kapitsa pull smollm2' downloads one.\n");
  else
    print_local(models, command.all ? kColumns : SIZE_MAX);
  if (command.all) {
    if (!models.empty()) std::printf("\n");
    print_catalog(*folders);
  }
  return 0;
}

}  // namespace

void add_list(const Command& app, int& exit_code) {
  auto options = std::make_shared<ListCommand>();
  const Command command = app.subcommand("list", "Show the models on this machine");
  command.flag("-a,--all", options->all, "Also the catalog: what can be had by name");
  command.flag("--json", options->json, "As JSON, which with --all has everything that is known");
  command.footer("Looks in Kapitsa's own folder and in the caches of Hugging Face, LM Studio and "
                 "Ollama.\nModels of your own: catalog.toml in KAPITSA_HOME or ~/.config/kapitsa "
                 "(docs/cli.md).\n"
                 "Environment: KAPITSA_HOME, XDG_CONFIG_HOME, HF_HOME, HF_HUB_CACHE, "
                 "OLLAMA_MODELS.\n"
                 "Examples:\n"
                 "  kapitsa list --all\n"
                 "  kapitsa list --json");
  command.on_run([options, &exit_code] { exit_code = list_command(*options); });
}

}  // namespace kapitsa::cli
