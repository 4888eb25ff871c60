#include "base/system.h"

#include <unistd.h>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>

namespace kapitsa {
namespace {

namespace fs = std::filesystem;

// A made-up /proc and /sys. The affinity mask is always the real one.
class FakeRoot : public testing::Test {
protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "kapitsa_system_XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    root_ = name;
  }
  void TearDown() override { fs::remove_all(root_); }

  void write(const std::string& path, const std::string& content) const {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << content;
  }
  void write_meminfo() const {
    write("proc/meminfo", "MemTotal:       1000 kB\nMemFree:  1 kB\nMemAvailable:    600 kB\n");
  }

  fs::path root_;
};

TEST(System, the_real_machine_has_cores_and_memory) {
  EXPECT_GE(available_cores(), 1);
  const auto memory = memory_info();
  ASSERT_TRUE(memory);
  EXPECT_GT(memory->total_bytes, 0);
  EXPECT_GE(memory->total_bytes, memory->available_bytes);
}

#ifndef __APPLE__

TEST_F(FakeRoot, hardware_threads_of_one_core_count_once) {
  for (int cpu = 0; cpu < 1024; ++cpu)
    write(fmt::format("sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", cpu),
          "0-1023\n");
  EXPECT_EQ(available_cores(root_), 1);
}

TEST_F(FakeRoot, the_cpu_quota_counts_whole_cores_but_at_least_one) {
  write("proc/self/cgroup", "0::/user/app\n");
  write("sys/fs/cgroup/user/app/cpu.max", "max 100000\n");
  write("sys/fs/cgroup/user/cpu.max", "190000 100000\n");
  EXPECT_EQ(available_cores(root_), 1);
  write("sys/fs/cgroup/user/app/cpu.max", "50000 100000\n");
  EXPECT_EQ(available_cores(root_), 1);
}

TEST_F(FakeRoot, the_quota_of_cgroup_v1_counts) {
  write("proc/self/cgroup", "4:memory:/x\n3:cpu:/box\n");
  write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "100000\n");
  write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(available_cores(root_), 1);
}

TEST_F(FakeRoot, memory_without_a_container_is_that_of_the_machine) {
  write_meminfo();
  const auto memory = memory_info(root_);
  ASSERT_TRUE(memory);
  EXPECT_EQ(memory->total_bytes, 1000 * 1024);
  EXPECT_EQ(memory->available_bytes, 600 * 1024);
}

TEST_F(FakeRoot, the_tightest_cgroup_limit_counts_and_inactive_file_pages_are_available) {
  write_meminfo();
  write("proc/self/cgroup", "0::/a/b\n");
  write("sys/fs/cgroup/a/b/memory.max", "max\n");
  write("sys/fs/cgroup/a/memory.max", "500000\n");
  write("sys/fs/cgroup/a/memory.current", "400000\n");
  write("sys/fs/cgroup/a/memory.stat", "anon 5\nactive_file 7\ninactive_file 50000\n");
  const auto memory = memory_info(root_);
  ASSERT_TRUE(memory);
  EXPECT_EQ(memory->total_bytes, 500000);
  EXPECT_EQ(memory->available_bytes, 150000);
}

TEST_F(FakeRoot, a_cgroup_v1_limit_counts_where_only_its_root_is_mounted) {
  write_meminfo();
  write("proc/self/cgroup", "8:memory:/docker/0123\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "300000\n");
  write("sys/fs/cgroup/memory/memory.usage_in_bytes", "900000\n");
  const auto memory = memory_info(root_);
  ASSERT_TRUE(memory);
  EXPECT_EQ(memory->total_bytes, 300000);
  EXPECT_EQ(memory->available_bytes, 0);
}

TEST_F(FakeRoot, a_missing_meminfo_is_an_error_that_names_it) {
  const auto memory = memory_info(root_);
  ASSERT_FALSE(memory);
  EXPECT_NE(memory.error().message.find("proc/meminfo"), std::string::npos);
}

TEST(DataFolder, follows_the_xdg_rules) {
  EXPECT_EQ(*data_folder({.xdg_data_home = "/x", .home = "/h"}), "/x/kapitsa");
  EXPECT_EQ(*data_folder({.xdg_data_home = "relative", .home = "/h"}), "/h/.local/share/kapitsa");
  EXPECT_EQ(*data_folder({.home = "/h"}), "/h/.local/share/kapitsa");
}

#endif

TEST(DataFolder, kapitsa_home_wins) {
  EXPECT_EQ(*data_folder({.kapitsa_home = "/k", .xdg_data_home = "/x", .home = "/h"}), "/k");
}

TEST(DataFolder, without_a_home_it_is_an_error) {
  EXPECT_EQ(data_folder({}).error().code, ErrorCode::not_found);
}

TEST(Terminal, a_pipe_is_none) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  EXPECT_FALSE(is_terminal(ends[0]));
  EXPECT_EQ(terminal_width(ends[0]), std::nullopt);
  ::close(ends[0]);
  ::close(ends[1]);
}

}  // namespace
}  // namespace kapitsa
