// Models on this machine: where they are found, how they are named, and what may be removed.
#include "base/file.h"
#include "base/json.h"
#include "base/output_file.h"
#include "hub/local_models.h"
#include "hub/manifest.h"
#include "support/temporary_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kapitsa::hub {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class LocalModels : public testing::Test {
protected:
  LocalFolders folders() const {
    return local_folders(folder_ / "data", {.home = (folder_ / "home").string()});
  }
  // A complete download of the hub.
  fs::path pulled(const std::string& below, const std::string& name, const std::string& file) {
    folder_.write("data/models/" + below + "/" + file, "12345");
    const fs::path folder = folder_ / ("data/models/" + below);
    const bool is_folder = !file.ends_with(".gguf");
    EXPECT_TRUE(write_manifest(folder, {.name = name,
                                        .source = "hf:x",
                                        .open = is_folder ? "" : file,
                                        .files = {{file, 5, "feed"}}}));
    return folder;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> list;
    for (const LocalModel& model : find_local_models(folders()))
      list.push_back(model.name);
    return list;
  }
  std::string error(const std::string& name) const {
    const auto found = resolve_model(name, folders());
    return found ? "found " + found->string() : found.error().message;
  }

  const test::TemporaryFolder folder_;
};

using Names = std::vector<std::string>;

TEST_F(LocalModels, only_complete_downloads_count) {
  pulled("o--r--m-Q4_0", "hf:o/r:m-Q4_0.gguf", "m-Q4_0.gguf");
  EXPECT_EQ(names(), Names{"hf:o/r:m-Q4_0.gguf"});
  folder_.write("data/models/o--r--m-Q4_0/m-Q4_0.gguf", "1234");  // cut
  EXPECT_EQ(names(), Names{});
  folder_.write("data/models/o--r--other/other.gguf", "no manifest");
  folder_.write("data/models/broken/manifest.json", "{\"version\":1");
  folder_.write("data/models/future/manifest.json", R"({"version":2,"name":"x","files":[]})");
  EXPECT_EQ(names(), Names{});
  EXPECT_THAT(error("hf:o/r"), HasSubstr("'kapitsa pull hf:o/r' downloads it"));
}

TEST_F(LocalModels, a_hub_name_finds_by_repository_file_and_type) {
  const fs::path folder = pulled("o--r--m-Q4_0", "hf:o/r:m-Q4_0.gguf", "m-Q4_0.gguf");
  for (const char* name : {"hf:o/r", "hf:o/r:Q4_0", "hf:o/r:q4_0", "hf:o/r:m-Q4_0.gguf",
                           "hf:o/r:m-Q4_0", "m-Q4_0.gguf", "m-Q4_0"}) {
    const auto found = resolve_model(name, folders());
    ASSERT_TRUE(found) << name << ": " << found.error().message;
    EXPECT_EQ(*found, folder / "m-Q4_0.gguf");
  }
  EXPECT_THAT(error("hf:o/r:Q8_0"), HasSubstr("is not downloaded"));
  pulled("o--r--m-Q8_0", "hf:o/r:m-Q8_0.gguf", "m-Q8_0.gguf");
  EXPECT_THAT(error("hf:o/r"), HasSubstr("found 2: hf:o/r:m-Q4_0.gguf, hf:o/r:m-Q8_0.gguf"));
}

TEST_F(LocalModels, the_cache_of_hugging_face_is_read) {
  const std::string repository = "home/.cache/huggingface/hub/models--Some--Repo--x";
  folder_.write(repository + "/refs/main", "c2");
  folder_.write(repository + "/blobs/b1", "12345");
  folder_.write(repository + "/snapshots/c1/old.gguf", "1");
  fs::create_directories(folder_ / (repository + "/snapshots/c2"));
  fs::create_symlink("../../blobs/b1", folder_ / (repository + "/snapshots/c2/m.Q8_0.gguf"));
  fs::create_symlink("../../blobs/gone", folder_ / (repository + "/snapshots/c2/n.gguf"));
  const auto models = find_local_models(folders());
  ASSERT_EQ(models.size(), 1U);
  EXPECT_EQ(models[0].name, "hf:Some/Repo--x:m.Q8_0.gguf");
  EXPECT_EQ(models[0].type, "GGUF Q8_0");
  EXPECT_EQ(models[0].bytes, 5);
  EXPECT_EQ(models[0].origin, Origin::hugging_face);
  EXPECT_TRUE(resolve_model("hf:Some/Repo--x", folders()));
}

TEST_F(LocalModels, safetensors_need_every_shard) {
  const std::string snapshot = "home/.cache/huggingface/hub/models--o--r/snapshots/c/";
  folder_.write(snapshot + "config.json", "{}");
  folder_.write(snapshot + "model-00001-of-00002.safetensors", "123");
  EXPECT_EQ(names(), Names{});
  folder_.write(snapshot + "model-00002-of-00002.safetensors", "4567");
  const auto models = find_local_models(folders());
  ASSERT_EQ(models.size(), 1U);
  EXPECT_EQ(models[0].name, "hf:o/r");
  EXPECT_EQ(models[0].bytes, 7);
  EXPECT_TRUE(fs::is_directory(models[0].path));
}

