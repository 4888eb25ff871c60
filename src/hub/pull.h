// Downloads a model by name: a name of the catalog from the first of its sources that works, or
// hf:OWNER/REPO[:FILE] from the Hugging Face hub. Ends with a manifest (hub/manifest.h), the only
// thing that makes a model of the files; a stopped pull goes on where it was. A pull that fails
// before anything came leaves nothing behind.
#pragma once

#include "hub/catalog.h"
#include "hub/download.h"
#include "hub/hf_hub.h"

namespace kapitsa::hub {

struct PullOptions {
  std::filesystem::path data_folder = {};
  Catalog catalog = builtin_catalog();
  HttpOptions http = {};
  HfAccess hugging_face = {};
  // pip's index-url; asked for only when a source needs it.
  std::function<Result<std::string>()> python_index = {};
  DownloadOptions download = {};
  std::function<void(const std::string&)> note = {};  // one line, such as "trying the next source"
};

struct Pulled {
  std::string name = {};            // the one that `run` takes
  std::filesystem::path path = {};  // the file or folder to open
  bool was_there = false;
};

Result<Pulled> pull(const std::string& name, const PullOptions& options);
// The first file of this entry.
Result<Pulled> pull_entry(const CatalogEntry& entry, const PullOptions& options);

}  // namespace kapitsa::hub
