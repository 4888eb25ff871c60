// Files that are not GGUF, or lie: each must give one clear error, without a crash and without a
// large allocation.
#include "support/gguf_writer.h"
#include "weights/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

namespace kapitsa::weights {
namespace {

using test::GgufWriter;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using namespace std::string_literals;

Result<Checkpoint> read(const std::string& bytes) {
  return read_gguf(std::as_bytes(std::span(bytes)), "test.gguf");
}

std::string error_of(const std::string& bytes) {
  const auto file = read(bytes);
  return file.ok() ? "no error" : file.error().message;
}

template <typename T>
std::string raw(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof value);
}

std::string text(std::string_view value) {
  return raw(uint64_t{value.size()}) + std::string(value);
}

// Magic, version and counts.
std::string head(uint64_t n_tensors, uint64_t n_entries, uint32_t version = 3) {
  return "GGUF" + raw(version) + raw(n_tensors) + raw(n_entries);
}

std::string tensor(std::string_view name, const std::vector<int64_t>& dimensions, uint32_t type,
                   uint64_t offset) {
  std::string out = text(name) + raw(static_cast<uint32_t>(dimensions.size()));
  for (const int64_t dimension : dimensions)
    out += raw(dimension);
  return out + raw(type) + raw(offset);
}

// A file with these tensor entries and `data_bytes` bytes of data.
std::string file_with(const std::vector<std::string>& tensors, size_t data_bytes) {
  std::string out = head(tensors.size(), 0);
  for (const std::string& entry : tensors)
    out += entry;
  out.resize((out.size() + 31) / 32 * 32);
  return out + std::string(data_bytes, '\0');
}

TEST(GgufHostileTest, file_cut_at_any_byte_gives_an_error) {
  const std::vector<float> values(8, 1.0f);
  const std::string whole = GgufWriter()
                                .set("s", "text")
                                .set("list", std::vector<std::string>{"a", "bc"})
                                .set("flags", std::vector<bool>{true, false})
                                .set("n", std::vector<int32_t>{1, 2, 3})
                                .set("x", 1.5)
                                .add_f32("t", {2, 4}, values)
                                .add_f32("u", {8}, values)
                                .bytes();
  ASSERT_TRUE(read(whole).ok());
  for (size_t size = 0; size < whole.size(); ++size) {
    // A copy of exact size, so that a sanitizer sees a read past the end.
    const auto cut = read(std::string(whole, 0, size));
    ASSERT_FALSE(cut.ok()) << size;
    EXPECT_EQ(cut.error().code, ErrorCode::corrupt_file) << size;
    EXPECT_THAT(cut.error().message, AllOf(HasSubstr("test.gguf: offset "), Not(HasSubstr("\n"))));
  }
}

TEST(GgufHostileTest, every_flipped_byte_gives_a_file_or_an_error) {
  const std::vector<float> values(8, 1.0f);
  const std::string whole = GgufWriter()
                                .set("general.alignment", uint32_t{32})
                                .set("list", std::vector<std::string>{"a", "bc"})
                                .add_f32("t", {2, 4}, values)
                                .bytes();
  for (size_t i = 0; i < whole.size(); ++i) {
    for (const int flip : {0x01, 0x80, 0xFF}) {
      std::string changed = whole;
      changed[i] = static_cast<char>(changed[i] ^ flip);
      const auto file = read(changed);
      EXPECT_TRUE(file.ok() || !file.error().message.empty());
    }
  }
}

TEST(GgufHostileTest, foreign_files_are_recognised) {
  EXPECT_THAT(error_of(""), HasSubstr("expected the magic 'GGUF', found an empty file"));
  EXPECT_THAT(error_of("GG"), HasSubstr("found an unknown format"));
  EXPECT_THAT(error_of(raw(uint64_t{2}) + "{}"), HasSubstr("a safetensors file"));
  EXPECT_THAT(error_of("PK\x03\x04...."), HasSubstr("a zip archive or PyTorch checkpoint"));
  EXPECT_THAT(error_of("\x1f\x8b\x08"), HasSubstr("a gzip archive"));
  EXPECT_THAT(error_of("\n<!DOCTYPE HTML><html>"), HasSubstr("an HTML page"));
  EXPECT_THAT(error_of("<html><head>"), HasSubstr("an HTML page"));
  EXPECT_THAT(error_of("version https://git-lfs.github.com/spec/v1\n"), HasSubstr("git-LFS"));
  EXPECT_THAT(error_of("{\"error\": \"not found\"}"), HasSubstr("JSON text"));
  EXPECT_THAT(error_of("tjgg\1\0\0\0"s), HasSubstr("from before GGUF"));
  EXPECT_THAT(error_of(std::string(600, '\0')), HasSubstr("unfinished download"));
}

TEST(GgufHostileTest, other_versions_are_unsupported) {
  EXPECT_THAT(error_of(head(0, 0, 1)),
              HasSubstr("offset 4: expected GGUF version 2 or 3, found version 1"));
  EXPECT_THAT(error_of(head(0, 0, 4)), HasSubstr("found version 4"));
  EXPECT_THAT(error_of(head(0, 0, 0)), HasSubstr("found version 0"));
  EXPECT_THAT(error_of(head(0, 0, 0x03000000)), HasSubstr("found a big-endian file"));
  EXPECT_EQ(read(head(0, 0, 1)).error().code, ErrorCode::unsupported);
}

TEST(GgufHostileTest, absurd_counts_and_lengths_are_refused_before_allocation) {
  const uint64_t huge = uint64_t{1} << 62;
  EXPECT_THAT(error_of(head(0, huge)), HasSubstr("cannot hold"));
  EXPECT_THAT(error_of(head(huge, 0)), HasSubstr("cannot hold"));
  EXPECT_THAT(error_of(head(~uint64_t{0}, 0)), HasSubstr("the tensor entries"));
  EXPECT_THAT(error_of(head(0, 1) + raw(huge) + "key_padding"), HasSubstr("a metadata key"));
  const std::string pad(64, 'x');
  const std::string key = head(0, 1) + text("k");
  EXPECT_THAT(error_of(key + raw(uint32_t{8}) + raw(huge) + pad),
              HasSubstr("the value of key 'k'"));
  for (uint32_t type = 0; type <= 12; ++type) {
    if (type == 9) continue;
    EXPECT_THAT(error_of(key + raw(uint32_t{9}) + raw(type) + raw(huge) + pad),
                HasSubstr("cannot hold"))
        << type;
  }
}

TEST(GgufHostileTest, bad_metadata_values_are_named) {
  const std::string key = head(0, 1) + text("k");
  EXPECT_THAT(error_of(key + raw(uint32_t{13}) + raw(uint64_t{0})),
              HasSubstr("expected a type number in 0..12 for the value of key 'k', found 13"));
  EXPECT_THAT(error_of(key + raw(uint32_t{9}) + raw(uint32_t{77}) + raw(uint64_t{0})),
              HasSubstr("found 77"));
  EXPECT_THAT(error_of(key + raw(uint32_t{9}) + raw(uint32_t{9}) + raw(uint64_t{0})),
              HasSubstr("expected numbers or strings in the array of the value of key 'k', found "
                        "arrays"));
  EXPECT_THAT(error_of(key + raw(uint32_t{7}) + "\x02"), HasSubstr("expected 0 or 1"));
  EXPECT_THAT(error_of(GgufWriter().set("k", std::vector<uint64_t>{1, ~uint64_t{0}}).bytes()),
              HasSubstr("below 2^63"));
}

TEST(GgufHostileTest, duplicate_keys_and_names_are_refused) {
  EXPECT_THAT(error_of(GgufWriter().set("k", 1.0).set("k", "x").bytes()),
              HasSubstr("expected each metadata key once, found 'k' again"));
  const float value = 1;
  EXPECT_THAT(error_of(GgufWriter()
                           .add_f32("t", {1}, std::span(&value, 1))
                           .add_f32("t", {1}, std::span(&value, 1))
                           .bytes()),
              HasSubstr("expected each tensor name once, found 't' again"));
}

TEST(GgufHostileTest, bad_alignment_is_refused) {
  for (const uint32_t alignment : {0u, 3u, 48u, 0x80000000u}) {
    EXPECT_THAT(error_of(GgufWriter().set("general.alignment", alignment).bytes()),
                HasSubstr("key 'general.alignment': expected"))
        << alignment;
  }
}

TEST(GgufHostileTest, bad_dimensions_are_refused) {
  const int64_t big = int64_t{1} << 40;
  EXPECT_THAT(error_of(file_with({tensor("t", {4, 0}, 0, 0)}, 64)),
              HasSubstr("found 0 as dimension 2 of 2"));
  EXPECT_THAT(error_of(file_with({tensor("t", {-4}, 0, 0)}, 64)),
              HasSubstr("found 18446744073709551612"));
  EXPECT_THAT(error_of(file_with({tensor("t", {big, big}, 0, 0)}, 64)),
              HasSubstr("a product below 2^63"));
  EXPECT_THAT(error_of(file_with({tensor("t", {int64_t{1} << 61}, 0, 0)}, 64)),
              HasSubstr("less than 2^63 bytes"));
  EXPECT_THAT(error_of(file_with({tensor("t", {1, 1, 1, 1, 1}, 0, 0)}, 64)),
              HasSubstr("at most 4 dimensions of tensor 't', found 5"));
  EXPECT_THAT(error_of(file_with({tensor("t", {33}, 2, 0)}, 64)),
              HasSubstr("rows of a multiple of 32 values in tensor 't' of type q4_0"));
  EXPECT_THAT(error_of(file_with({tensor("t", {16, 2}, 2, 0)}, 64)), HasSubstr("rows of 16"));
}

TEST(GgufHostileTest, unsupported_types_are_named) {
  EXPECT_THAT(error_of(file_with({tensor("t", {256}, 15, 0)}, 64)),
              HasSubstr("tensor 't' has type Q8_K (15), which is not supported"));
  EXPECT_THAT(error_of(file_with({tensor("t", {256}, 34, 0)}, 64)), HasSubstr("TQ1_0 (34)"));
  const auto unknown = read(file_with({tensor("t", {256}, 99, 0)}, 64));
  EXPECT_EQ(unknown.error().code, ErrorCode::unsupported);
  EXPECT_THAT(unknown.error().message, HasSubstr("unknown type number 99"));
}

TEST(GgufHostileTest, misplaced_tensors_are_refused) {
  EXPECT_THAT(error_of(file_with({tensor("t", {4}, 0, 4)}, 64)),
              HasSubstr("an offset of tensor 't' that is a multiple of 32, found 4"));
  EXPECT_THAT(error_of(file_with({tensor("t", {17}, 0, 0)}, 64)),
              HasSubstr("expected 68 bytes of tensor 't', found the end of the file"));
  EXPECT_THAT(error_of(file_with({tensor("t", {4}, 0, 96)}, 64)), HasSubstr("the end of the file"));
  EXPECT_THAT(error_of(file_with({tensor("t", {4}, 0, ~uint64_t{31})}, 64)),
              HasSubstr("the end of the file"));
  EXPECT_THAT(error_of(file_with({tensor("a", {16}, 0, 0), tensor("b", {4}, 0, 32)}, 64)),
              HasSubstr("expected tensors that do not overlap, found 'b' inside 'a'"));
  EXPECT_EQ(error_of(file_with({tensor("b", {8}, 0, 32), tensor("a", {8}, 0, 0)}, 64)), "no error");
}

TEST(GgufHostileTest, control_characters_of_a_name_do_not_reach_the_message) {
  const std::string message = error_of(file_with({tensor("a\n\x1b[31m", {0}, 0, 0)}, 0));
  EXPECT_THAT(message, AllOf(HasSubstr("'a\\x0a\\x1b[31m'"), Not(HasSubstr("\n"))));
}

TEST(GgufHostileTest, folder_and_missing_file_are_errors) {
  EXPECT_EQ(read_gguf("/nonexistent/model.gguf").error().code, ErrorCode::not_found);
  EXPECT_EQ(read_gguf(::testing::TempDir()).error().code, ErrorCode::io);
}

}  // namespace
}  // namespace kapitsa::weights
