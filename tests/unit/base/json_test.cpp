// Reading JSON with limits: errors carry the source and the offset.
#include "base/json.h"

#include <boost/json.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace kapitsa {
namespace {

using ::testing::HasSubstr;

TEST(JsonTest, valid_text_gives_its_value) {
  const auto value = parse_json(" {\"a\": [1, 2.5, null, true, \"x\"]}\n", "t.json");
  ASSERT_TRUE(value.ok()) << value.error().message;
  const auto& array = value->as_object().at("a").as_array();
  EXPECT_EQ(array[0].as_int64(), 1);
  EXPECT_EQ(array[1].as_double(), 2.5);
  EXPECT_TRUE(array[2].is_null());
}

TEST(JsonTest, error_names_source_and_offset) {
  const auto value = parse_json("{\"a\": x}", "t.json");
  ASSERT_FALSE(value.ok());
  EXPECT_EQ(value.error().code, ErrorCode::corrupt_file);
  EXPECT_THAT(value.error().message, HasSubstr("t.json: offset 6: expected valid JSON"));
}

TEST(JsonTest, text_cut_at_any_byte_is_an_error) {
  const std::string text = "{\"a\": [1, \"\\u00e9\", -2.5e3]}";
  for (size_t size = 0; size < text.size(); ++size)
    EXPECT_FALSE(parse_json(std::string(text, 0, size), "t.json").ok()) << size;
}

TEST(JsonTest, text_after_the_end_is_an_error) {
  EXPECT_THAT(parse_json("{} {}", "t").error().message, HasSubstr("offset 3"));
  EXPECT_TRUE(parse_json("{} \r\n\t", "t").ok());
}

TEST(JsonTest, a_repeated_key_is_refused_where_asked_for) {
  const JsonLimits unique{.unique_keys = true};
  EXPECT_TRUE(
      parse_json(R"({"a": {"a": [{"a": 1}, {"a": ":"}]}, "b:": "\\\":"})", "t", unique).ok());
  EXPECT_THAT(parse_json(R"({"b": {"a": 1, "c": "\"", "a" : 2}})", "t", unique).error().message,
              HasSubstr("t: offset 26: expected each key of an object once, found 'a' again"));
  EXPECT_FALSE(parse_json(R"([{"a": 1, "\u0061": 2}])", "t", unique).ok());
  EXPECT_TRUE(parse_json(R"({"a": 1, "a": 2})", "t").ok());
}

TEST(JsonTest, depth_and_size_are_limited) {
  const std::string deep = std::string(100, '[') + std::string(100, ']');
  EXPECT_FALSE(parse_json(deep, "t").ok());
  EXPECT_TRUE(parse_json(deep, "t", {.max_depth = 100}).ok());
  EXPECT_FALSE(parse_json(std::string(1'000'000, '['), "t").ok());
  const auto large = parse_json("[1, 2, 3]", "t", {.max_bytes = 8});
  EXPECT_EQ(large.error().code, ErrorCode::unsupported);
}

TEST(JsonTest, invalid_utf8_and_bad_escapes_are_errors) {
  EXPECT_FALSE(parse_json("\"\xFF\"", "t").ok());
  EXPECT_FALSE(parse_json("\"\\ud800\"", "t").ok());
  EXPECT_FALSE(parse_json("\"a\nb\"", "t").ok());
}

}  // namespace
}  // namespace kapitsa
