// Typed metadata lookups, their conversions and their error messages, and the tensor index.
#include "weights/checkpoint.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace kapitsa::weights {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class CheckpointTest : public ::testing::Test {
protected:
  Checkpoint checkpoint_{Format::gguf, "model.gguf"};
};

TEST_F(CheckpointTest, integer_in_range_is_returned) {
  checkpoint_.set("n", int64_t{30});
  EXPECT_EQ(*checkpoint_.integer("n"), 30);
  EXPECT_EQ(*checkpoint_.integer("n", 30, 30), 30);
}

TEST_F(CheckpointTest, integer_error_names_file_key_expected_and_found) {
  checkpoint_.set("n", int64_t{300});
  checkpoint_.set("text", std::string("a\nb"));
  EXPECT_EQ(checkpoint_.integer("n", 1, 256).error().message,
            "model.gguf: key 'n': expected an integer in 1..256, found the integer 300");
  EXPECT_EQ(checkpoint_.integer("n", 301).error().message,
            "model.gguf: key 'n': expected an integer of at least 301, found the integer 300");
  EXPECT_EQ(checkpoint_.integer("text").error().message,
            "model.gguf: key 'text': expected an integer, found the string 'a\\x0ab'");
  EXPECT_EQ(checkpoint_.integer("absent", 1).error().message,
            "model.gguf: key 'absent': expected an integer of at least 1, found no such key");
}

TEST_F(CheckpointTest, integer_beyond_64_bits_signed_is_refused_but_is_a_number) {
  checkpoint_.set("big", std::numeric_limits<uint64_t>::max());
  EXPECT_THAT(checkpoint_.integer("big").error().message, HasSubstr("18446744073709551615"));
  EXPECT_EQ(*checkpoint_.number("big"), 18446744073709551615.0);
}

TEST_F(CheckpointTest, number_takes_integers_and_refuses_nan_and_infinity) {
  checkpoint_.set("theta", int64_t{10000});
  checkpoint_.set("nan", std::numeric_limits<double>::quiet_NaN());
  checkpoint_.set("inf", std::numeric_limits<double>::infinity());
  checkpoint_.set("half", 0.5);
  EXPECT_EQ(*checkpoint_.number("theta"), 10000.0);
  EXPECT_EQ(*checkpoint_.number("half", 0, 1), 0.5);
  EXPECT_FALSE(checkpoint_.number("half", 0.6).ok());
  EXPECT_FALSE(checkpoint_.number("nan").ok());
  EXPECT_FALSE(checkpoint_.number("inf").ok());
}

TEST_F(CheckpointTest, floating_point_value_is_no_integer) {
  checkpoint_.set("x", 3.0);
  EXPECT_THAT(checkpoint_.integer("x").error().message, HasSubstr("found the number 3"));
}

TEST_F(CheckpointTest, fallback_serves_an_absent_key_but_not_a_wrong_one) {
  checkpoint_.set("n", int64_t{7});
  checkpoint_.set("s", std::string("x"));
  EXPECT_EQ(*checkpoint_.integer_or("absent", 5), 5);
  EXPECT_EQ(*checkpoint_.integer_or("n", 5), 7);
  EXPECT_FALSE(checkpoint_.integer_or("n", 5, 0, 6).ok());
  EXPECT_FALSE(checkpoint_.integer_or("s", 5).ok());
  EXPECT_EQ(*checkpoint_.number_or("absent", 0.25), 0.25);
  EXPECT_EQ(*checkpoint_.boolean_or("absent", true), true);
  EXPECT_EQ(*checkpoint_.string_or("absent", "silu"), "silu");
  EXPECT_EQ(*checkpoint_.string_or("s", "silu"), "x");
  EXPECT_FALSE(checkpoint_.boolean_or("n", true).ok());
}

TEST_F(CheckpointTest, arrays_are_checked_element_by_element) {
  checkpoint_.set("a", std::vector<int64_t>{1, 2, 99});
  EXPECT_THAT(*checkpoint_.integers("a"), ElementsAre(1, 2, 99));
  EXPECT_EQ(checkpoint_.integers("a", 0, 50).error().message,
            "model.gguf: key 'a': expected an array of integers in 0..50, found 99 at index 2");
  EXPECT_THAT(*checkpoint_.numbers("a"), ElementsAre(1.0, 2.0, 99.0));
}

