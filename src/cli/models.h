// What the commands share about models: where they lie, how they are downloaded, and the settings
// for both that come from the environment and from pip.
#pragma once

#include "base/result.h"
#include "hub/local_models.h"
#include "hub/pull.h"

#include <string>

namespace kapitsa::cli {

Result<hub::LocalFolders> model_folders();

// Downloads with a progress bar on stderr; Ctrl-C stops it and keeps what came.
Result<hub::Pulled> pull_model(const std::string& name, bool quiet);

// The file or folder of a model; a model of the catalog is downloaded first when it is not here.
Result<std::filesystem::path> find_or_pull_model(const std::string& name, bool quiet);

// pip's index-url: PIP_INDEX_URL, else what pip itself is set to.
Result<std::string> python_index();

// The address after the word "default" in the help of pip's option --index-url; empty: not there.
std::string index_in_pip_help(std::string_view help);

}  // namespace kapitsa::cli
