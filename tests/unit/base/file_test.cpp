// Writing a file keeps what is not a file: links stay links, pipes stay pipes.
#include "base/file.h"
#include "support/temporary_folder.h"

#include <sys/stat.h>

#include <gtest/gtest.h>

#include <thread>

namespace kapitsa {
namespace {

TEST(WriteFileAtomic, follows_a_link_and_keeps_it) {
  const test::TemporaryFolder folder;
  const auto target = folder.write("target", "old");
  std::filesystem::create_symlink(target, folder / "link");
  ASSERT_TRUE(write_file_atomic(folder / "link", "new").ok());
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link"));
  EXPECT_EQ(*read_text_file(target), "new");
}

TEST(WriteFileAtomic, writes_into_a_pipe_and_keeps_it) {
  const test::TemporaryFolder folder;
  const auto pipe = folder / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::string found(3, '\0');
  std::thread reader([&] { std::ifstream(pipe).read(found.data(), 3); });
  EXPECT_TRUE(write_file_atomic(pipe, "new").ok());
  reader.join();
  EXPECT_EQ(found, "new");
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
}

}  // namespace
}  // namespace kapitsa
