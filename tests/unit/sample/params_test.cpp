#include "sample/params.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

namespace kapitsa::sample {
namespace {

std::string fault(const SamplerParams& params) {
  const Status status = validate(params, 1000);
  return status ? "" : status.error().message;
}

TEST(SamplerParams, defaults_and_limits_are_valid) {
  EXPECT_EQ(fault({}), "");
  EXPECT_EQ(fault({.temperature = 0, .top_p = 0, .min_p = 1, .penalty_window = 0}), "");
  EXPECT_EQ(fault({.temperature = 2, .frequency_penalty = -2, .presence_penalty = 2}), "");
  EXPECT_EQ(fault({.logit_bias = {{0, -100.0f}, {999, 100.0f}}, .n_logprobs = 20}), "");
}

TEST(SamplerParams, an_error_names_field_range_and_value) {
  EXPECT_EQ(fault({.temperature = -1}), "temperature: expected 0 or a number from 0.0001 to 100, "
                                        "found -1");
  EXPECT_EQ(fault({.top_k = -5}), "top_k: expected 0 (off) or more, found -5");
  EXPECT_EQ(fault({.top_p = 1.5f}), "top_p: expected a number from 0 to 1, found 1.5");
  EXPECT_EQ(fault({.min_p = -0.5f}), "min_p: expected a number from 0 to 1, found -0.5");
  EXPECT_EQ(fault({.logit_bias = {{1000, 1.0f}}}),
            "logit_bias: expected token ids from 0 to 999, found 1000");
  EXPECT_EQ(fault({.logit_bias = {{7, 101.0f}}}),
            "logit_bias of token 7: expected a number from -100 to 100, found 101");
}

TEST(SamplerParams, every_other_field_is_checked) {
  EXPECT_TRUE(fault({.temperature = 1e-5f}).starts_with("temperature"));
  EXPECT_TRUE(fault({.repetition_penalty = 0}).starts_with("repetition_penalty"));
  EXPECT_TRUE(fault({.frequency_penalty = 2.1f}).starts_with("frequency_penalty"));
  EXPECT_TRUE(fault({.presence_penalty = -2.1f}).starts_with("presence_penalty"));
  EXPECT_TRUE(fault({.penalty_window = -2}).starts_with("penalty_window"));
  EXPECT_TRUE(fault({.n_logprobs = 129}).starts_with("top_logprobs"));
}

TEST(SamplerParams, nan_and_infinity_are_refused) {
  EXPECT_NE(fault({.temperature = NAN}), "");
  EXPECT_NE(fault({.temperature = INFINITY}), "");
  EXPECT_NE(fault({.top_p = NAN}), "");
  EXPECT_NE(fault({.min_p = NAN}), "");
  EXPECT_NE(fault({.repetition_penalty = NAN}), "");
  EXPECT_NE(fault({.logit_bias = {{0, NAN}}}), "");
}

}  // namespace
}  // namespace kapitsa::sample
