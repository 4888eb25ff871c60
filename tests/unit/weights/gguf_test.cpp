// Reading well-formed GGUF files: our own writer's, and files of the reference writer in
// tests/fuzz/corpus/gguf (tools/golden/gguf_seeds.py).
#include "support/gguf_writer.h"
#include "weights/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

namespace kapitsa::weights {
namespace {

using test::GgufWriter;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::filesystem::path kCorpus = std::filesystem::path(KAPITSA_TEST_DATA) / "fuzz/corpus/gguf";

Result<Checkpoint> read(const std::string& bytes) {
  return read_gguf(std::as_bytes(std::span(bytes)), "test.gguf");
}

std::vector<float> floats(const Tensor& tensor) {
  std::vector<float> values(tensor.data.size() / sizeof(float));
  std::memcpy(values.data(), tensor.data.data(), tensor.data.size());
  return values;
}

TEST(GgufTest, metadata_of_every_type_is_read) {
  const auto file = read_gguf(kCorpus / "metadata.gguf");
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->format(), Format::gguf);
  EXPECT_EQ(*file->string("general.architecture"), "test");
  EXPECT_EQ(*file->integer("u8"), 200);
  EXPECT_EQ(*file->integer("i8"), -100);
  EXPECT_EQ(*file->integer("u16"), 60000);
  EXPECT_EQ(*file->integer("i16"), -30000);
  EXPECT_EQ(*file->integer("u32"), 4000000000);
  EXPECT_EQ(*file->integer("i32"), -2000000000);
  EXPECT_EQ(std::get<uint64_t>(*file->value("u64")), (uint64_t{1} << 63) + 5);
  EXPECT_EQ(*file->integer("i64"), -(int64_t{1} << 62));
  EXPECT_EQ(*file->number("f32"), static_cast<double>(0.1f));
  EXPECT_EQ(*file->number("f64"), 0.1);
  EXPECT_TRUE(*file->boolean("yes"));
  EXPECT_FALSE(*file->boolean("no"));
  EXPECT_EQ(*file->string("text"), "caf\xC3\xA9\n");
  EXPECT_THAT(*file->integers("ints"), ElementsAre(3, -1, 2));
  EXPECT_THAT(*file->numbers("floats"), ElementsAre(0.5, -2.25));
  EXPECT_THAT(*file->booleans("bools"), ElementsAre(true, false, true));
  EXPECT_THAT(*file->strings("strings"), ElementsAre("a", "",
                                                     "\xC3\xBC"
                                                     "ber"));
}

TEST(GgufTest, every_supported_tensor_type_has_its_size) {
  const auto file = read_gguf(kCorpus / "types.gguf");
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->tensors().size(), 27u);
  for (const Tensor& tensor : file->tensors()) {
    const DTypeInfo& info = dtype_info(tensor.dtype);
    EXPECT_EQ(tensor.name, "t." + std::string(info.name));
    EXPECT_THAT(tensor.shape, ElementsAre(1, info.block_elements));
    EXPECT_EQ(tensor.data.size(), static_cast<size_t>(info.block_bytes));
  }
}

TEST(GgufTest, shape_is_outermost_first_and_data_is_in_place) {
  const std::vector<float> values = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  const std::string bytes = GgufWriter()
                                .add_f32("a", {3}, std::span(values).first(3))
                                .add_f32("b", {2, 3, 2}, values)
                                .bytes();
  const auto file = read(bytes);
  ASSERT_TRUE(file.ok()) << file.error().message;
  const Tensor* b = file->find("b");
  ASSERT_NE(b, nullptr);
  EXPECT_THAT(b->shape, ElementsAre(2, 3, 2));
  EXPECT_EQ(b->n_elements(), 12);
  EXPECT_EQ(floats(*b), values);
  EXPECT_GE(reinterpret_cast<const char*>(b->data.data()), bytes.data());
  EXPECT_LE(reinterpret_cast<const char*>(b->data.data() + b->data.size()),
            bytes.data() + bytes.size());
}

TEST(GgufTest, version_2_reads_like_version_3) {
  const auto file = read(GgufWriter(2).set("k", "v").bytes());
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(*file->string("k"), "v");
}

