#include "cli/user_catalog.h"

#include "base/file.h"
#include "kapitsa/families.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <optional>

#define TOML_HEADER_ONLY 1
#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

namespace kapitsa::cli {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxBytes = int64_t{1} << 20;  // of the file

constexpr std::string_view kKeys[] = {
    "name",      "path",       "hugging_face", "revision",   "file",        "format",
    "sha256",    "bytes",      "family",       "parameters", "active",      "context",
    "memory_1k", "memory_32k", "drafter",      "quirks",     "architecture"};

std::string found_text(const toml::node& node) {
  if (const auto* text = node.as_string()) return fmt::format("'{}'", text->get());
  if (const auto* number = node.as_integer()) return std::to_string(number->get());
  if (const auto* number = node.as_floating_point()) return fmt::format("{}", number->get());
  if (const auto* boolean = node.as_boolean()) return boolean->get() ? "true" : "false";
  return node.is_table() ? "a table" : node.is_array() ? "a list" : "a date or time";
}

bool is_hex(std::string_view text, size_t length) {
  return text.size() == length &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// Reads one table of the file into an entry. The first failure is kept.
class EntryReader {
public:
  EntryReader(const fs::path& file, const std::string& alias, const toml::table& table,
              const std::string& home)
      : file_(file), alias_(alias), table_(table), home_(home) {}

  Result<hub::CatalogEntry> read();

private:
  void check_keys();
  void check_sources();
  std::string text(std::string_view key);
  int64_t number(std::string_view key);
  std::vector<std::string> texts(std::string_view key);
  fs::path path();
  std::string one_of(std::string_view key, const std::vector<std::string>& choices);
  bool has(std::string_view key) const { return table_.contains(key); }
  void fail(const toml::source_region& where, std::string_view key, const std::string& expected,
            const std::string& found);
  void fail(std::string_view key, const std::string& expected) {
    const toml::node& node = *table_.get(key);
    fail(node.source(), key, expected, found_text(node));
  }

  const fs::path& file_;
  const std::string& alias_;
  const toml::table& table_;
  const std::string& home_;
  std::optional<Error> error_;
};

void EntryReader::fail(const toml::source_region& where, std::string_view key,
                       const std::string& expected, const std::string& found) {
  if (error_) return;
  error_ =
      Error{ErrorCode::invalid_argument,
            fmt::format("{}:{}: models.{}{}{}: expected {}, found {}", file_.string(),
                        where.begin.line, alias_, key.empty() ? "" : ".", key, expected, found)};
}

std::string EntryReader::text(std::string_view key) {
  if (!has(key)) return {};
  const auto* value = table_.get(key)->as_string();
  if (value != nullptr && !value->get().empty()) return value->get();
  fail(key, "a text");
  return {};
}

int64_t EntryReader::number(std::string_view key) {
  if (!has(key)) return 0;
  const toml::node& node = *table_.get(key);
  if (const auto* value = node.as_integer(); value != nullptr && value->get() > 0)
    return value->get();
  // 30.5e9 is how people write a count of parameters.
  if (const auto* value = node.as_floating_point();
      value != nullptr && value->get() >= 1.0 && value->get() < 1e18)
    return static_cast<int64_t>(value->get());
  fail(key, "a number above 0");
  return 0;
}

std::vector<std::string> EntryReader::texts(std::string_view key) {
  std::vector<std::string> list;
  if (!has(key)) return list;
  const auto* values = table_.get(key)->as_array();
  if (values == nullptr) {
    fail(key, "a list of texts");
    return list;
  }
  for (const toml::node& value : *values) {
    if (const auto* item = value.as_string()) {
      list.push_back(item->get());
    } else {
      fail(value.source(), key, "a list of texts", found_text(value));
    }
  }
  return list;
}

// Relative ones start at the folder of the file.
fs::path EntryReader::path() {
  const std::string given = text("path");
  if (given.empty()) return {};
  if (given.starts_with("~/") && !home_.empty()) return fs::path(home_) / given.substr(2);
  return file_.parent_path() / given;
}

std::string EntryReader::one_of(std::string_view key, const std::vector<std::string>& choices) {
  const std::string value = text(key);
  if (!value.empty() && std::ranges::find(choices, value) == choices.end())
    fail(key, fmt::format("one of {}", fmt::join(choices, ", ")));
  return value;
}

void EntryReader::check_keys() {
  for (const auto& [key, node] : table_) {
    if (std::ranges::find(kKeys, key.str()) == std::end(kKeys))
      fail(key.source(), key.str(), fmt::format("one of the keys {}", fmt::join(kKeys, ", ")),
           "this one");
  }
}

void EntryReader::check_sources() {
  if (has("path") == has("hugging_face"))
    fail(table_.source(), "", "either the key path or the key hugging_face",
         has("path") ? "both" : "neither");
  for (const char* key : {"revision", "file", "format", "sha256", "bytes"}) {
    if (has(key) && has("path")) fail(key, "this key only beside hugging_face");
  }
  const std::string repository = text("hugging_face");
  const size_t slash = repository.find('/');
  if (!repository.empty() &&
      (slash == std::string::npos || slash == 0 || slash + 1 == repository.size() ||
       repository.find('/', slash + 1) != std::string::npos))
    fail("hugging_face", "OWNER/NAME");
  if (!has("sha256")) return;
  if (!is_hex(text("sha256"), 64)) fail("sha256", "64 digits and letters a to f");
  for (const char* key : {"file", "bytes"}) {
    if (!has(key)) fail(table_.source(), "", fmt::format("the key {} beside sha256", key), "none");
  }
}

Result<hub::CatalogEntry> EntryReader::read() {
  check_keys();
  check_sources();
  std::vector<std::string> families;
  for (const FamilyInfo& family : kapitsa::families())
    families.emplace_back(family.name);
  hub::CatalogEntry entry{.alias = alias_,
                          .full_name = text("name"),
                          .path = path(),
                          .family = one_of("family", families),
                          .architecture = text("architecture"),
                          .n_parameters = number("parameters"),
                          .n_active = number("active"),
                          .context_trained = number("context"),
                          .memory_1k = number("memory_1k"),
                          .memory_32k = number("memory_32k"),
                          .drafter = text("drafter"),
                          .quirks = texts("quirks")};
  if (has("hugging_face")) {
    const std::string format = one_of("format", {"gguf", "safetensors", "mlx"});
    const std::string revision = text("revision");
    entry.files = {{.format = format.empty() ? "gguf" : format,
                    .file = text("file"),
                    .sha256 = text("sha256"),
                    .bytes = number("bytes"),
                    .sources = {{.repository = text("hugging_face"),
                                 .revision = revision.empty() ? "main" : revision}}}};
  }
  if (entry.full_name.empty())
    entry.full_name = has("path") ? entry.path.filename().string() : text("hugging_face");
  if (error_) return *error_;
  return entry;
}

// What a folder below <data>/models may be called.
bool is_alias(std::string_view name) {
  return !name.empty() && name.size() <= 64 && name.front() != '.' && name.front() != '-' &&
         name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789.-_") ==
             std::string_view::npos;
}

Status add_models(const fs::path& file, const toml::table& root, const std::string& home,
                  hub::Catalog& catalog) {
  const auto error = [&](const toml::source_region& where, std::string_view key,
                         const std::string& expected, const std::string& found) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("{}:{}: {}: expected {}, found {}", file.string(), where.begin.line,
                             key, expected, found)};
  };
  for (const auto& [key, node] : root) {
    if (key.str() != "models" || !node.is_table())
      return error(key.source(), key.str(), "tables [models.NAME] only",
                   key.str() == "models" ? found_text(node) : "this key");
    for (const auto& [alias, model] : *node.as_table()) {
      const std::string name(alias.str());
      const std::string where = "models." + name;
      if (!is_alias(name))
        return error(alias.source(), where, "a name of a-z, 0-9, '.', '-' and '_'",
                     fmt::format("'{}'", name));
      if (catalog.find(name) != nullptr)
        return error(alias.source(), where, "a name that the built-in catalog does not have",
                     fmt::format("'{}'", name));
      if (!model.is_table()) return error(model.source(), where, "a table", found_text(model));
      KAPITSA_ASSIGN(hub::CatalogEntry entry,
                     EntryReader(file, name, *model.as_table(), home).read());
      catalog.entries.push_back(std::move(entry));
    }
  }
  return {};
}

}  // namespace

Result<hub::Catalog> read_catalog(const fs::path& file, const std::string& home) {
  hub::Catalog catalog = hub::builtin_catalog();
  auto text = read_text_file(file, kMaxBytes);
  if (!text && text.error().code != ErrorCode::not_found) return text.error();
  if (text) {
    const toml::parse_result parsed = toml::parse(*text);
    if (!parsed)
      return Error{ErrorCode::invalid_argument,
                   fmt::format("{}:{}: expected TOML: {}", file.string(),
                               parsed.error().source().begin.line, parsed.error().description())};
    KAPITSA_TRY(add_models(file, parsed.table(), home, catalog));
  }
  for (hub::CatalogEntry& entry : catalog.entries)
    entry.runs = entry.architecture.empty() || runs_architecture(entry.architecture);
  return catalog;
}

}  // namespace kapitsa::cli
