// HTTP against a server that misbehaves: what is retried, what is refused, what a person reads.
#include "hub/http_client.h"
#include "support/fake_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kapitsa::hub {
namespace {

using test::FakeReply;
using test::FakeRequest;
using test::FakeServer;
using testing::HasSubstr;
using testing::Not;

HttpOptions quick() {
  return {.attempts = 3,
          .first_pause = std::chrono::milliseconds(1),
          .connect_timeout = std::chrono::seconds(10),
          .stall_timeout = std::chrono::seconds(1)};
}

Result<HttpText> get(const std::string& url, const std::string& token = "") {
  return HttpClient(quick()).get_text(
      {.url = url, .bearer_token = token, .denied_hint = "set HF_TOKEN", .missing_hint = "look"});
}

TEST(HttpClient, gets_a_text_with_what_was_asked_for) {
  const FakeServer server([](const FakeRequest&) {
    return FakeReply{.headers = {{"ETag", "\"one\""}, {"Content-Type", "text/plain"}},
                     .body = "hello"};
  });
  const auto text = HttpClient(quick()).get_text({.url = server.url("/a?b=c"), .accept = "x/y"});
  ASSERT_TRUE(text) << text.error().message;
  EXPECT_EQ(text->body, "hello");
  EXPECT_EQ(text->response.etag, "\"one\"");
  EXPECT_EQ(text->response.total_bytes, 5);
  EXPECT_EQ(text->response.content_type, "text/plain");
  ASSERT_EQ(server.requests().size(), 1U);
  EXPECT_EQ(server.requests()[0].target, "/a?b=c");
  EXPECT_EQ(server.requests()[0].header("accept"), "x/y");
}

TEST(HttpClient, a_weak_etag_is_none) {
  const FakeServer server(
      [](const FakeRequest&) { return FakeReply{.headers = {{"ETag", "W/\"one\""}}}; });
  const auto text = get(server.url("/"));
  ASSERT_TRUE(text);
  EXPECT_EQ(text->response.etag, "");
}

TEST(HttpClient, a_token_goes_to_its_host) {
  const FakeServer server([](const FakeRequest& request) {
    return request.target == "/start" ? FakeReply{.status = 302, .headers = {{"Location", "/end"}}}
                                      : FakeReply{.body = "end"};
  });
  ASSERT_TRUE(get(server.url("/start"), "secret"));
  ASSERT_EQ(server.requests().size(), 2U);
  EXPECT_EQ(server.requests()[0].header("authorization"), "Bearer secret");
  EXPECT_EQ(server.requests()[1].header("authorization"), "Bearer secret");
}

TEST(HttpClient, a_token_never_follows_a_redirect_to_another_host) {
  const FakeServer other([](const FakeRequest&) { return FakeReply{.body = "content"}; });
  const FakeServer server([&](const FakeRequest&) {
    return FakeReply{.status = 302, .headers = {{"Location", other.url("/x", "localhost")}}};
  });
  const auto text = get(server.url("/"), "secret");
  ASSERT_TRUE(text) << text.error().message;
  EXPECT_EQ(text->body, "content");
  ASSERT_EQ(other.requests().size(), 1U);
  EXPECT_EQ(other.requests()[0].header("authorization"), "");
}

TEST(HttpClient, a_redirect_to_another_protocol_is_refused) {
  const FakeServer server([](const FakeRequest&) {
    return FakeReply{.status = 302, .headers = {{"Location", "file:///etc/hostname"}}};
  });
  const auto text = get(server.url("/"));
  ASSERT_FALSE(text);
  EXPECT_THAT(text.error().message, HasSubstr("redirected away from https and http"));
}

TEST(HttpClient, endless_redirects_end) {
  const FakeServer server(
      [](const FakeRequest&) { return FakeReply{.status = 302, .headers = {{"Location", "/"}}}; });
  const auto text = get(server.url("/"));
  ASSERT_FALSE(text);
  EXPECT_THAT(text.error().message, HasSubstr("more than 10 redirects"));
}

TEST(HttpClient, denied_and_missing_say_what_to_do) {
  for (const auto& [status, expected] :
       {std::pair(401, "access denied (HTTP 401) (gated here); set HF_TOKEN"),
        std::pair(403, "access denied (HTTP 403) (gated here); set HF_TOKEN"),
        std::pair(404, "not there (HTTP 404) (gated here); look")}) {
    const FakeServer server([code = status](const FakeRequest&) {
      return FakeReply{.status = code, .headers = {{"X-Error-Message", "gated here"}}};
    });
    const auto text = get(server.url("/page"));
    ASSERT_FALSE(text);
    EXPECT_THAT(text.error().message, HasSubstr(expected));
    EXPECT_THAT(text.error().message, HasSubstr(server.url("/page")));
    EXPECT_EQ(server.requests().size(), 1U) << "not worth a second try";
  }
}

TEST(HttpClient, a_busy_server_is_asked_again) {
  for (const int status : {429, 500, 503}) {
    std::atomic<int> n = 0;
    const FakeServer server([&](const FakeRequest&) {
      return ++n < 3 ? FakeReply{.status = status} : FakeReply{.body = "at last"};
    });
    const auto text = get(server.url("/"));
    ASSERT_TRUE(text) << text.error().message;
    EXPECT_EQ(text->body, "at last");
  }
}

TEST(HttpClient, gives_up_after_some_tries) {
  const FakeServer server([](const FakeRequest&) { return FakeReply{.status = 503}; });
  const auto text = get(server.url("/"));
  ASSERT_FALSE(text);
  EXPECT_THAT(text.error().message,
              HasSubstr("the server failed (HTTP 503); gave up after 3 tries"));
  EXPECT_EQ(server.requests().size(), 3U);
}

TEST(HttpClient, a_long_wait_is_left_to_the_person) {
  const FakeServer server([](const FakeRequest&) {
    return FakeReply{.status = 429, .headers = {{"Retry-After", "3600"}}};
  });
  const auto text = get(server.url("/"));
  ASSERT_FALSE(text);
  EXPECT_THAT(text.error().message, HasSubstr("asks to wait 3600 s"));
  EXPECT_EQ(server.requests().size(), 1U);
}

TEST(HttpClient, a_cut_body_is_fetched_again) {
  std::atomic<int> n = 0;
  const FakeServer server([&](const FakeRequest&) {
    FakeReply reply{.body = "0123456789"};
    if (++n == 1) reply.send = 4;
    return reply;
  });
  const auto text = get(server.url("/"));
  ASSERT_TRUE(text) << text.error().message;
  EXPECT_EQ(text->body, "0123456789");
}

TEST(HttpClient, says_where_a_body_was_cut) {
  const FakeServer server(
      [&](const FakeRequest&) { return FakeReply{.body = "0123456789", .send = 4}; });
  const auto text = get(server.url("/"));
  ASSERT_FALSE(text);
  EXPECT_THAT(text.error().message, HasSubstr("cut after 4 of 10 bytes"));
}

TEST(HttpClient, a_stalled_server_is_given_up) {
  const FakeServer server([&](const FakeRequest&) {
    return FakeReply{.body = "0123456789", .send = 4, .stall = true};
  });
  HttpOptions options = quick();
  options.attempts = 5;
  options.stalls = 2;
  const auto text = HttpClient(options).get_text({.url = server.url("/")});
  ASSERT_FALSE(text);
  EXPECT_THAT(text.error().message,
              HasSubstr("stalled after 4 bytes: less than 1000 bytes a second for 1 s"));
  EXPECT_THAT(text.error().message, HasSubstr("gave up after 2 tries"));
}

TEST(HttpClient, an_unreachable_host_fails_at_once_and_plainly) {
  std::string url;
  {
    const FakeServer server([](const FakeRequest&) { return FakeReply{}; });
    url = server.url("/");
  }
  const auto closed = get(url);
  ASSERT_FALSE(closed);
  EXPECT_THAT(closed.error().message, HasSubstr("no connection"));
  const auto nowhere = get("http://no-such-host.invalid/");
  ASSERT_FALSE(nowhere);
  EXPECT_THAT(nowhere.error().message,
              HasSubstr("cannot find the host no-such-host.invalid; is this machine offline"));
}

TEST(HttpClient, cancelling_ends_a_transfer) {
  std::atomic<bool> stop = false;
  const FakeServer server([&](const FakeRequest&) {
    stop = true;
    return FakeReply{.body = "0123456789", .send = 4, .stall = true};
  });
  HttpOptions options = quick();
  options.stall_timeout = std::chrono::seconds(600);
  options.cancelled = [&] { return stop.load(); };
  const auto text = HttpClient(options).get_text({.url = server.url("/")});
  ASSERT_FALSE(text);
  EXPECT_EQ(text.error().code, ErrorCode::cancelled);
}

TEST(HttpClient, a_text_that_is_too_long_is_refused) {
  const FakeServer server([](const FakeRequest&) { return FakeReply{.body = "0123456789"}; });
  const auto text = HttpClient(quick()).get_text({.url = server.url("/")}, 9);
  ASSERT_FALSE(text);
  EXPECT_THAT(text.error().message, HasSubstr("at most 9 bytes"));
}

TEST(HttpClient, other_protocols_are_refused) {
  for (const char* url : {"file:///etc/hostname", "ftp://127.0.0.1/x"}) {
    const auto text = get(url);
    ASSERT_FALSE(text) << url;
    EXPECT_THAT(text.error().message, HasSubstr("expected an address that starts with https://"));
  }
}

TEST(Url, what_is_shown_has_no_secrets) {
  EXPECT_EQ(shown_url("https://user:pass@host/path?X-Signature=1#f"), "https://host/path");
  EXPECT_EQ(shown_url("https://host/a@b"), "https://host/a@b");
  EXPECT_THAT(shown_url("http://host/\n\x1b[31m"), Not(HasSubstr("\x1b")));
}

TEST(Url, origins_differ_by_host_port_and_scheme) {
  EXPECT_EQ(url_origin("https://Host/x"), "https://host:443");
  EXPECT_EQ(url_origin("https://host:443/y"), "https://host:443");
  EXPECT_NE(url_origin("http://host/"), url_origin("https://host/"));
  EXPECT_NE(url_origin("https://host.example/"), url_origin("https://host/"));
  EXPECT_EQ(url_origin("file:///x"), "");
}

TEST(Url, references_are_resolved) {
  EXPECT_EQ(*resolve_url("https://host/simple/pkg/", "../../files/a.whl"),
            "https://host/files/a.whl");
  EXPECT_EQ(*resolve_url("https://host/simple/", "https://other/a"), "https://other/a");
  EXPECT_FALSE(resolve_url("not a url", "x"));
}

TEST(Url, paths_are_escaped) {
  EXPECT_EQ(escape_path("a b/c#d?%e.gguf"), "a%20b/c%23d%3F%25e.gguf");
}

}  // namespace
}  // namespace kapitsa::hub
