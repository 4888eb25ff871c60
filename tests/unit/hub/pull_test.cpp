// Whole pulls against a hub and a package index on the loopback address.
#include "base/output_file.h"
#include "hub/local_models.h"
#include "hub/manifest.h"
#include "hub/pull.h"
#include "hub/sha256.h"
#include "support/fake_server.h"
#include "support/temporary_folder.h"
#include "unit/hub/zip_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kapitsa::hub {
namespace {

namespace fs = std::filesystem;
using test::FakeReply;
using test::FakeRequest;
using test::FakeServer;
using test::read_file;
using test::serve_file;
using testing::HasSubstr;

constexpr char kCommit[] = "0123456789abcdef0123456789abcdef01234567";
constexpr char kSha256[] = "5994471abb01112afcc18159f6cc74b4f511b99806da59b3caf5a9c173cacfc5";

// A model of 5 bytes, "12345", with two sources.
const CatalogEntry kEntry = {.alias = "tiny",
                             .full_name = "Tiny",
                             .files = {{"gguf",
                                        "m.gguf",
                                        kSha256,
                                        5,
                                        {{SourceKind::python_index, "tiny-model", "1.0"},
                                         {SourceKind::hugging_face, "o/r", kCommit}}}}};

std::string sha256(const std::string& text) {
  Sha256 hash;
  hash.update(std::as_bytes(std::span<const char>(text)));
  return hash.hex();
}

class PullTest : public testing::Test {
protected:
  PullOptions options(const FakeServer& server) {
    PullOptions options{.data_folder = folder_.path()};
    options.http = {.attempts = 1, .stall_timeout = std::chrono::seconds(5)};
    options.hugging_face.endpoint = server.url("/");
    options.python_index = [url = server.url("/simple")] { return Result<std::string>(url); };
    options.download.free_bytes = [this](const fs::path&) { return Result<int64_t>(free_); };
    options.note = [this](const std::string& text) { notes_.push_back(text); };
    return options;
  }
  // The index page, the wheel, and the file of the hub; an empty text is a 404.
  FakeReply reply(const FakeRequest& r) const {
    if (r.target == "/simple/tiny-model/" && !wheel_.empty())
      return {.headers = {{"Content-Type", "application/vnd.pypi.simple.v1+json"}},
              .body = R"({"files":[{"filename":"tiny_model-1.0-py3-none-any.whl","url":"/w.whl",)"
                      R"("hashes":{"sha256":")" +
                      sha256(wheel_) + "\"}}]}"};
    if (r.target == "/w.whl") return serve_file(r, wheel_, "\"w\"");
    if (r.target == std::string("/o/r/resolve/") + kCommit + "/m.gguf" && !hub_file_.empty())
      return serve_file(r, hub_file_, "\"m\"");
    return {.status = 404};
  }
  fs::path model() const { return folder_ / "models/tiny/m.gguf"; }
  std::vector<std::string> files_of_model() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_ / "models/tiny"))
      names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }

  const test::TemporaryFolder folder_;
  int64_t free_ = int64_t{1} << 40;
  std::vector<std::string> notes_;
  std::string wheel_ = test::make_zip({{"tiny_model/m.gguf", "12345"}});
  std::string hub_file_ = "12345";
};

using Names = std::vector<std::string>;

TEST_F(PullTest, a_catalog_model_comes_from_its_first_source) {
  const FakeServer server([this](const FakeRequest& r) { return reply(r); });
  const auto pulled = pull_entry(kEntry, options(server));
  ASSERT_TRUE(pulled) << pulled.error().message;
  EXPECT_EQ(pulled->name, "tiny");
  EXPECT_EQ(pulled->path, model());
  EXPECT_FALSE(pulled->was_there);
  EXPECT_EQ(read_file(model()), "12345");
  EXPECT_EQ(files_of_model(), (Names{"m.gguf", "manifest.json"}));
  EXPECT_EQ(read_manifest(folder_ / "models/tiny")->source, "pypi:tiny-model==1.0");
  const size_t n = server.requests().size();
  const auto again = pull_entry(kEntry, options(server));
  ASSERT_TRUE(again);
  EXPECT_TRUE(again->was_there);
  EXPECT_EQ(server.requests().size(), n);
}

