#include "base/process.h"
#include "support/temporary_folder.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

namespace kapitsa {
namespace {

using test::TemporaryFolder;

std::filesystem::path script(const TemporaryFolder& folder, const std::string& name,
                             const std::string& text) {
  const auto path = folder.write(name, "#!/bin/sh\n" + text + "\n");
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  return path;
}

std::string content(const std::filesystem::path& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(Process, arguments_variables_and_exit_code_pass) {
  const TemporaryFolder folder;
  const auto out = (folder / "out").string();
  const auto program =
      script(folder, "p", "printf '%s|' \"$1\" \"$2\" \"$GIVEN\" \"$HOME\" > \"$OUT\"; exit 7");
  const auto code =
      run_program(program, {"a b", "$x"}, {{"GIVEN", "g"}, {"OUT", out}, {"HOME", "/h"}});
  ASSERT_TRUE(code.ok()) << code.error().message;
  EXPECT_EQ(*code, 7);
  EXPECT_EQ(content(out), "a b|$x|g|/h|");
}

TEST(Process, a_signal_that_ends_the_program_is_told) {
  const TemporaryFolder folder;
  EXPECT_EQ(*run_program(script(folder, "p", "kill -TERM $$"), {}, {}), 128 + 15);
  EXPECT_EQ(*run_program(script(folder, "q", "kill -INT $$"), {}, {}), 128 + 2);
}

TEST(Process, what_cannot_be_started_is_an_error) {
  const TemporaryFolder folder;
  const auto failed = run_program(folder / "none", {}, {});
  ASSERT_FALSE(failed.ok());
  EXPECT_NE(failed.error().message.find("none"), std::string::npos);
}

TEST(Process, programs_are_found_in_order) {
  const TemporaryFolder folder;
  const auto first = script(folder, "a/tool", "");
  const auto second = script(folder, "b/tool", "");
  folder.write("c/plain", "no program");
  const std::string path = (folder / "none").string() + "::" + (folder / "a").string();
  EXPECT_EQ(find_program("tool", path, {folder / "b"}), first);
  EXPECT_EQ(find_program("tool", "", {folder / "b"}), second);
  EXPECT_EQ(find_program("plain", (folder / "c").string(), {}), std::nullopt);
  EXPECT_EQ(find_program("b", folder.path().string(), {}), std::nullopt);
}

}  // namespace
}  // namespace kapitsa
