// Archives as they should be and as an enemy would make them.
#include "hub/zip.h"
#include "support/temporary_folder.h"
#include "unit/hub/zip_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kapitsa::hub {
namespace {

using test::make_zip;
using test::ZipFile;
using testing::HasSubstr;

struct Unzipped {
  Status status;
  std::string content;
  int64_t announced = -1;
};

Unzipped unzip(const std::string& archive, const std::string& name) {
  const test::TemporaryFolder folder;
  Unzipped out;
  out.status = unzip_member(
      folder.write("a.zip", archive), name,
      [&](const ZipMember& member) {
        out.announced = member.bytes;
        return Status();
      },
      [&](std::span<const std::byte> bytes) {
        for (const std::byte b : bytes)
          out.content.push_back(static_cast<char>(b));
        return Status();
      });
  return out;
}

std::string long_text() {
  std::string text;
  for (int64_t i = 0; i < 300000; ++i)
    text += std::to_string(i * 7919);
  return text;
}

TEST(Zip, takes_out_stored_deflated_and_zip64_members) {
  const std::string content = long_text();
  for (const bool deflate : {false, true}) {
    for (const bool zip64 : {false, true}) {
      const auto out =
          unzip(make_zip({{"other", "x"}, {"pkg/model.gguf", content, deflate}}, zip64),
                "pkg/model.gguf");
      ASSERT_TRUE(out.status) << out.status.error().message;
      EXPECT_EQ(out.content, content);
      EXPECT_EQ(out.announced, static_cast<int64_t>(content.size()));
    }
  }
}

TEST(Zip, a_member_is_found_by_its_base_name_when_there_is_one) {
  EXPECT_TRUE(unzip(make_zip({{"a/model", "1"}}), "model").status);
  EXPECT_FALSE(unzip(make_zip({{"a/model", "1"}, {"b/model", "2"}}), "model").status);
  EXPECT_FALSE(unzip(make_zip({{"a/mymodel", "1"}}), "model").status);
}

TEST(Zip, an_empty_member_is_empty) {
  for (const bool deflate : {false, true}) {
    const auto out = unzip(make_zip({{"a", "", deflate}}), "a");
    ASSERT_TRUE(out.status);
    EXPECT_EQ(out.content, "");
  }
}

TEST(Zip, every_cut_is_an_error_and_no_crash) {
  const std::string whole = make_zip({{"pkg/model", "some content that is deflated"}}, true);
  for (size_t size = 0; size < whole.size(); ++size)
    EXPECT_FALSE(unzip(whole.substr(0, size), "pkg/model").status) << size;
}

TEST(Zip, no_changed_byte_gives_other_content) {
  const std::string content = "some content that is deflated";
  for (const bool deflate : {false, true}) {
    const std::string whole = make_zip({{"pkg/model", content, deflate}}, true);
    for (size_t at = 0; at < whole.size(); ++at) {
      for (const int change : {1, 0x80, 0xff}) {
        std::string changed = whole;
        changed[at] = static_cast<char>(changed[at] ^ change);
        const auto out = unzip(changed, "pkg/model");
        if (out.status) {
          EXPECT_EQ(out.content, content) << at;
        }
      }
    }
  }
}

TEST(Zip, says_what_and_where) {
  const auto no_zip = unzip("this is no archive at all", "a");
  ASSERT_FALSE(no_zip.status);
  EXPECT_THAT(no_zip.status.error().message,
              HasSubstr("a.zip: offset 0: not a usable ZIP archive"));
  std::string damaged = make_zip({{"m", long_text()}});
  damaged[1000] = static_cast<char>(damaged[1000] ^ 0x55);
  const auto out = unzip(damaged, "m");
  ASSERT_FALSE(out.status);
  EXPECT_THAT(out.status.error().message, HasSubstr("expected member m undamaged"));
}

TEST(Zip, more_content_than_announced_is_stopped) {
  std::string bomb = make_zip({{"m", std::string(5 << 20, '0')}});
  // The size in the directory entry, which is 46 bytes and a name of one before the end record.
  const size_t entry = bomb.size() - 22 - 47;
  bomb.replace(entry + 24, 4, std::string("\x10\0\0\0", 4));
  const auto out = unzip(bomb, "m");
  EXPECT_FALSE(out.status);
  EXPECT_LE(out.content.size(), size_t{1} << 20);
}

}  // namespace
}  // namespace kapitsa::hub