TEST_F(PullTest, the_second_source_takes_over) {
  struct Case {
    std::string wheel;
    const char* reason;
  };
  for (const Case& c :
       {Case{"", "this index does not have the package"},
        Case{"no zip", "not a usable ZIP archive"},
        Case{test::make_zip({{"m.gguf", "54321"}}), "expected SHA-256 5994471a"},
        Case{test::make_zip({{"m.gguf", "1234"}}), "expected 5 bytes, found 4"},
        Case{test::make_zip({{"other", "12345"}}), "expected one member m.gguf, found 0"}}) {
    fs::remove_all(folder_ / "models");
    notes_.clear();
    wheel_ = c.wheel;
    const FakeServer server([this](const FakeRequest& r) { return reply(r); });
    const auto pulled = pull_entry(kEntry, options(server));
    ASSERT_TRUE(pulled) << pulled.error().message;
    EXPECT_EQ(read_file(model()), "12345");
    EXPECT_EQ(files_of_model(), (Names{"m.gguf", "manifest.json"}));
    ASSERT_EQ(notes_.size(), 1U);
    EXPECT_THAT(notes_[0], HasSubstr(c.reason));
    EXPECT_THAT(notes_[0], HasSubstr("trying the next source"));
  }
}

TEST_F(PullTest, when_every_source_fails_one_line_says_why) {
  wheel_ = "";
  hub_file_ = "54321";
  const FakeServer server([this](const FakeRequest& r) { return reply(r); });
  const auto pulled = pull_entry(kEntry, options(server));
  ASSERT_FALSE(pulled);
  const std::string& message = pulled.error().message;
  EXPECT_THAT(message, HasSubstr("model 'tiny' cannot be downloaded: Python package index"));
  EXPECT_THAT(message, HasSubstr("| Hugging Face hub o/r: "));
  EXPECT_THAT(message, HasSubstr(std::string("expected SHA-256 ") + kSha256));
  EXPECT_EQ(message.find('\n'), std::string::npos);
  EXPECT_FALSE(resolve_entry(kEntry, {.data = folder_.path()}));
  EXPECT_TRUE(fs::is_empty(folder_ / "models")) << "no folder, no lock file";
}

TEST_F(PullTest, without_a_package_index_the_hub_is_used) {
  const FakeServer server([this](const FakeRequest& r) { return reply(r); });
  PullOptions without = options(server);
  without.python_index = {};
  ASSERT_TRUE(pull_entry(kEntry, without));
  EXPECT_EQ(read_manifest(folder_ / "models/tiny")->source, std::string("hf:o/r@") + kCommit);
}

TEST_F(PullTest, a_wrong_file_in_place_is_downloaded_again) {
  folder_.write("models/tiny/m.gguf", "54321");
  const FakeServer server([this](const FakeRequest& r) { return reply(r); });
  const auto pulled = pull_entry(kEntry, options(server));
  ASSERT_TRUE(pulled) << pulled.error().message;
  EXPECT_EQ(read_file(model()), "12345");
}

TEST_F(PullTest, a_full_disk_is_told_before_anything_is_fetched) {
  free_ = 1000;
  const FakeServer server([this](const FakeRequest& r) { return reply(r); });
  const auto pulled = pull_entry(kEntry, options(server));
  ASSERT_FALSE(pulled);
  EXPECT_THAT(pulled.error().message, HasSubstr("not enough room on this disk"));
  EXPECT_FALSE(fs::exists(model()));
}

TEST_F(PullTest, two_pulls_of_one_model_do_not_meet) {
  fs::create_directories(folder_ / "models");
  const auto lock = FileLock::acquire(lock_file(folder_ / "models/tiny"));
  ASSERT_TRUE(lock);
  const FakeServer server([this](const FakeRequest& r) { return reply(r); });
  const auto pulled = pull_entry(kEntry, options(server));
  ASSERT_FALSE(pulled);
  EXPECT_THAT(pulled.error().message, HasSubstr("is being downloaded by another kapitsa"));
  EXPECT_EQ(server.requests().size(), 0U);
}

