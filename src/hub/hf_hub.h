// The Hugging Face hub: what a repository holds, and which of its files make a model. Everything is
// pinned to one commit, so that files of two versions never mix. Downloads only lists.
#pragma once

#include "hub/http_client.h"

#include <vector>

namespace kapitsa::hub {

struct HfAccess {
  std::string endpoint = "https://huggingface.co";
  std::string token = {};
};

struct HfFile {
  std::string path = {};  // relative, "/" between folders, checked to stay inside
  int64_t bytes = 0;
  std::string sha256 = {};  // of large (LFS) files; empty for the others
};

struct HfRepository {
  std::string id = {};      // OWNER/NAME
  std::string commit = {};  // 40 hex digits
  std::vector<HfFile> files = {};
};

// The files that make one model.
struct HfModel {
  std::string name =
      {};  // of the file without shard number and ".gguf"; empty: a folder of weights
  std::vector<HfFile> files = {};  // the one to open first
};

Result<HfRepository> list_repository(const HttpClient& client, const HfAccess& access,
                                     const std::string& id, const std::string& revision);

// `wanted` is a file of the repository, or a type such as Q4_K_M (in either case), or empty: then
// safetensors with their config.json, else the GGUF nearest to Q4_K_M. An error lists the choices.
Result<HfModel> choose_model(const HfRepository& repository, const std::string& wanted);

// Where a file of the repository is downloaded from.
HttpRequest hf_file_request(const HfAccess& access, const std::string& id,
                            const std::string& commit, const std::string& path);

}  // namespace kapitsa::hub