TEST_F(LocalModels, lm_studio_is_read) {
  folder_.write("home/.lmstudio/models/o/r/m-Q4_0-00001-of-00002.gguf", "12");
  folder_.write("home/.lmstudio/models/o/r/m-Q4_0-00002-of-00002.gguf", "345");
  folder_.write("home/.lmstudio/models/o/r/mmproj.gguf", "1");
  folder_.write("home/.lmstudio/models/o/part/m-00001-of-00002.gguf", "12");
  const auto models = find_local_models(folders());
  ASSERT_EQ(models.size(), 1U);
  EXPECT_EQ(models[0].name, "lmstudio:o/r:m-Q4_0-00001-of-00002.gguf");
  EXPECT_EQ(models[0].bytes, 5);
  EXPECT_TRUE(resolve_model("hf:o/r", folders())) << "the same repository, wherever it came from";
  EXPECT_TRUE(resolve_model("m-Q4_0", folders()));
}

TEST_F(LocalModels, ollama_is_read) {
  const std::string models = "home/.ollama/models/";
  const std::string manifest =
      R"({"layers":[{"mediaType":"application/vnd.ollama.image.license","digest":"sha256:1"},
      {"mediaType":"application/vnd.ollama.image.model","digest":"sha256:feed","size":5}]})";
  folder_.write(models + "blobs/sha256-feed", "12345");
  folder_.write(models + "manifests/registry.ollama.ai/library/qwen3/latest", manifest);
  folder_.write(models + "manifests/registry.ollama.ai/someone/m/8b", manifest);
  folder_.write(models + "manifests/registry.ollama.ai/library/broken/latest", "{");
  EXPECT_EQ(names(), (Names{"ollama:qwen3:latest", "ollama:someone/m:8b"}));
  const auto found = resolve_model("ollama:qwen3", folders());
  ASSERT_TRUE(found);
  EXPECT_EQ(*found, folder_ / (models + "blobs/sha256-feed"));
  EXPECT_TRUE(resolve_model("ollama:someone/m:8b", folders()));
  EXPECT_THAT(error("ollama:llama3:8b"), HasSubstr("'ollama pull llama3:8b'"));
}

TEST_F(LocalModels, variables_move_the_caches) {
  const LocalFolders moved =
      local_folders("d", {.home = "h", .hf_home = "f", .hf_hub_cache = "", .ollama_models = "o"});
  EXPECT_EQ(moved.hugging_face, fs::path("f/hub"));
  EXPECT_EQ(moved.ollama, fs::path("o"));
  EXPECT_EQ(local_folders("d", {.hf_home = "f", .hf_hub_cache = "c"}).hugging_face, fs::path("c"));
  EXPECT_TRUE(local_folders("d", {}).ollama.empty());
}

TEST_F(LocalModels, a_path_is_itself) {
  const auto path = folder_.write("elsewhere/model.gguf", "x");
  const auto found = resolve_model(path.string(), folders());
  ASSERT_TRUE(found);
  EXPECT_EQ(*found, path);
}

TEST_F(LocalModels, an_unknown_name_says_what_to_do) {
  EXPECT_THAT(error("gpt-9"), HasSubstr("model 'gpt-9': no such file"));
  EXPECT_THAT(error("gpt-9"), HasSubstr("smollm2"));
  EXPECT_THAT(error("o/r"), HasSubstr("'kapitsa pull hf:o/r'"));
  EXPECT_EQ(error("gpt-9").find('\n'), std::string::npos);
}

TEST_F(LocalModels, every_catalog_name_is_there_once) {
  for (const char* alias : {"35b", "27b", "flash-next", "bolt", "flint", "clover", "smollm2"})
    EXPECT_NE(builtin_catalog().find(alias), nullptr) << alias;
  EXPECT_EQ(builtin_catalog().entries.size(), 7U);
  EXPECT_THAT(error("smollm2"), HasSubstr("'kapitsa pull smollm2' downloads it"));
}

// smollm2 in small.
const CatalogEntry kEntry = {
    .alias = "tiny",
    .full_name = "Tiny",
    .files = {{"gguf",
               "m.gguf",
               "5994471abb01112afcc18159f6cc74b4f511b99806da59b3caf5a9c173cacfc5",  // of "12345"
               5,
               {{SourceKind::hugging_face, "o/r", "main"}}}}};

TEST_F(LocalModels, an_entry_may_be_a_file_that_is_here) {
  LocalFolders with_entry = folders();
  with_entry.catalog.entries.push_back(
      {.alias = "mine", .full_name = "Mine", .files = {}, .path = folder_ / "my/model.gguf"});
  const auto missing = resolve_model("mine", with_entry);
  ASSERT_FALSE(missing);
  EXPECT_THAT(missing.error().message, HasSubstr("my/model.gguf: not there"));
  const auto path = folder_.write("my/model.gguf", "12345");
  EXPECT_EQ(*resolve_model("mine", with_entry), path);
}

