// The cases of the self-test: an op each, in a Plan of its own with made-up weights. Small and
// quick; the tests of the project go far deeper.
#pragma once

#include "plan/plan.h"

#include <deque>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace kapitsa::engine {

inline constexpr int32_t kSelfTestVocab = 16;  // tokens 0..15

// A Plan with one tested op and the memory that its weights point to.
class TestPlan {
public:
  TestPlan();
  TestPlan(const TestPlan&) = delete;
  TestPlan& operator=(const TestPlan&) = delete;

  plan::Plan plan;
  std::vector<plan::BufferId> outputs;  // compared

  // (rows, width); the row's token chooses its values.
  plan::BufferId input(int64_t width, float low = -1.0F, float high = 1.0F);
  plan::BufferId output(int64_t width, DType dtype = DType::f32);
  plan::BufferId buffer(int64_t width, DType dtype = DType::f32);
  plan::WeightId matrix(int64_t out, int64_t in, DType dtype = DType::f32, int64_t experts = 1);
  plan::WeightId vector(int64_t n, float low = 0.5F, float high = 1.5F);
  plan::StateId cache(int64_t width, DType dtype);
  plan::Recurrent memory(int64_t state_width, int64_t tape_width);

private:
  plan::WeightId weight(std::span<const float> values, int64_t out, int64_t in, DType dtype,
                        int64_t experts);
  float uniform(float low, float high);
  std::string name(const char* kind);

  std::deque<std::vector<std::byte>> storage_;
  uint64_t random_ = 1;
  int n_names_ = 0;
};

struct SelfTestCase {
  std::string op;
  std::function<void(TestPlan&)> build;
  double fast_tolerance = 0.0;  // relative; 0: as in f32
};

std::vector<SelfTestCase> self_test_cases();

}  // namespace kapitsa::engine
