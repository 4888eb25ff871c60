// Memory in huge pages: what is asked for is zero, and zeros alone are never refused.
#include "base/huge_block.h"

#include <gtest/gtest.h>

namespace kapitsa {
namespace {

TEST(HugeBlock, begins_as_zeros_and_keeps_what_is_written) {
  auto block = HugeBlock::allocate(5000, "a test");
  ASSERT_TRUE(block);
  EXPECT_EQ(block->data()[4999], std::byte{0});
  block->data()[4999] = std::byte{7};
  HugeBlock moved = std::move(*block);
  EXPECT_EQ(moved.data()[4999], std::byte{7});
}

TEST(HugeBlock, zeros_may_exceed_the_memory_of_the_machine) {
  constexpr int64_t kBytes = int64_t{1} << 42;
  const auto block = HugeBlock::zeros(kBytes, "a test");
  ASSERT_TRUE(block) << block.error().message;
  EXPECT_EQ(block->data()[0], std::byte{0});
  EXPECT_EQ(block->data()[kBytes - 1], std::byte{0});
}

}  // namespace
}  // namespace kapitsa
