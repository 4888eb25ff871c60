// Wheels in a package index, in both of its page formats.
#include "hub/pypi.h"
#include "support/fake_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kapitsa::hub {
namespace {

using test::FakeReply;
using test::FakeRequest;
using test::FakeServer;
using testing::HasSubstr;

Result<Wheel> find(const std::string& index) {
  return find_wheel(HttpClient({.attempts = 1}), index, "some-model", "0.1.2");
}

TEST(Pypi, reads_json) {
  const FakeServer server([](const FakeRequest&) {
    return FakeReply{.headers = {{"Content-Type", "application/vnd.pypi.simple.v1+json"}},
                     .body = R"({"files":[7,
      {"filename":"some_model-0.1-py3-none-any.whl","url":"https://x/old.whl"},
      {"filename":"some_model-0.1.2.tar.gz","url":"https://x/a.tar.gz"},
      {"filename":"some_model-0.1.2-py3-none-any.whl","url":"https://x/a.whl","size":12,
       "hashes":{"sha256":"feed"}}]})"};
  });
  for (const char* slash : {"", "/"}) {
    const auto wheel = find(server.url("/simple") + slash);
    ASSERT_TRUE(wheel) << wheel.error().message;
    EXPECT_EQ(wheel->url, "https://x/a.whl");
    EXPECT_EQ(wheel->sha256, "feed");
    EXPECT_EQ(wheel->bytes, 12);
    EXPECT_EQ(server.requests().back().target, "/simple/some-model/");
    EXPECT_THAT(server.requests().back().header("accept"), HasSubstr("simple.v1+json"));
  }
}

TEST(Pypi, reads_html_with_relative_links) {
  const FakeServer server([](const FakeRequest&) {
    return FakeReply{.headers = {{"Content-Type", "text/html"}},
                     .body = R"(<html><body><a name="x">y</a>
<a href="../../f/some_model-0.1.2.tar.gz">some_model-0.1.2.tar.gz</a>
<a href="../../f/w.whl?a=1&amp;b=2#sha256=feed" data-x="1">some_model-0.1.2-py3-none-any.whl</a>)"};
  });
  const auto wheel = find(server.url("/simple/"));
  ASSERT_TRUE(wheel) << wheel.error().message;
  EXPECT_EQ(wheel->url, server.url("/f/w.whl?a=1&b=2"));
  EXPECT_EQ(wheel->sha256, "feed");
  EXPECT_EQ(wheel->bytes, -1);
}

TEST(Pypi, says_what_is_missing) {
  for (const auto& [type, body, expected] :
       {std::tuple("application/json", R"({"files":[]})",
                   "expected a wheel some_model-0.1.2-*.whl"),
        std::tuple("application/json", "{}", "expected a list 'files'"),
        std::tuple("application/json", "<html>", "expected valid JSON"),
        std::tuple("text/html", "<a href=\"x\">unfinished", "expected a wheel")}) {
    const FakeServer server([&, t = type, b = body](const FakeRequest&) {
      return FakeReply{.headers = {{"Content-Type", t}}, .body = b};
    });
    const auto wheel = find(server.url("/simple"));
    ASSERT_FALSE(wheel);
    EXPECT_THAT(wheel.error().message, HasSubstr(expected));
  }
  const FakeServer server([](const FakeRequest&) { return FakeReply{.status = 404}; });
  const auto wheel = find(server.url("/simple"));
  ASSERT_FALSE(wheel);
  EXPECT_THAT(wheel.error().message, HasSubstr("this index does not have the package some-model"));
}

}  // namespace
}  // namespace kapitsa::hub