TEST_F(LocalModels, the_catalog_is_complete) {
  for (const CatalogEntry& entry : builtin_catalog().entries) {
    EXPECT_FALSE(entry.family.empty() || entry.architecture.empty()) << entry.alias;
    EXPECT_GE(entry.n_parameters, entry.n_active) << entry.alias;
    EXPECT_GT(entry.memory_1k, entry.n_parameters / 2) << entry.alias << ": 4 bits are half a byte";
    EXPECT_GT(entry.memory_32k, entry.memory_1k) << entry.alias;
    EXPECT_GT(entry.context_trained, 0) << entry.alias;
    for (const CatalogFile& file : entry.files) {
      EXPECT_FALSE(file.sources.empty()) << entry.alias;
      EXPECT_TRUE(file.sha256.empty() || (file.sha256.size() == 64 && file.bytes > 0))
          << entry.alias;
    }
  }
}

TEST_F(LocalModels, a_file_put_in_place_by_hand_is_checked_once_and_adopted) {
  const auto path = folder_.write("data/models/tiny/m.gguf", "12345");
  const auto found = resolve_entry(kEntry, folders());
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(*found, path);
  const auto manifest = read_manifest(folder_ / "data/models/tiny");
  ASSERT_TRUE(manifest);
  EXPECT_EQ(manifest->source, "file");
  folder_.write("data/models/tiny/m.gguf", "54321");
  EXPECT_TRUE(resolve_entry(kEntry, folders())) << "from then on by size";
}

TEST_F(LocalModels, a_wrong_file_in_place_is_refused) {
  folder_.write("data/models/tiny/m.gguf", "54321");
  const auto wrong = resolve_entry(kEntry, folders());
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().code, ErrorCode::corrupt_file);
  EXPECT_THAT(wrong.error().message,
              HasSubstr("data/models/tiny/m.gguf: expected SHA-256 5994471a"));
  folder_.write("data/models/tiny/m.gguf", "123");
  const auto cut = resolve_entry(kEntry, folders());
  ASSERT_FALSE(cut);
  EXPECT_EQ(cut.error().code, ErrorCode::not_found);
}

TEST_F(LocalModels, rm_removes_the_folder_of_a_download_and_nothing_else) {
  const fs::path folder = pulled("o--r--m-Q4_0", "hf:o/r:m-Q4_0.gguf", "m-Q4_0.gguf");
  const auto outside = folder_.write("outside/precious", "keep");
  fs::create_symlink(folder_ / "outside", folder / "link");
  const auto model = find_removable("hf:o/r:Q4_0", folders());
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->folder, folder);
  EXPECT_TRUE(remove_model(*model));
  EXPECT_FALSE(fs::exists(folder));
  EXPECT_TRUE(fs::exists(outside));
}

TEST_F(LocalModels, rm_removes_a_stopped_download) {
  folder_.write("data/models/smollm2/x.gguf.part", "123");
  const auto model = find_removable("smollm2", folders());
  ASSERT_TRUE(model);
  EXPECT_FALSE(model->complete);
  EXPECT_EQ(model->bytes, 3);
  EXPECT_TRUE(remove_model(*model));
  EXPECT_FALSE(fs::exists(folder_ / "data/models/smollm2"));
}

TEST_F(LocalModels, rm_leaves_what_others_downloaded) {
  folder_.write("home/.lmstudio/models/o/r/m.gguf", "12");
  const auto model = find_removable("lmstudio:o/r:m.gguf", folders());
  ASSERT_FALSE(model);
  EXPECT_THAT(model.error().message, HasSubstr("was not downloaded by kapitsa, so it stays"));
}

TEST_F(LocalModels, rm_takes_no_path_and_no_link) {
  folder_.write("data/other/file", "keep");
  fs::create_directories(folder_ / "data/models");
  fs::create_directory_symlink(folder_ / "data/other", folder_ / "data/models/linked");
  for (const char* name : {"..", ".", "", "../other", "linked", "hf:../other", "/"})
    EXPECT_FALSE(find_removable(name, folders())) << name;
  EXPECT_FALSE(remove_model({"linked", folder_ / "data/models/linked", 0, true}));
  EXPECT_TRUE(fs::exists(folder_ / "data/other/file"));
}

TEST_F(LocalModels, rm_waits_for_no_download) {
  const fs::path folder = pulled("o--r--m", "hf:o/r:m.gguf", "m.gguf");
  const auto lock = FileLock::acquire(lock_file(folder));
  ASSERT_TRUE(lock);
  const auto model = find_removable("hf:o/r", folders());
  ASSERT_TRUE(model);
  const Status removed = remove_model(*model);
  ASSERT_FALSE(removed);
  EXPECT_THAT(removed.error().message, HasSubstr("being downloaded by another kapitsa"));
  EXPECT_TRUE(fs::exists(folder / "m.gguf"));
}

TEST_F(LocalModels, the_list_is_valid_json) {
  pulled("o--r--m", "hf:o/r:m\"\n.gguf", "m.gguf");
  const auto parsed = parse_json(to_json(find_local_models(folders())), "list");
  EXPECT_TRUE(parsed);
}

}  // namespace
}  // namespace kapitsa::hub
