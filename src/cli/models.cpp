#include "cli/models.h"

#include "base/env.h"
#include "base/interrupt.h"
#include "base/output_file.h"
#include "base/system.h"
#include "base/version.h"
#include "cli/progress_bar.h"
#include "cli/user_catalog.h"

#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <memory>
#include <system_error>

namespace kapitsa::cli {
namespace {

// What a fixed command prints; empty when it fails.
std::string output_of(const char* command) {
  struct Closer {
    void operator()(std::FILE* pipe) const { ::pclose(pipe); }
  };
  const std::unique_ptr<std::FILE, Closer> pipe(::popen(command, "r"));
  std::string text;
  if (pipe == nullptr) return text;
  std::array<char, 4096> buffer;
  for (size_t n = 0; (n = std::fread(buffer.data(), 1, buffer.size(), pipe.get())) > 0;)
    text.append(buffer.data(), n);
  return text;
}

std::string first_line(const std::string& text) {
  return text.substr(0, text.find_first_of("\r\n"));
}

hub::PullOptions pull_options(const hub::LocalFolders& folders) {
  hub::PullOptions options{.data_folder = folders.data, .catalog = folders.catalog};
  options.http.user_agent = fmt::format("kapitsa/{}", kVersion);
  options.http.ca_file = environment("SSL_CERT_FILE").value_or("");
  if (const auto endpoint = environment("HF_ENDPOINT")) options.hugging_face.endpoint = *endpoint;
  options.hugging_face.token = environment("HF_TOKEN").value_or("");
  options.python_index = [] { return python_index(); };
  return options;
}

// A model that this machine cannot hold is not worth hours of download without being asked for.
Status check_room_in_memory(const hub::CatalogEntry& entry) {
  const auto memory = memory_info();
  if (!memory || entry.memory_1k <= memory->total_bytes) return {};
  return Error{ErrorCode::out_of_memory,
               fmt::format("model '{}' ({}) is not here, and needs {} of memory at 4 bits; this "
                           "machine has {}; 'kapitsa pull {}' downloads it all the same",
                           entry.alias, entry.full_name, hub::shown_bytes(entry.memory_1k),
                           hub::shown_bytes(memory->total_bytes), entry.alias)};
}

}  // namespace

Result<hub::LocalFolders> model_folders() {
  const DataFolderVariables variables{.kapitsa_home = environment("KAPITSA_HOME"),
                                      .xdg_data_home = environment("XDG_DATA_HOME"),
                                      .xdg_config_home = environment("XDG_CONFIG_HOME"),
                                      .home = environment("HOME")};
  KAPITSA_ASSIGN(const std::filesystem::path data, data_folder(variables));
  std::error_code error;
  const auto status = std::filesystem::status(data, error);
  if (std::filesystem::exists(status) && !std::filesystem::is_directory(status))
    return Error{ErrorCode::invalid_argument,
                 fmt::format("{}{}: expected a folder for models and data, found a file",
                             variables.kapitsa_home ? "KAPITSA_HOME: " : "", data.string())};
  const std::string home = variables.home.value_or("");
  hub::LocalFolders folders =
      hub::local_folders(data, {.home = home,
                                .hf_home = environment("HF_HOME").value_or(""),
                                .hf_hub_cache = environment("HF_HUB_CACHE").value_or(""),
                                .ollama_models = environment("OLLAMA_MODELS").value_or("")});
  if (const auto config = config_folder(variables)) {
    KAPITSA_ASSIGN(folders.catalog, read_catalog(*config / "catalog.toml", home));
  }
  return folders;
}

std::string index_in_pip_help(std::string_view help) {
  const size_t option = help.find("--index-url");
  if (option == help.npos) return {};
  const size_t start = help.find("default", option);
  const size_t address = help.find("http", option);
  const size_t next_option = help.find("\n  -", option);
  if (start == help.npos || address == help.npos || address < start || address > next_option)
    return {};
  const std::string_view rest = help.substr(address);
  return std::string(rest.substr(0, rest.find_first_of(" )\r\n")));
}

Result<std::string> python_index() {
  if (auto set = environment("PIP_INDEX_URL")) return *std::move(set);
  std::string index = first_line(
      output_of("python3 -m pip --disable-pip-version-check config get global.index-url 2>&-"));
  // pip says on stdout that the key is not set.
  if (!index.starts_with("http"))
    index = index_in_pip_help(
        output_of("COLUMNS=200 python3 -m pip --disable-pip-version-check help download 2>&-"));
  if (!index.empty()) return index;
  return Error{ErrorCode::not_found, "python3 with pip, which knows its address, is not here; set "
                                     "PIP_INDEX_URL to use one all the same"};
}

Result<hub::Pulled> pull_model(const std::string& name, bool quiet) {
  KAPITSA_ASSIGN(const hub::LocalFolders folders, model_folders());
  const InterruptGuard interrupt(InterruptGuard::Kind::cleanup);
  ProgressBar bar(name, ProgressBar::style_for_stderr(quiet));
  hub::PullOptions options = pull_options(folders);
  options.http.cancelled = [&] { return interrupt.interrupted(); };
  options.download.progress = [&](const hub::Progress& progress) { bar.update(progress); };
  options.note = [&](const std::string& text) { bar.note(text); };
  return hub::pull(name, options);
}

Result<std::filesystem::path> find_or_pull_model(const std::string& name, bool quiet) {
  // A path needs no folder of models.
  std::error_code ignored;
  if (hub::builtin_catalog().find(name) == nullptr && std::filesystem::exists(name, ignored)) {
    return std::filesystem::path(name);
  }
  KAPITSA_ASSIGN(const hub::LocalFolders folders, model_folders());
  auto found = hub::resolve_model(name, folders);
  const hub::CatalogEntry* entry = folders.catalog.find(name);
  if (found || entry == nullptr || !entry->path.empty() ||
      found.error().code != ErrorCode::not_found)
    return found;
  KAPITSA_TRY(check_room_in_memory(*entry));
  if (!quiet) {
    const int64_t bytes = entry->files.front().bytes;
    std::fprintf(stderr, "%s (%s%s%s) is not here yet; downloading it once.\n", name.c_str(),
                 entry->full_name.c_str(), bytes > 0 ? ", " : "",
                 bytes > 0 ? hub::shown_bytes(bytes).c_str() : "");
  }
  KAPITSA_ASSIGN(const hub::Pulled pulled, pull_model(name, quiet));
  return pulled.path;
}

}  // namespace kapitsa::cli
