// Reading safetensors: files made here byte by byte, well-formed and hostile.
#include "support/safetensors_writer.h"
#include "weights/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

namespace kapitsa::weights {
namespace {

using test::safetensors_bytes;
using test::SafetensorsWriter;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// The checkpoint that `bytes` give, or the error.
Result<Checkpoint> read(const std::string& bytes) {
  Checkpoint checkpoint(Format::hf, "test");
  KAPITSA_TRY(add_safetensors(std::as_bytes(std::span(bytes)), "test.safetensors", checkpoint));
  return checkpoint;
}

std::string error_of(const std::string& bytes) {
  const auto file = read(bytes);
  return file.ok() ? "no error" : file.error().message;
}

// A file with one tensor `t` whose description is `entry`, and 64 bytes of data.
std::string with_entry(std::string_view entry) {
  return safetensors_bytes("{\"t\":" + std::string(entry) + "}", std::string(64, '\1'));
}

TEST(SafetensorsTest, tensors_have_shape_type_and_data) {
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  const std::string bytes =
      SafetensorsWriter()
          .add("a", DType::f32, {2, 3}, std::as_bytes(std::span(values)))
          .add("scalar", DType::f32, {}, std::as_bytes(std::span(values).first(1)))
          .metadata("format", "pt")
          .bytes();
  const auto file = read(bytes);
  ASSERT_TRUE(file.ok()) << file.error().message;
  const Tensor* a = file->find("a");
  ASSERT_NE(a, nullptr);
  EXPECT_EQ(a->dtype, DType::f32);
  EXPECT_THAT(a->shape, ElementsAre(2, 3));
  EXPECT_EQ(std::memcmp(a->data.data(), values.data(), 24), 0);
  EXPECT_TRUE(file->find("scalar")->shape.empty());
  EXPECT_EQ(*file->string("__metadata__.format"), "pt");
}

TEST(SafetensorsTest, file_of_the_reference_writer_is_read) {
  Checkpoint checkpoint(Format::hf, "test");
  const auto path = std::filesystem::path(KAPITSA_TEST_DATA) /
                    "fuzz/corpus/safetensors/module.safetensors";  // safetensors_seeds.py
  const Status added = add_safetensors(path, checkpoint);
  ASSERT_TRUE(added.ok()) << added.error().message;
  EXPECT_EQ(checkpoint.tensors().size(), 5u);
  EXPECT_THAT(checkpoint.find("m.weight")->shape, ElementsAre(2, 16));
  int64_t scalar = 0;
  ASSERT_EQ(checkpoint.find("scalar")->data.size(), sizeof scalar);
  std::memcpy(&scalar, checkpoint.find("scalar")->data.data(), sizeof scalar);
  EXPECT_EQ(scalar, 5);
  EXPECT_EQ(*checkpoint.string("__metadata__.format"), "mlx");
}

TEST(SafetensorsTest, every_type_name_is_known_or_named) {
  const std::pair<const char*, int> types[] = {
      {"F64", 8}, {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"I64", 8},     {"I32", 4},    {"I16", 2},
      {"I8", 1},  {"U8", 1},  {"U32", 4}, {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}};
  for (const auto& [name, bytes] : types) {
    const auto file = read(with_entry("{\"dtype\":\"" + std::string(name) + "\",\"shape\":[" +
                                      std::to_string(64 / bytes) + "],\"data_offsets\":[0,64]}"));
    EXPECT_TRUE(file.ok()) << name << ": " << file.error().message;
  }
  const auto other = read(with_entry(R"({"dtype":"C64","shape":[2],"data_offsets":[0,16]})"));
  EXPECT_EQ(other.error().code, ErrorCode::unsupported);
  EXPECT_THAT(other.error().message, HasSubstr("tensor 't': expected a type that this build reads, "
                                               "found 'C64'"));
}

TEST(SafetensorsTest, file_cut_at_any_byte_gives_an_error) {
  const std::vector<float> values(6, 1.0f);
  const std::string whole = SafetensorsWriter()
                                .add("a", DType::f32, {6}, std::as_bytes(std::span(values)))
                                .metadata("format", "pt")
                                .bytes();
  ASSERT_TRUE(read(whole).ok());
  for (size_t size = 0; size < whole.size(); ++size) {
    const auto cut = read(std::string(whole, 0, size));
    ASSERT_FALSE(cut.ok()) << size;
    EXPECT_THAT(cut.error().message, AllOf(HasSubstr("test.safetensors: "), Not(HasSubstr("\n"))));
  }
}

TEST(SafetensorsTest, bad_headers_are_refused) {
  const uint64_t huge = uint64_t{1} << 60;
  std::string bytes(reinterpret_cast<const char*>(&huge), sizeof huge);
  EXPECT_THAT(error_of(bytes + "{}"), HasSubstr("for the header"));
  EXPECT_THAT(error_of(safetensors_bytes("[]", "")), HasSubstr("expected a safetensors header"));
  EXPECT_THAT(error_of(safetensors_bytes("{\"a\":", "")), HasSubstr("expected valid JSON"));
  EXPECT_THAT(error_of(safetensors_bytes("{\"a\":[[[[[]]]]]}", "")), HasSubstr("valid JSON"));
  EXPECT_THAT(error_of("GGUF\3\0\0\0........"), HasSubstr("found a GGUF file"));
  EXPECT_THAT(error_of("<html>"), HasSubstr("an HTML page"));
}

TEST(SafetensorsTest, bad_tensor_entries_are_refused) {
  const auto refused = [](std::string_view entry, std::string_view reason) {
    EXPECT_THAT(error_of(with_entry(entry)),
                AllOf(HasSubstr("tensor 't'"), HasSubstr(std::string(reason))))
        << entry;
  };
  refused("3", "as a JSON object");
  refused("{}", "a string 'dtype'");
  refused(R"({"dtype":7})", "a string 'dtype'");
  refused(R"({"dtype":"F32"})", "'shape'");
  refused(R"({"dtype":"F32","shape":[1.5],"data_offsets":[0,4]})", "'shape'");
  refused(R"({"dtype":"F32","shape":[-1],"data_offsets":[0,4]})", "'shape'");
  refused(R"({"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,4]})", "'shape'");
  refused(R"({"dtype":"F32","shape":[0],"data_offsets":[0,0]})", "dimensions of at least 1");
  refused(R"({"dtype":"F32","shape":[9223372036854775807,2],"data_offsets":[0,4]})", "2^63");
  refused(R"({"dtype":"F32","shape":[9223372036854775807],"data_offsets":[0,4]})",
          "2^63 bytes of data");
  refused(R"({"dtype":"F32","shape":[1]})", "'data_offsets'");
  refused(R"({"dtype":"F32","shape":[1],"data_offsets":[0]})", "a begin and an end");
  refused(R"({"dtype":"F32","shape":[1],"data_offsets":[4,0]})", "a begin and an end");
  refused(R"({"dtype":"F32","shape":[1],"data_offsets":[0,8]})", "expected 4 bytes of data");
  refused(R"({"dtype":"F32","shape":[17],"data_offsets":[0,68]})", "truncated download?");
  refused(R"({"dtype":"F32","shape":[1],"data_offsets":[0,18446744073709551615]})",
          "'data_offsets'");
}