TEST_F(PullTest, a_folder_that_cannot_be_made_is_named) {
  folder_.write("models", "a file is in the way");
  const FakeServer server([this](const FakeRequest& r) { return reply(r); });
  const auto pulled = pull_entry(kEntry, options(server));
  ASSERT_FALSE(pulled);
  EXPECT_THAT(pulled.error().message, HasSubstr("cannot create this folder"));
  EXPECT_THAT(pulled.error().message, HasSubstr("KAPITSA_HOME"));
}

TEST_F(PullTest, names_that_are_none_are_refused) {
  const FakeServer server([this](const FakeRequest& r) { return reply(r); });
  for (const char* name : {"nothing", "hf:x", "hf:/x", "hf:x/", "ollama:x", "hf:../x", "hf:a/b/c"})
    EXPECT_FALSE(pull(name, options(server))) << name;
  CatalogEntry foreign = kEntry;
  foreign.runs = false;
  EXPECT_EQ(pull_entry(foreign, options(server)).error().code, ErrorCode::unsupported);
  EXPECT_EQ(server.requests().size(), 0U);
}

// A repository with one split GGUF, or with safetensors.
class HubPull : public PullTest {
protected:
  FakeReply hub_reply(const FakeRequest& r) const {
    if (r.target == "/api/models/o/r/revision/main")
      return {.body = R"({"sha":")" + commit_ + "\"}"};
    if (r.target == "/api/models/o/r/tree/" + commit_ + "?recursive=true") {
      std::string body;
      for (const auto& [path, content] : files_)
        body += (body.empty() ? "[" : ",") + (R"({"type":"file","path":")" + path) +
                R"(","size":1,"lfs":{"oid":")" + sha256(content) + R"(","size":)" +
                std::to_string(content.size()) + "}}";
      return {.body = body + "]"};
    }
    for (const auto& [path, content] : files_) {
      if (r.target == "/o/r/resolve/" + commit_ + "/" + path)
        return serve_file(r, content, "\"x\"");
    }
    return {.status = 404};
  }

  std::string commit_ = kCommit;
  std::map<std::string, std::string> files_ = {{"q/m-Q4_0-00001-of-00002.gguf", "first"},
                                               {"q/m-Q4_0-00002-of-00002.gguf", "second"},
                                               {"q/m-Q8_0.gguf", "eight"}};
};

TEST_F(HubPull, all_shards_of_a_split_model_come) {
  const FakeServer server([this](const FakeRequest& r) { return hub_reply(r); });
  const auto pulled = pull("hf:o/r:Q4_0", options(server));
  ASSERT_TRUE(pulled) << pulled.error().message;
  EXPECT_EQ(pulled->name, "hf:o/r:m-Q4_0-00001-of-00002.gguf");
  const fs::path folder = folder_ / "models/o--r--m-Q4_0";
  EXPECT_EQ(pulled->path, folder / "q/m-Q4_0-00001-of-00002.gguf");
  EXPECT_EQ(read_file(folder / "q/m-Q4_0-00002-of-00002.gguf"), "second");
  EXPECT_FALSE(fs::exists(folder / "q/m-Q8_0.gguf"));
  const auto manifest = read_manifest(folder);
  ASSERT_TRUE(manifest);
  EXPECT_EQ(manifest->source, std::string("hf:o/r@") + kCommit);
  EXPECT_EQ(manifest->files[1].sha256, sha256("second"));
  const auto resolved = resolve_model("hf:o/r", {.data = folder_.path()});
  ASSERT_TRUE(resolved);
  EXPECT_EQ(*resolved, pulled->path);
  EXPECT_TRUE(pull("hf:o/r:Q4_0", options(server))->was_there);
}

