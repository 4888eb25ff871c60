#include "hub/hf_hub.h"

#include "base/json.h"
#include "hub/file_names.h"
#include "hub/json_read.h"

#include <boost/json.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

namespace kapitsa::hub {
namespace {

namespace json = boost::json;

constexpr int kMaxPages = 100;
constexpr size_t kMaxFiles = 20000;

// What is taken when a repository holds several and nothing was said: small, and near the original.
constexpr std::string_view kPreferred[] = {"Q4_K_M", "Q4_K_S", "Q4_K_XL", "Q4_K_L", "Q4_K",
                                           "Q4_1",   "Q4_0",   "IQ4_XS",  "IQ4_NL", "MXFP4",
                                           "NVFP4",  "Q5_K_M", "Q6_K",    "Q8_0"};

// Names become paths below the folder of models, so they come from this alphabet of shapes only.
bool is_safe_path(std::string_view path) {
  if (path.empty() || path.size() > 512 || path.starts_with('/')) return false;
  for (size_t start = 0; start <= path.size();) {
    const size_t end = std::min(path.find('/', start), path.size());
    const std::string_view part = path.substr(start, end - start);
    if (part.empty() || part == "." || part == "..") return false;
    start = end + 1;
  }
  return std::all_of(path.begin(), path.end(), [](char c) {
    return static_cast<unsigned char>(c) >= ' ' && c != '\\' && c != '\x7f';
  });
}

bool is_valid_id(std::string_view id) {
  const auto allowed = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '-' ||
           c == '_' || c == '.' || c == '/';
  };
  return is_safe_path(id) && std::count(id.begin(), id.end(), '/') == 1 &&
         std::all_of(id.begin(), id.end(), allowed);
}

HttpRequest api_request(const HfAccess& access, const std::string& id, std::string url) {
  const std::string page = shown_url(fmt::format("{}/{}", access.endpoint, id));
  HttpRequest request{.url = std::move(url), .bearer_token = access.token};
  request.denied_hint =
      access.token.empty()
          ? fmt::format("the repository is private, gated, or does not exist: accept its terms at "
                        "{} and set HF_TOKEN to a token with read access",
                        page)
          : fmt::format("HF_TOKEN is set but gives no access: accept the terms at {} with the "
                        "account of the token",
                        page);
  request.missing_hint = fmt::format("check the name at {}", page);
  return request;
}

Error unexpected(const std::string& where, std::string_view what) {
  return {ErrorCode::corrupt_file, fmt::format("{}: expected {}, found something else; is this a "
                                               "Hugging Face hub (HF_ENDPOINT)?",
                                               where, what)};
}

Status read_page(const HttpText& page, HfRepository& repository) {
  const std::string where = shown_url(page.response.url);
  KAPITSA_ASSIGN(const json::value parsed, parse_json(page.body, where));
  if (!parsed.is_array()) return unexpected(where, "a list of files");
  for (const json::value& item : parsed.get_array()) {
    if (text_of(item, "type") != "file") continue;
    HfFile file{.path = text_of(item, "path"), .bytes = integer_of(item, "size").value_or(-1)};
    if (const json::value* lfs = member(item, "lfs"); lfs != nullptr && lfs->is_object()) {
      file.sha256 = text_of(*lfs, "oid");
      file.bytes = integer_of(*lfs, "size").value_or(-1);
    }
    if (file.bytes < 0 || !is_safe_path(file.path))
      return unexpected(where, "files with a relative path and a size");
    repository.files.push_back(std::move(file));
  }
  if (repository.files.size() > kMaxFiles)
    return unexpected(where, fmt::format("at most {} files", kMaxFiles));
  return {};
}

// GGUF models by path without shard number; each with its shards in order.
using GgufGroups = std::map<std::string, std::vector<HfFile>>;

GgufGroups gguf_groups(const HfRepository& repository) {
  GgufGroups groups;
  for (const HfFile& file : repository.files) {
    if (is_gguf_name(base_name(file.path))) groups[gguf_stem(file.path)].push_back(file);
  }
  for (auto& [stem, files] : groups)
    std::sort(files.begin(), files.end(),
              [](const HfFile& a, const HfFile& b) { return a.path < b.path; });
  return groups;
}

Result<HfModel> gguf_model(const HfRepository& repository, const std::string& stem,
                           const std::vector<HfFile>& files) {
  const auto shard = parse_shard(files.front().path);
  const size_t expected = shard ? static_cast<size_t>(shard->count) : 1;
  if (files.size() != expected)
    return Error{ErrorCode::not_found, fmt::format("{}: {}: expected {} shards, found {}",
                                                   repository.id, stem, expected, files.size())};
  return HfModel{std::string(base_name(stem)), files};
}

std::string list_of(const GgufGroups& groups) {
  constexpr size_t kMost = 40;
  std::string list;
  size_t n = 0;
  for (const auto& [stem, files] : groups) {
    if (++n > kMost) return list + fmt::format(", and {} more", groups.size() - kMost);
    list += fmt::format("{}{}", list.empty() ? "" : ", ", base_name(stem));
  }
  return list;
}

// Weights as safetensors with all that belongs to them, from the top folder.
std::optional<HfModel> safetensors_model(const HfRepository& repository) {
  constexpr std::string_view kNeeded[] = {".json", ".safetensors", ".jinja", ".txt", ".model"};
  HfModel model;
  bool has_config = false;
  bool has_weights = false;
  for (const HfFile& file : repository.files) {
    // "consolidated" files repeat the weights in another layout.
    if (file.path.find('/') != std::string::npos || file.path.starts_with("consolidated")) continue;
    const bool needed = std::any_of(std::begin(kNeeded), std::end(kNeeded),
                                    [&](std::string_view end) { return file.path.ends_with(end); });
    if (!needed) continue;
    has_config = has_config || file.path == "config.json";
    has_weights = has_weights || file.path.ends_with(".safetensors");
    model.files.push_back(file);
  }
  if (!has_config || !has_weights) return std::nullopt;
  return model;
}

}  // namespace