TEST(GgufTest, alignment_of_the_file_moves_the_data) {
  const float value = 2.5f;
  const std::string bytes =
      GgufWriter().set_alignment(256).add_f32("t", {1}, std::span(&value, 1)).bytes();
  const auto file = read(bytes);
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_THAT(floats(*file->find("t")), ElementsAre(2.5f));
}

TEST(GgufTest, tensor_without_dimensions_is_one_value) {
  const float value = 2.5f;
  const std::string bytes = GgufWriter().add_f32("t", {}, std::span(&value, 1)).bytes();
  const auto file = read(bytes);
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->find("t")->n_elements(), 1);
  EXPECT_THAT(floats(*file->find("t")), ElementsAre(2.5f));
}

TEST(GgufTest, file_without_tensors_may_end_at_its_header) {
  const auto metadata_only = read("GGUF" + std::string("\3\0\0\0", 4) + std::string(16, '\0'));
  ASSERT_TRUE(metadata_only.ok()) << metadata_only.error().message;
  EXPECT_TRUE(metadata_only->tensors().empty());
}

TEST(GgufTest, any_shard_opens_the_whole_model) {
  for (const char* name : {"split-00001-of-00003.gguf", "split-00003-of-00003.gguf"}) {
    const auto file = read_gguf(kCorpus / name);
    ASSERT_TRUE(file.ok()) << file.error().message;
    ASSERT_EQ(file->tensors().size(), 3u);
    EXPECT_EQ(*file->string("general.architecture"), "test");
    EXPECT_THAT(*file->strings("strings"), ElementsAre("one", "two"));
    EXPECT_EQ(file->path(), kCorpus / name);
    EXPECT_THAT(file->find("t2")->shape, ElementsAre(2, 3));
    EXPECT_THAT(floats(*file->find("t2")), ::testing::Each(2.0f));
  }
}

class GgufShardTest : public ::testing::Test {
protected:
  void SetUp() override {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ =
        std::filesystem::path(::testing::TempDir()) / (std::string("kapitsa_") + info->name());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // Shard `number` (from 1) of `count`, holding one tensor.
  std::filesystem::path write(int number, int count, uint16_t split_no, const char* tensor) {
    const float value = 1;
    const auto path = folder_ / ("m-0000" + std::to_string(number) + "-of-0000" +
                                 std::to_string(count) + ".gguf");
    GgufWriter()
        .set("split.no", split_no)
        .set("split.count", static_cast<uint16_t>(count))
        .set("split.tensors.count", int32_t{2})
        .add_f32(tensor, {1}, std::span(&value, 1))
        .write(path);
    return path;
  }

  std::filesystem::path folder_;
};

TEST_F(GgufShardTest, missing_shard_is_named) {
  const auto path = write(1, 2, 0, "a");
  const auto file = read_gguf(path);
  EXPECT_EQ(file.error().code, ErrorCode::not_found);
  EXPECT_THAT(file.error().message, HasSubstr("m-00002-of-00002.gguf: cannot open"));
}

TEST_F(GgufShardTest, shard_with_another_number_is_refused) {
  write(2, 2, 0, "b");
  const auto file = read_gguf(write(1, 2, 0, "a"));
  EXPECT_THAT(file.error().message,
              HasSubstr("m-00002-of-00002.gguf: key 'split.no': expected an integer in 1..1, found "
                        "the integer 0"));
}

TEST_F(GgufShardTest, tensor_in_two_shards_is_refused) {
  write(2, 2, 1, "a");
  const auto file = read_gguf(write(1, 2, 0, "a"));
  EXPECT_THAT(file.error().message, HasSubstr("expected each tensor in one shard, found 'a'"));
}

TEST_F(GgufShardTest, wrong_total_is_refused) {
  write(2, 3, 1, "b");
  write(3, 3, 2, "c");
  const auto file = read_gguf(write(1, 3, 0, "a"));
  EXPECT_THAT(file.error().message, HasSubstr("expected 2 tensors in all shards"));
}

TEST_F(GgufShardTest, renamed_shard_asks_for_its_name) {
  const auto path = write(1, 2, 0, "a");
  std::filesystem::rename(path, folder_ / "renamed.gguf");
  const auto file = read_gguf(folder_ / "renamed.gguf");
  EXPECT_THAT(file.error().message,
              HasSubstr("-00001-of-00002.gguf, because the file is one of 2"));
}

}  // namespace
}  // namespace kapitsa::weights
