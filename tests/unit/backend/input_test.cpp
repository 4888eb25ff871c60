// Input buffers: what the engine writes is what the next pass reads, until it writes again.
#include "support/plan_runner.h"

#include <gtest/gtest.h>

#include <array>

namespace kapitsa::test {
namespace {

class Input : public testing::TestWithParam<const char*> {
protected:
  void SetUp() override {
    in_ = plan_.add_buffer({.name = "in", .width = 3, .input = true});
    out_ = plan_.add_buffer({.name = "out", .width = 3, .readable = true});
    plan_.begin_routine("copy");
    plan_.add(plan::Copy{plan_.heads(in_), plan_.heads(out_)}, "copy");
    auto device = backend::open_device(GetParam(), {.n_threads = 1});
    ASSERT_TRUE(device.ok()) << device.error().message;
    device_ = std::move(*device);
    auto runner = PlanRunner::open(*device_, plan_);
    ASSERT_TRUE(runner.ok()) << runner.error().message;
    runner_.emplace(std::move(*runner));
  }

  std::vector<float> run() {
    EXPECT_TRUE(runner_->decode({{0, {0, 0}, {}}}).ok());
    auto rows = runner_->read(out_);
    EXPECT_TRUE(rows.ok());
    return rows.ok() ? *rows : std::vector<float>();
  }

  plan::Plan plan_;
  plan::BufferId in_, out_;
  std::unique_ptr<backend::Device> device_;
  std::optional<PlanRunner> runner_;
};

TEST_P(Input, rows_keep_what_was_written_last) {
  EXPECT_EQ(run(), std::vector<float>(6, 0.0F));
  const std::array both = {1.0F, 2.0F, 3.0F, 4.0F, 5.0F, 6.0F};
  ASSERT_TRUE(runner_->program().write(in_, 0, both).ok());
  EXPECT_EQ(run(), std::vector<float>(both.begin(), both.end()));
  ASSERT_TRUE(runner_->program().write(in_, 1, std::array{7.0F, 8.0F, 9.0F}).ok());
  EXPECT_EQ(run(), (std::vector<float>{1.0F, 2.0F, 3.0F, 7.0F, 8.0F, 9.0F}));
}

TEST_P(Input, what_does_not_fit_is_refused) {
  const std::array row = {1.0F, 2.0F, 3.0F};
  backend::Program& program = runner_->program();
  EXPECT_FALSE(program.write(out_, 0, row).ok());
  EXPECT_FALSE(program.write({}, 0, row).ok());
  EXPECT_FALSE(program.write(in_, -1, row).ok());
  EXPECT_FALSE(program.write(in_, 1 << 20, row).ok());
  EXPECT_FALSE(program.write(in_, 0, std::span(row).first(2)).ok());
}

INSTANTIATE_TEST_SUITE_P(Backends, Input, testing::Values("ref", "cpu"));

}  // namespace
}  // namespace kapitsa::test
