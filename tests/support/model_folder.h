// A model of tests/golden/data as people have it: a file as it is, or a copy of a folder with the
// tiny tokenizer beside the weights.
#pragma once

#include "support/checkpoint_files.h"
#include "support/temporary_folder.h"

#include <filesystem>
#include <memory>
#include <string>

namespace kapitsa::test {

class TestModel {
public:
  explicit TestModel(const std::string& name) : path_(golden_path(name)) {
    if (!std::filesystem::is_directory(path_)) return;
    folder_ = std::make_unique<TemporaryFolder>();
    for (const auto& from : {path_, golden_path("tiny_tokenizer")}) {
      for (const auto& entry : std::filesystem::directory_iterator(from))
        std::filesystem::copy_file(entry.path(), folder_->path() / entry.path().filename());
    }
    path_ = folder_->path();
  }

  const std::filesystem::path& path() const { return path_; }

private:
  std::unique_ptr<TemporaryFolder> folder_;
  std::filesystem::path path_;
};

}  // namespace kapitsa::test
