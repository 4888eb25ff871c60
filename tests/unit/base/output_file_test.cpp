// Files that grow, locks between holders, and what is said when a disk is full.
#include "base/output_file.h"
#include "support/temporary_folder.h"

#include <gtest/gtest.h>

namespace kapitsa {
namespace {

using test::read_file;
using test::TemporaryFolder;

std::span<const std::byte> bytes(const std::string& text) {
  return std::as_bytes(std::span<const char>(text));
}

TEST(OutputFile, appends_to_what_is_there) {
  const TemporaryFolder folder;
  const auto path = folder.write("file", "abc");
  {
    auto file = OutputFile::open(path);
    ASSERT_TRUE(file);
    EXPECT_EQ(file->size(), 3);
    EXPECT_TRUE(file->append(bytes("def")));
    EXPECT_EQ(file->size(), 6);
    EXPECT_TRUE(file->flush());
  }
  EXPECT_EQ(read_file(path), "abcdef");
}

TEST(OutputFile, grows_by_zeros) {
  const TemporaryFolder folder;
  const auto path = folder.write("file", "abc");
  auto file = OutputFile::open(path);
  ASSERT_TRUE(file);
  EXPECT_TRUE(file->append_zeros(2));
  EXPECT_EQ(file->size(), 5);
  EXPECT_TRUE(file->append(bytes("x")));
  EXPECT_EQ(read_file(path), std::string("abc\0\0x", 6));
}

TEST(OutputFile, goes_on_after_what_was_kept) {
  const TemporaryFolder folder;
  const auto path = folder.write("file", "abcdef");
  auto file = OutputFile::open(path);
  ASSERT_TRUE(file);
  EXPECT_TRUE(file->truncate(2));
  EXPECT_TRUE(file->append(bytes("x")));
  EXPECT_EQ(read_file(path), "abx");
}

TEST(OutputFile, a_full_disk_is_named_with_what_to_do) {
  const TemporaryFolder folder;
  std::error_code error;
  std::filesystem::create_symlink("/dev/full", folder / "file", error);
  if (error || !std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  auto file = OutputFile::open(folder / "file");
  ASSERT_TRUE(file);
  const Status written = file->append(bytes("abc"));
  ASSERT_FALSE(written);
  EXPECT_NE(written.error().message.find((folder / "file").string()), std::string::npos);
  EXPECT_NE(written.error().message.find("make room on this disk"), std::string::npos);
}

TEST(OutputFile, a_folder_that_is_missing_is_an_error) {
  const TemporaryFolder folder;
  const auto file = OutputFile::open(folder / "missing/file");
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().code, ErrorCode::not_found);
}

TEST(FileLock, has_one_holder_at_a_time) {
  const TemporaryFolder folder;
  {
    const auto first = FileLock::acquire(folder / "lock");
    ASSERT_TRUE(first);
    const auto second = FileLock::acquire(folder / "lock");
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().code, ErrorCode::unsupported);
  }
  EXPECT_TRUE(FileLock::acquire(folder / "lock"));
}

TEST(FreeDisk, is_some_and_needs_a_folder) {
  const TemporaryFolder folder;
  const auto free = free_disk_bytes(folder.path());
  ASSERT_TRUE(free);
  EXPECT_GE(*free, 0);
  EXPECT_FALSE(free_disk_bytes(folder / "missing"));
}

}  // namespace
}  // namespace kapitsa
