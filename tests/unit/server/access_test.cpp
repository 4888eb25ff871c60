#include "server/access.h"
#include "server/handlers.h"

#include <gtest/gtest.h>

namespace kapitsa::server {
namespace {

http::Request with(http::Headers headers) {
  return {.method = "GET", .path = "/", .headers = std::move(headers)};
}

TEST(Access, only_names_of_this_machine_pass) {
  AccessPolicy policy;
  for (const char* host :
       {"localhost", "LOCALHOST:80", "127.0.0.1:8421", "[::1]:8421", "127.3.2.1"})
    EXPECT_EQ(check_access(policy, with({{"host", host}}), false).status, 0) << host;
  for (const char* host : {"evil.example", "localhost.evil.example", "192.168.0.9"})
    EXPECT_EQ(check_access(policy, with({{"host", host}}), true).status, 403) << host;
  policy.more_hosts = {"box.lan"};
  EXPECT_EQ(check_access(policy, with({{"host", "box.lan:80"}}), false).status, 0);
  policy.bound_host = "0.0.0.0";
  EXPECT_EQ(check_access(policy, with({{"host", "192.168.0.9:80"}}), false).status, 0);
  EXPECT_EQ(check_access(policy, with({{"host", "evil.example"}}), false).status, 403);
}

TEST(Access, pages_of_others_do_not_pass) {
  AccessPolicy policy;
  const auto status = [&](const char* origin) {
    return check_access(policy, with({{"host", "localhost:80"}, {"origin", origin}}), false).status;
  };
  EXPECT_EQ(status("http://localhost:80"), 0);
  EXPECT_EQ(status("http://localhost:81"), 403);
  EXPECT_EQ(status("https://evil.example"), 403);
  EXPECT_EQ(status("null"), 403);
  EXPECT_TRUE(cors_headers(policy, with({{"origin", "https://evil.example"}})).empty());
  policy.origins = {"https://chat.example"};
  EXPECT_EQ(status("https://chat.example"), 0);
  EXPECT_FALSE(cors_headers(policy, with({{"origin", "https://chat.example"}})).empty());
}

TEST(Access, a_key_comes_in_either_header) {
  AccessPolicy policy;
  policy.api_key = "secret";
  const auto status = [&](http::Headers headers) {
    return check_access(policy, with(std::move(headers)), false).status;
  };
  EXPECT_EQ(status({}), 401);
  EXPECT_EQ(status({{"authorization", "Bearer secret"}}), 0);
  EXPECT_EQ(status({{"authorization", "bearer secret"}}), 0);
  EXPECT_EQ(status({{"x-api-key", "secret"}}), 0);
  EXPECT_EQ(status({{"x-api-key", "secret2"}}), 401);
  EXPECT_EQ(status({{"authorization", "Bearer secre"}}), 401);
  EXPECT_EQ(check_access(policy, with({}), true).status, 0);
}

TEST(Routes, the_prefix_of_the_version_may_come_never_or_often) {
  EXPECT_EQ(route_of("/v1/models"), "/models");
  EXPECT_EQ(route_of("/v1/v1/models/"), "/models");
  EXPECT_EQ(route_of("/models"), "/models");
  EXPECT_EQ(route_of("/v1"), "/");
  EXPECT_EQ(route_of("/"), "/");
  EXPECT_EQ(route_of("/v10/models"), "/v10/models");
}

}  // namespace
}  // namespace kapitsa::server