TEST(SafetensorsTest, tensors_cover_the_data_without_overlaps_and_gaps) {
  const auto two = [](int begin, size_t n_data = 20) {
    return safetensors_bytes(R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]},)"
                             R"("b":{"dtype":"F32","shape":[1],"data_offsets":[)" +
                                 std::to_string(begin) + "," + std::to_string(begin + 4) + "]}}",
                             std::string(n_data, '\0'));
  };
  EXPECT_THAT(error_of(two(12)),
              HasSubstr("tensor 'b': expected no overlap with another tensor, found bytes of 'a'"));
  EXPECT_EQ(error_of(two(16)), "no error");
  EXPECT_THAT(error_of(two(20, 24)),
              HasSubstr("tensor 'b': expected its data at 16 where the data before ends, found it "
                        "at 20"));
  EXPECT_THAT(error_of(two(16, 27)),
              HasSubstr("expected 20 bytes of data as the header says, found 7 more"));
  EXPECT_THAT(error_of(with_entry(R"({"dtype":"F32","shape":[15],"data_offsets":[4,64]})")),
              HasSubstr("tensor 't': expected its data at 0"));
  EXPECT_THAT(error_of(safetensors_bytes("{}", "x")), HasSubstr("found 1 more"));
}

TEST(SafetensorsTest, repeated_entries_are_refused) {
  const std::string t = R"("t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  EXPECT_THAT(error_of(safetensors_bytes("{" + t + "," + t + "}", std::string(4, '\0'))),
              HasSubstr("expected each key of an object once, found 't' again"));
  EXPECT_THAT(error_of(with_entry(R"({"dtype":"F32","dtype":"F16"})")),
              HasSubstr("found 'dtype' again"));
}

TEST(SafetensorsTest, tensor_of_two_files_is_refused) {
  const float value = 1;
  const std::string bytes =
      SafetensorsWriter().add("t", DType::f32, {1}, std::as_bytes(std::span(&value, 1))).bytes();
  Checkpoint checkpoint(Format::hf, "test");
  ASSERT_TRUE(add_safetensors(std::as_bytes(std::span(bytes)), "1", checkpoint).ok());
  EXPECT_THAT(add_safetensors(std::as_bytes(std::span(bytes)), "2", checkpoint).error().message,
              HasSubstr("expected each tensor in one file, found 't'"));
}

}  // namespace
}  // namespace kapitsa::weights
