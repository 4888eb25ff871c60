// Writing JSON: what is written reads back as what was meant, whatever the bytes.
#include "base/json.h"
#include "base/json_write.h"

#include <boost/json.hpp>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace kapitsa {
namespace {

boost::json::value read(const std::string& text) {
  auto value = parse_json(text, "written");
  EXPECT_TRUE(value.ok()) << value.error().message << "\n" << text;
  return value.ok() ? std::move(*value) : boost::json::value();
}

TEST(JsonWriter, nested_values_on_one_line) {
  JsonWriter json;
  json.begin_object().member("a", 1).key("b").begin_array().value("x").value(true).null();
  json.begin_object().end_object().begin_array().end_array().end_array();
  json.member("c", 2.5).end_object();
  EXPECT_EQ(json.take(), R"({"a":1,"b":["x",true,null,{},[]],"c":2.5})");
}

TEST(JsonWriter, indentation_changes_the_layout_and_not_the_value) {
  JsonWriter json(2);
  json.begin_object().member("a", 1).key("b").begin_array().value(2).end_array();
  json.key("c").begin_object().end_object().end_object();
  const std::string text = json.take();
  EXPECT_EQ(text, "{\n  \"a\": 1,\n  \"b\": [\n    2\n  ],\n  \"c\": {}\n}");
}

TEST(JsonWriter, strings_of_every_byte_stay_valid_and_valid_text_is_kept) {
  std::string controls;
  for (int c = 0; c < 128; ++c)
    controls += static_cast<char>(c);
  const std::string kept = controls + "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80";
  EXPECT_EQ(read(json_string(kept)).as_string(), kept);

  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    std::string bytes;
    for (auto i = random() % 12; i > 0; --i)
      bytes += static_cast<char>(random() % 4 == 0 ? random() % 128 : 128 + random() % 128);
    EXPECT_TRUE(read(json_string(bytes)).is_string());
  }
}

TEST(JsonWriter, each_broken_sequence_becomes_one_replacement) {
  EXPECT_EQ(json_string("a\xFFz"), "\"a\xEF\xBF\xBDz\"");
  EXPECT_EQ(json_string("\xE2\x82"), "\"\xEF\xBF\xBD\"");              // cut off
  EXPECT_EQ(json_string("\xE2\x82z"), "\"\xEF\xBF\xBDz\"");            // the next byte is its own
  EXPECT_EQ(json_string("\xC0\x80"), "\"\xEF\xBF\xBD\xEF\xBF\xBD\"");  // overlong
  EXPECT_EQ(json_string("\xED\xA0\x80").size(), 2U + 3U * 3U);         // a surrogate
}

TEST(JsonWriter, numbers_read_back_as_the_same_number) {
  const auto round_trip = [](auto number) {
    JsonWriter json;
    json.begin_array().value(number).end_array();
    return read(json.take()).as_array().at(0);
  };
  for (const double number : {0.1, 1.0 / 3.0, 5e-324, 1.7976931348623157e308, -0.0, 1e21, 123456.0})
    EXPECT_EQ(round_trip(number).to_number<double>(), number);
  EXPECT_EQ(round_trip(std::numeric_limits<int64_t>::min()).as_int64(),
            std::numeric_limits<int64_t>::min());
  EXPECT_EQ(round_trip(std::numeric_limits<uint64_t>::max()).as_uint64(),
            std::numeric_limits<uint64_t>::max());
  EXPECT_TRUE(round_trip(std::nan("")).is_null());
  EXPECT_TRUE(round_trip(HUGE_VAL).is_null());
}

TEST(JsonWriterDeathTest, a_value_without_its_key_aborts) {
  EXPECT_DEATH(JsonWriter().begin_object().value(1), "needs a key");
  EXPECT_DEATH(JsonWriter().begin_object().end_array(), "out of place");
}

}  // namespace
}  // namespace kapitsa
