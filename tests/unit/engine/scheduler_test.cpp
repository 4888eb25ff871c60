// The scheduling policy: decoding never waits for more than one piece of a prompt, prompts take
// turns, and nothing starves.
#include "engine/scheduler.h"
#include "plan/pass.h"

#include <gtest/gtest.h>

#include <map>

namespace kapitsa::engine {
namespace {

TEST(Scheduler, nothing_live_plans_nothing) {
  Turn turn;
  plan_turn({}, 8, turn);
  EXPECT_TRUE(turn.decode.empty());
  EXPECT_EQ(turn.prefill, -1);
}

TEST(Scheduler, every_decoding_sequence_gets_a_row_each_turn) {
  const std::vector<Candidate> live = {{0, 0, 5}, {1, 0, 5}, {2, 0, 5}};
  Turn turn;
  plan_turn(live, 8, turn);
  EXPECT_EQ(turn.decode, (std::vector<int32_t>{0, 1, 2}));
  EXPECT_EQ(turn.prefill, -1);
}

TEST(Scheduler, a_prompt_alone_is_read_in_long_pieces) {
  const std::vector<Candidate> live = {{0, 2000, 0}};
  Turn turn;
  plan_turn(live, 8, turn);
  EXPECT_EQ(turn.prefill, 0);
  EXPECT_EQ(turn.prefill_rows, kPrefillRows);
}

TEST(Scheduler, a_prompt_beside_decoding_is_read_in_short_pieces) {
  const std::vector<Candidate> live = {{0, 0, 0}, {1, 2000, 0}};
  Turn turn;
  plan_turn(live, 8, turn);
  EXPECT_EQ(turn.decode, (std::vector<int32_t>{0}));
  EXPECT_EQ(turn.prefill, 1);
  EXPECT_EQ(turn.prefill_rows, kSharedPrefillRows);
}

TEST(Scheduler, the_last_piece_is_what_is_left) {
  const std::vector<Candidate> live = {{0, 17, 0}};
  Turn turn;
  plan_turn(live, 8, turn);
  EXPECT_EQ(turn.prefill_rows, 17);
}

TEST(Scheduler, prompts_take_turns) {
  std::vector<Candidate> live = {{0, 100000, 0}, {1, 100000, 0}, {2, 100000, 0}};
  std::map<int32_t, int> served;
  Turn turn;
  for (int64_t now = 1; now <= 30; ++now) {
    plan_turn(live, 8, turn);
    ASSERT_GE(turn.prefill, 0);
    served[turn.prefill] += 1;
    live[static_cast<size_t>(turn.prefill)].last_served = now;
  }
  EXPECT_EQ(served[0], 10);
  EXPECT_EQ(served[1], 10);
  EXPECT_EQ(served[2], 10);
}

TEST(Scheduler, more_streams_than_rows_are_served_in_rotation) {
  std::vector<Candidate> live;
  for (int32_t i = 0; i < 5; ++i)
    live.push_back({i, 0, 0});
  std::map<int32_t, int> served;
  Turn turn;
  int64_t now = 0;
  for (int turns = 0; turns < 50; ++turns) {
    plan_turn(live, 2, turn);
    ASSERT_EQ(turn.decode.size(), 2U);
    for (const int32_t index : turn.decode) {
      served[index] += 1;
      live[static_cast<size_t>(index)].last_served = ++now;
    }
  }
  for (int32_t i = 0; i < 5; ++i)
    EXPECT_EQ(served[i], 20) << i;
}

TEST(Scheduler, pieces_end_on_the_grid_unless_they_end_the_prompt) {
  for (const int32_t left : {1, 63, 64, 65, 127, 129, 500, 513, 5000}) {
    for (const bool shared : {false, true}) {
      std::vector<Candidate> live = {{0, left, 0}};
      if (shared) live.push_back({1, 0, 0});
      Turn turn;
      plan_turn(live, 8, turn);
      EXPECT_TRUE(turn.prefill_rows % plan::kGrid == 0 || turn.prefill_rows == left) << left;
      EXPECT_GT(turn.prefill_rows, 0);
    }
  }
}

}  // namespace
}  // namespace kapitsa::engine
