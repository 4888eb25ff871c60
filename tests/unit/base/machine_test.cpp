// The report of the machine, the bandwidth, and Ctrl-C as a flag.
#include "base/bandwidth.h"
#include "base/interrupt.h"
#include "base/machine.h"

#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>

namespace kapitsa {
namespace {

#ifndef __APPLE__
TEST(Machine, reads_the_processor_from_the_system) {
  namespace fs = std::filesystem;
  const fs::path root = fs::path(testing::TempDir()) / "kapitsa_machine";
  fs::create_directories(root / "proc");
  fs::create_directories(root / "sys/kernel/mm/transparent_hugepage");
  std::ofstream(root / "proc/cpuinfo") << "processor\t: 0\nmodel name\t: A chip\n"
                                          "flags\t\t: fpu fma avx2 avx512_other avx\n";
  std::ofstream(root / "sys/kernel/mm/transparent_hugepage/enabled") << "always madvise [never]\n";
  const MachineInfo machine = machine_info(root);
  fs::remove_all(root);
  EXPECT_EQ(machine.cpu, "A chip");
  EXPECT_EQ(machine.features, (std::vector<std::string>{"avx", "avx2", "fma"}));
  EXPECT_EQ(machine.huge_pages, "never");
  EXPECT_GE(machine.usable_cores, 1);
  EXPECT_FALSE(machine.system.empty());
}
#endif

TEST(Bandwidth, is_measured_over_a_block_that_no_cache_holds) {
  const auto bandwidth = measure_bandwidth(2, 0.0);
  ASSERT_TRUE(bandwidth.ok()) << bandwidth.error().message;
  EXPECT_GE(bandwidth->n_threads, 1);
  EXPECT_GE(bandwidth->bytes, int64_t{64} << 20);
  EXPECT_GT(bandwidth->bytes_per_second, 1e6);
}

TEST(Interrupt, raises_a_flag_until_it_is_lowered) {
  InterruptGuard guard;
  EXPECT_FALSE(guard.interrupted());
  std::raise(SIGINT);
  EXPECT_TRUE(guard.interrupted());
  guard.reset();
  EXPECT_FALSE(guard.interrupted());
  std::raise(SIGINT);
  EXPECT_TRUE(guard.interrupted());
}

}  // namespace
}  // namespace kapitsa