TEST_F(HubPull, an_entry_without_a_checksum_is_chosen_in_its_repository) {
  const FakeServer server([this](const FakeRequest& r) { return hub_reply(r); });
  PullOptions with_entry = options(server);
  with_entry.catalog.entries = {
      {.alias = "mine",
       .full_name = "Mine",
       .files = {{.format = "gguf",
                  .file = "Q4_0",
                  .sources = {{.repository = "o/r", .revision = "main"}}}}}};
  const auto pulled = pull("mine", with_entry);
  ASSERT_TRUE(pulled) << pulled.error().message;
  EXPECT_EQ(pulled->name, "mine");
  EXPECT_EQ(pulled->path, folder_ / "models/mine/q/m-Q4_0-00001-of-00002.gguf");
  const LocalFolders folders{.data = folder_.path(), .catalog = with_entry.catalog};
  EXPECT_EQ(*resolve_model("mine", folders), pulled->path);
  EXPECT_EQ(find_local_models(folders).front().name, "mine");
  const size_t n = server.requests().size();
  EXPECT_TRUE(pull("mine", with_entry)->was_there);
  EXPECT_EQ(server.requests().size(), n);
}

TEST_F(HubPull, a_pull_that_got_nothing_leaves_nothing) {
  files_ = {{"q/m-Q4_0.gguf", "first"}};
  const FakeServer server([this](const FakeRequest& r) {
    return r.target.ends_with(".gguf") ? FakeReply{.status = 404} : hub_reply(r);
  });
  EXPECT_FALSE(pull("hf:o/r:Q4_0", options(server)));
  EXPECT_TRUE(fs::is_empty(folder_ / "models"));
}

TEST_F(HubPull, a_folder_of_safetensors_comes_whole) {
  files_ = {{"config.json", "{}"}, {"tokenizer.json", "{}"}, {"model.safetensors", "weights"}};
  const FakeServer server([this](const FakeRequest& r) { return hub_reply(r); });
  const auto pulled = pull("hf:o/r", options(server));
  ASSERT_TRUE(pulled) << pulled.error().message;
  EXPECT_EQ(pulled->name, "hf:o/r");
  EXPECT_EQ(pulled->path, folder_ / "models/o--r");
  EXPECT_EQ(read_file(pulled->path / "model.safetensors"), "weights");
}

TEST_F(HubPull, a_new_commit_replaces_what_changed) {
  files_ = {{"config.json", "{}"}, {"model.safetensors", "weights"}};
  {
    const FakeServer first([this](const FakeRequest& r) { return hub_reply(r); });
    ASSERT_TRUE(pull("hf:o/r", options(first)));
  }
  commit_ = "fedcba9876543210fedcba9876543210fedcba98";
  files_["model.safetensors"] = "newer weights";
  const FakeServer server([this](const FakeRequest& r) { return hub_reply(r); });
  const auto pulled = pull("hf:o/r", options(server));
  ASSERT_TRUE(pulled) << pulled.error().message;
  EXPECT_EQ(read_file(pulled->path / "model.safetensors"), "newer weights");
  EXPECT_EQ(read_manifest(pulled->path)->source, "hf:o/r@" + commit_);
  EXPECT_EQ(server.requests().size(), 3U) << "two lists and the file that changed";
}

TEST_F(HubPull, a_failed_shard_leaves_no_model_and_the_next_pull_goes_on) {
  std::atomic<bool> broken = true;
  const FakeServer server([&](const FakeRequest& r) {
    if (broken && r.target.ends_with("00002-of-00002.gguf")) return FakeReply{.status = 404};
    return hub_reply(r);
  });
  PullOptions one_by_one = options(server);
  one_by_one.download.parallel = 1;
  const auto failed = pull("hf:o/r:Q4_0", one_by_one);
  ASSERT_FALSE(failed);
  EXPECT_FALSE(resolve_model("hf:o/r", {.data = folder_.path()}));
  broken = false;
  const size_t before = server.requests().size();
  ASSERT_TRUE(pull("hf:o/r:Q4_0", one_by_one));
  EXPECT_EQ(server.requests().size() - before, 3U) << "two lists and the shard that was missing";
}

}  // namespace
}  // namespace kapitsa::hub