TEST_F(CheckpointTest, single_value_counts_as_an_array_of_one) {
  checkpoint_.set("eos", int64_t{2});
  checkpoint_.set("name", std::string("x"));
  checkpoint_.set("flag", true);
  checkpoint_.set("scale", 0.5);
  EXPECT_THAT(*checkpoint_.integers("eos"), ElementsAre(2));
  EXPECT_THAT(*checkpoint_.strings("name"), ElementsAre("x"));
  EXPECT_THAT(*checkpoint_.booleans("flag"), ElementsAre(true));
  EXPECT_THAT(*checkpoint_.numbers("scale"), ElementsAre(0.5));
}

TEST_F(CheckpointTest, empty_array_has_every_type) {
  checkpoint_.set("none", StringList{});
  EXPECT_THAT(*checkpoint_.integers("none"), IsEmpty());
  EXPECT_THAT(*checkpoint_.numbers("none"), IsEmpty());
  EXPECT_THAT(*checkpoint_.booleans("none"), IsEmpty());
  EXPECT_THAT(*checkpoint_.strings("none"), IsEmpty());
}

TEST_F(CheckpointTest, empty_string_is_no_empty_array) {
  checkpoint_.set("text", std::string());
  EXPECT_FALSE(checkpoint_.integers("text").ok());
  EXPECT_THAT(*checkpoint_.strings("text"), ElementsAre(""));
}

TEST_F(CheckpointTest, per_layer_value_is_one_for_all_or_one_each) {
  checkpoint_.set("one", int64_t{8});
  checkpoint_.set("each", std::vector<int64_t>{8, 0, 4});
  EXPECT_THAT(*checkpoint_.integer_per_layer("one", 3), ElementsAre(8, 8, 8));
  EXPECT_THAT(*checkpoint_.integer_per_layer("each", 3), ElementsAre(8, 0, 4));
  EXPECT_THAT(checkpoint_.integer_per_layer("each", 4).error().message,
              HasSubstr("an array of 4, one for each layer, found an array of 3 integers"));
  EXPECT_FALSE(checkpoint_.integer_per_layer("each", 3, 1).ok());
  EXPECT_FALSE(checkpoint_.integer_per_layer("absent", 3).ok());
}

TEST_F(CheckpointTest, string_list_keeps_empty_and_long_strings) {
  StringList list;
  const std::string long_text(1000, 'x');
  list.push_back("");
  list.push_back(long_text);
  list.push_back("");
  list.push_back("end");
  checkpoint_.set("tokens", std::move(list));
  EXPECT_THAT(*checkpoint_.strings("tokens"), ElementsAre("", long_text, "", "end"));
}

TEST_F(CheckpointTest, second_value_of_a_key_and_second_tensor_of_a_name_are_refused) {
  EXPECT_TRUE(checkpoint_.set("n", int64_t{1}));
  EXPECT_FALSE(checkpoint_.set("n", int64_t{2}));
  EXPECT_EQ(*checkpoint_.integer("n"), 1);
  EXPECT_TRUE(checkpoint_.add({"w", DType::f32, {2}, {}}));
  EXPECT_FALSE(checkpoint_.add({"w", DType::f32, {3}, {}}));
  EXPECT_EQ(checkpoint_.tensors().size(), 1u);
}

TEST_F(CheckpointTest, tensors_are_found_after_a_move) {
  for (int i = 0; i < 100; ++i)
    checkpoint_.add({fmt::format("t{}", i), DType::f32, {i + 1}, {}});
  const Checkpoint moved = std::move(checkpoint_);
  Checkpoint assigned(Format::hf, "other");
  EXPECT_EQ(moved.find("t42")->shape[0], 43);
  EXPECT_EQ(moved.find("t100"), nullptr);
  EXPECT_EQ(assigned.find("t42"), nullptr);
}

}  // namespace
}  // namespace kapitsa::weights