Result<HfRepository> list_repository(const HttpClient& client, const HfAccess& access,
                                     const std::string& id, const std::string& revision) {
  if (!is_valid_id(id))
    return Error{ErrorCode::invalid_argument,
                 fmt::format("'{}': expected OWNER/REPOSITORY, such as "
                             "HuggingFaceTB/SmolLM2-135M-Instruct",
                             id)};
  const std::string api = fmt::format("{}/api/models/{}", access.endpoint, id);
  const HttpRequest about =
      api_request(access, id, fmt::format("{}/revision/{}", api, escape_path(revision)));
  KAPITSA_ASSIGN(const HttpText text, client.get_text(about));
  const std::string where = shown_url(text.response.url);
  KAPITSA_ASSIGN(const json::value parsed, parse_json(text.body, where));
  HfRepository repository{.id = id, .commit = text_of(parsed, "sha")};
  const bool is_commit =
      repository.commit.size() == 40 &&
      repository.commit.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (!is_commit) return unexpected(where, "a commit 'sha' of 40 hex digits");

  std::string next = fmt::format("{}/tree/{}?recursive=true", api, repository.commit);
  for (int page = 0; !next.empty(); ++page) {
    if (page == kMaxPages) return unexpected(where, "a list of files that ends");
    KAPITSA_ASSIGN(const HttpText list, client.get_text(api_request(access, id, next)));
    KAPITSA_TRY(read_page(list, repository));
    if (list.response.next_page.empty()) break;
    KAPITSA_ASSIGN(next, resolve_url(list.response.url, list.response.next_page));
    // The token goes with every page.
    if (url_origin(next) != url_origin(access.endpoint))
      return unexpected(where, "pages of the same host");
  }
  return repository;
}

Result<HfModel> choose_model(const HfRepository& repository, const std::string& wanted) {
  const GgufGroups groups = gguf_groups(repository);
  if (wanted.empty()) {
    if (auto model = safetensors_model(repository)) return *model;
    if (groups.size() == 1)
      return gguf_model(repository, groups.begin()->first, groups.begin()->second);
    for (const std::string_view type : kPreferred) {
      for (const auto& [stem, files] : groups) {
        if (quantisation_in(stem) == type) return gguf_model(repository, stem, files);
      }
    }
  } else {
    std::vector<std::string> matches;
    for (const auto& [stem, files] : groups) {
      const bool by_file = std::any_of(files.begin(), files.end(), [&](const HfFile& file) {
        return file.path == wanted || base_name(file.path) == wanted;
      });
      if (by_file || stem == wanted || base_name(stem) == wanted)
        return gguf_model(repository, stem, files);
      if (quantisation_in(stem) == upper_case(wanted)) matches.push_back(stem);
    }
    if (matches.size() == 1)
      return gguf_model(repository, matches.front(), groups.at(matches.front()));
  }
  if (groups.empty())
    return Error{ErrorCode::not_found,
                 fmt::format("{}: expected GGUF files, or config.json with safetensors; found "
                             "neither{}",
                             repository.id,
                             wanted.empty() ? "" : fmt::format(" (for '{}')", wanted))};
  return Error{ErrorCode::not_found,
               fmt::format("{}: {}; choose one with hf:{}:FILE: {}", repository.id,
                           wanted.empty() ? "holds several models"
                                          : fmt::format("no single model matches '{}'", wanted),
                           repository.id, list_of(groups))};
}

HttpRequest hf_file_request(const HfAccess& access, const std::string& id,
                            const std::string& commit, const std::string& path) {
  return api_request(
      access, id,
      fmt::format("{}/{}/resolve/{}/{}", access.endpoint, id, commit, escape_path(path)));
}

}  // namespace kapitsa::hub
