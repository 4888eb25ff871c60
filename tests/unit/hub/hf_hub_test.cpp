// What is read from the hub, and which files are chosen of a repository.
#include "hub/file_names.h"
#include "hub/hf_hub.h"
#include "support/fake_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kapitsa::hub {
namespace {

using test::FakeReply;
using test::FakeRequest;
using test::FakeServer;
using testing::HasSubstr;
using testing::StartsWith;

constexpr char kCommit[] = "0123456789abcdef0123456789abcdef01234567";

HttpClient client() {
  return HttpClient({.attempts = 1, .stall_timeout = std::chrono::seconds(5)});
}

std::string about() {
  return std::string(R"({"id":"o/r","sha":")") + kCommit + R"("})";
}

Result<HfRepository> list(const FakeServer& server, const std::string& token = "") {
  return list_repository(client(), {server.url(""), token}, "o/r", "main");
}

TEST(HfHub, lists_a_repository_over_several_pages_of_one_commit) {
  const FakeServer server([&](const FakeRequest& r) {
    if (r.target == "/api/models/o/r/revision/main") return FakeReply{.body = about()};
    const std::string tree = std::string("/api/models/o/r/tree/") + kCommit + "?recursive=true";
    if (r.target == tree)
      return FakeReply{.headers = {{"Link", "<" + tree + "&cursor=x>; rel=\"next\""}},
                       .body = R"([{"type":"directory","path":"d","size":0},
      {"type":"file","path":"d/a.gguf","size":120,"lfs":{"oid":"feed","size":5000,"pointerSize":120}}])"};
    if (r.target == tree + "&cursor=x")
      return FakeReply{.body = R"([{"type":"file","path":"config.json","size":17,"oid":"x"}])"};
    return FakeReply{.status = 404};
  });
  const auto repository = list(server, "secret");
  ASSERT_TRUE(repository) << repository.error().message;
  EXPECT_EQ(repository->commit, kCommit);
  ASSERT_EQ(repository->files.size(), 2U);
  EXPECT_EQ(repository->files[0].path, "d/a.gguf");
  EXPECT_EQ(repository->files[0].bytes, 5000);
  EXPECT_EQ(repository->files[0].sha256, "feed");
  EXPECT_EQ(repository->files[1].bytes, 17);
  EXPECT_EQ(repository->files[1].sha256, "");
  for (const FakeRequest& request : server.requests())
    EXPECT_EQ(request.header("authorization"), "Bearer secret");
}

TEST(HfHub, names_that_lead_out_of_the_folder_are_refused) {
  for (const char* path :
       {"../x.gguf", "/x.gguf", "a/../x", "a//x", "a/.", "", "a\\\\x", "a\\nx", "a\\u0000x"}) {
    const FakeServer server([&](const FakeRequest& r) {
      if (r.target.find("tree") == std::string::npos) return FakeReply{.body = about()};
      return FakeReply{.body =
                           std::string(R"([{"type":"file","path":")") + path + R"(","size":1}])"};
    });
    EXPECT_FALSE(list(server)) << path;
  }
}

TEST(HfHub, a_next_page_elsewhere_is_refused) {
  const FakeServer server([&](const FakeRequest& r) {
    if (r.target.find("tree") == std::string::npos) return FakeReply{.body = about()};
    return FakeReply{.headers = {{"Link", "<http://localhost:1/x>; rel=\"next\""}}, .body = "[]"};
  });
  const auto repository = list(server, "secret");
  ASSERT_FALSE(repository);
  EXPECT_THAT(repository.error().message, HasSubstr("pages of the same host"));
}

TEST(HfHub, what_is_no_hub_is_named) {
  for (const char* body : {"<html>", "{}", R"({"sha":"main"})", "[]"}) {
    const FakeServer server([&](const FakeRequest&) { return FakeReply{.body = body}; });
    const auto repository = list(server);
    ASSERT_FALSE(repository);
    EXPECT_THAT(repository.error().message, StartsWith(server.url("/api/models/o/r")));
  }
}

TEST(HfHub, a_gated_repository_says_how_to_get_in) {
  const FakeServer server([&](const FakeRequest&) { return FakeReply{.status = 401}; });
  const auto without = list(server);
  ASSERT_FALSE(without);
  EXPECT_THAT(without.error().message, HasSubstr("accept its terms at " + server.url("/o/r")));
  EXPECT_THAT(without.error().message, HasSubstr("set HF_TOKEN"));
  const auto with = list(server, "secret");
  ASSERT_FALSE(with);
  EXPECT_THAT(with.error().message, HasSubstr("HF_TOKEN is set but gives no access"));
  EXPECT_EQ(with.error().message.find("secret"), std::string::npos);
}

TEST(HfHub, a_name_must_be_owner_and_repository) {
  for (const char* id : {"x", "a/b/c", "../x", "a/..", "a b/c", "a/b?c", ""}) {
    const auto repository = list_repository(client(), {}, id, "main");
    ASSERT_FALSE(repository) << id;
    EXPECT_THAT(repository.error().message, HasSubstr("expected OWNER/REPOSITORY"));
  }
}

HfRepository with(const std::vector<std::string>& paths) {
  HfRepository repository{.id = "o/r"};
  for (const std::string& path : paths)
    repository.files.push_back({.path = path, .bytes = 1});
  return repository;
}

std::vector<std::string> paths(const Result<HfModel>& model) {
  std::vector<std::string> names;
  if (!model) return {model.error().message};
  for (const HfFile& file : model->files)
    names.push_back(file.path);
  return names;
}

using Names = std::vector<std::string>;

TEST(HfChoice, the_only_gguf_is_taken_and_projectors_are_not) {
  const auto repository = with({"README.md", "m.Q8_0.gguf", "mmproj-m.gguf", "m.imatrix.gguf"});
  EXPECT_EQ(paths(choose_model(repository, "")), Names{"m.Q8_0.gguf"});
}

TEST(HfChoice, four_bits_are_preferred) {
  const auto repository =
      with({"m-BF16.gguf", "m-IQ4_XS.gguf", "m-Q2_K.gguf", "m-Q4_K_M.gguf", "m-Q8_0.gguf"});
  EXPECT_EQ(paths(choose_model(repository, "")), Names{"m-Q4_K_M.gguf"});
}

TEST(HfChoice, a_type_or_a_file_picks) {
  const auto repository = with({"m-Q4_K_M.gguf", "m-Q8_0.gguf", "UD/m-UD-Q4_K_XL.gguf"});
  EXPECT_EQ(paths(choose_model(repository, "q8_0")), Names{"m-Q8_0.gguf"});
  EXPECT_EQ(paths(choose_model(repository, "Q8_0")), Names{"m-Q8_0.gguf"});
  EXPECT_EQ(paths(choose_model(repository, "m-Q4_K_M.gguf")), Names{"m-Q4_K_M.gguf"});
  EXPECT_EQ(paths(choose_model(repository, "UD/m-UD-Q4_K_XL.gguf")), Names{"UD/m-UD-Q4_K_XL.gguf"});
  EXPECT_EQ(paths(choose_model(repository, "m-UD-Q4_K_XL.gguf")), Names{"UD/m-UD-Q4_K_XL.gguf"});
}

TEST(HfChoice, what_cannot_be_decided_lists_the_choices) {
  const auto repository = with({"a-Q2_K.gguf", "b-Q3_K.gguf"});
  const auto none = choose_model(repository, "");
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().message,
            "o/r: holds several models; choose one with hf:o/r:FILE: a-Q2_K, b-Q3_K");
  const auto wrong = choose_model(repository, "Q8_0");
  ASSERT_FALSE(wrong);
  EXPECT_THAT(wrong.error().message, HasSubstr("no single model matches 'Q8_0'"));
  EXPECT_FALSE(choose_model(with({"a-Q8_0.gguf", "b-Q8_0.gguf"}), "Q8_0"));
}

TEST(HfChoice, a_split_model_comes_with_all_its_shards_in_order) {
  const auto repository =
      with({"q/m-Q4_K_M-00002-of-00002.gguf", "q/m-Q4_K_M-00001-of-00002.gguf"});
  EXPECT_EQ(paths(choose_model(repository, "")),
            (Names{"q/m-Q4_K_M-00001-of-00002.gguf", "q/m-Q4_K_M-00002-of-00002.gguf"}));
  const auto part = choose_model(with({"m-00002-of-00003.gguf", "m-00003-of-00003.gguf"}), "");
  ASSERT_FALSE(part);
  EXPECT_THAT(part.error().message, HasSubstr("expected 3 shards, found 2"));
}

TEST(HfChoice, safetensors_come_with_what_belongs_to_them) {
  const auto repository =
      with({".gitattributes", "README.md", "config.json", "generation_config.json",
            "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
            "model.safetensors.index.json", "tokenizer.json", "chat_template.jinja",
            "consolidated.safetensors", "onnx/model.onnx", "original/x.safetensors"});
  EXPECT_EQ(paths(choose_model(repository, "")),
            (Names{"config.json", "generation_config.json", "model-00001-of-00002.safetensors",
                   "model-00002-of-00002.safetensors", "model.safetensors.index.json",
                   "tokenizer.json", "chat_template.jinja"}));
}

TEST(HfChoice, a_repository_without_weights_says_so) {
  const auto none = choose_model(with({"README.md", "pytorch_model.bin"}), "");
  ASSERT_FALSE(none);
  EXPECT_THAT(none.error().message, HasSubstr("o/r: expected GGUF files, or config.json"));
}

TEST(HfHub, files_are_asked_for_by_commit_with_their_names_escaped) {
  const HttpRequest request = hf_file_request({"https://h", "t"}, "o/r", kCommit, "d/a b.gguf");
  EXPECT_EQ(request.url, std::string("https://h/o/r/resolve/") + kCommit + "/d/a%20b.gguf");
  EXPECT_EQ(request.bearer_token, "t");
}

TEST(FileNames, shards_are_recognised) {
  const auto shard = parse_shard("m-00002-of-00013.gguf");
  ASSERT_TRUE(shard);
  EXPECT_EQ(shard->stem, "m");
  EXPECT_EQ(shard->index, 2);
  EXPECT_EQ(shard->count, 13);
  for (const char* name :
       {"m.gguf", "m-0002-of-0013.gguf", "m-00003-of-00002.gguf", "-00001-of-00001",
        "m-00000-of-00002.gguf", "m-00001-of-00002.txt", "", "."})
    EXPECT_FALSE(parse_shard(name)) << name;
}

TEST(FileNames, types_are_read_from_names) {
  EXPECT_EQ(quantisation_in("SmolLM2-135M-Instruct.Q4_1.gguf"), "Q4_1");
  EXPECT_EQ(quantisation_in("a/qwen3-q4_k_m.gguf"), "Q4_K_M");
  EXPECT_EQ(quantisation_in("m-UD-IQ2_XXS-00001-of-00002.gguf"), "IQ2_XXS");
  EXPECT_EQ(quantisation_in("m-BF16.gguf"), "BF16");
  EXPECT_EQ(quantisation_in("Qwen3-Quick.gguf"), "");
}

}  // namespace
}  // namespace kapitsa::hub
