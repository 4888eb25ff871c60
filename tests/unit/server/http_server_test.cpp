#include "server/http/http_server.h"
#include "support/http_probe.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <future>
#include <mutex>

namespace kapitsa::server::http {
namespace {

using test::HttpProbe;
using test::Reply;

// A server whose handler is written by the test.
class HttpServerTest : public testing::Test {
protected:
  using Handler = std::function<void(const std::shared_ptr<Exchange>&)>;

  void serve(Handler handler, HttpOptions options = {}) {
    auto started = HttpServer::start(
        options, {.handler = std::move(handler),
                  .refuse = [](int status, const std::string& message, const std::string& path) {
                    return Response{.status = status, .body = path + ": " + message};
                  }});
    ASSERT_TRUE(started.ok()) << started.error().message;
    server_ = std::move(*started);
  }
  void echo() {
    serve([](const auto& exchange) {
      const Request& request = exchange->request();
      exchange->respond({.body = request.method + " " + request.path + " " + request.body});
    });
  }
  uint16_t port() const { return server_->port(); }

  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, a_connection_serves_many_requests) {
  echo();
  HttpProbe probe(port());
  for (const char* body : {"one", "two", ""}) {
    probe.post("/a?b=c", body);
    const Reply reply = probe.read();
    EXPECT_EQ(reply.status, 200);
    EXPECT_EQ(reply.body, std::string("POST /a ") + body);
    EXPECT_NE(reply.head.find("connection: keep-alive"), std::string::npos);
  }
}

TEST_F(HttpServerTest, requests_sent_ahead_are_answered_in_order) {
  echo();
  HttpProbe probe(port());
  probe.send("GET /1 HTTP/1.1\r\nHost: h\r\n\r\nGET /2 HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_EQ(probe.read().body, "GET /1 ");
  EXPECT_EQ(probe.read().body, "GET /2 ");
}

TEST_F(HttpServerTest, bodies_come_in_chunks_or_after_a_question) {
  echo();
  HttpProbe probe(port());
  probe.send("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: "
             "chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n");
  EXPECT_EQ(probe.read().body, "POST / abcde");
  probe.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(probe.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  probe.send("xyz");
  EXPECT_EQ(probe.read().body, "POST / xyz");
}

TEST_F(HttpServerTest, head_has_no_body) {
  echo();
  HttpProbe probe(port());
  probe.send("HEAD / HTTP/1.1\r\nHost: h\r\n\r\n");
  const Reply reply = probe.read(false);
  EXPECT_EQ(reply.status, 200);
  EXPECT_NE(reply.head.find("content-length: 7"), std::string::npos);
  probe.get("/next");
  EXPECT_EQ(probe.read().body, "GET /next ");
}

TEST_F(HttpServerTest, garbage_and_too_much_are_refused_and_the_connection_ends) {
  HttpOptions options;
  options.max_header_bytes = 2000;
  options.max_body_bytes = 10;
  serve([](const auto& exchange) { exchange->respond({}); }, options);
  const std::pair<std::string, int> cases[] = {
      {"hello\r\n\r\n", 400},
      {"GET / HTTP/9.9\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n", 400},
      {"POST / HTTP/1.1\r\nContent-Length: -5\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nX: " + std::string(3000, 'a') + "\r\n\r\n", 431},
      {"POST /p HTTP/1.1\r\nContent-Length: 99\r\n\r\n", 413},
      {"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n" + std::string(255, 'a'), 413}};
  for (const auto& [text, status] : cases) {
    HttpProbe probe(port());
    probe.send(text);
    const Reply reply = probe.read();
    EXPECT_EQ(reply.status, status) << text.substr(0, 60);
    EXPECT_NE(reply.head.find("connection: close"), std::string::npos);
    EXPECT_TRUE(probe.at_end()) << text.substr(0, 60);
  }
}

TEST_F(HttpServerTest, a_slow_head_and_a_slow_body_time_out) {
  HttpOptions options;
  options.idle_timeout = options.body_timeout = std::chrono::milliseconds(50);
  serve([](const auto& exchange) { exchange->respond({}); }, options);
  HttpProbe head(port());
  head.send("GET / HT");
  EXPECT_TRUE(head.at_end());
  HttpProbe body(port());
  body.send("POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nab");
  EXPECT_TRUE(body.at_end());
}

TEST_F(HttpServerTest, a_stream_comes_in_chunks_and_the_connection_goes_on) {
  serve([](const auto& exchange) {
    exchange->begin({.headers = {{"x-a", "b"}}});
    exchange->work([exchange] {
      for (int i = 0; i < 100; ++i)
        exchange->send("data: " + std::to_string(i) + "\n\n");
      exchange->end();
      exchange->send("too late");
    });
  });
  HttpProbe probe(port());
  for (int round = 0; round < 2; ++round) {
    probe.get("/");
    const Reply reply = probe.read();
    EXPECT_TRUE(reply.body.starts_with("data: 0\n\ndata: 1\n\n"));
    EXPECT_TRUE(reply.body.ends_with("data: 99\n\n"));
    EXPECT_NE(reply.head.find("content-type: text/event-stream"), std::string::npos);
  }
}

TEST_F(HttpServerTest, silence_is_broken_by_the_clock) {
  serve([](const auto& exchange) {
    Stream stream;
    stream.keep_alive_after = std::chrono::milliseconds(10);
    stream.keep_alive = [] { return std::string(": alive\n\n"); };
    exchange->begin(std::move(stream));
  });
  HttpProbe probe(port());
  probe.get("/");
  for (int i = 0; i < 3; ++i)
    EXPECT_NE(probe.read_until(": alive\n\n").find(": alive"), std::string::npos);
}

TEST_F(HttpServerTest, a_client_that_goes_away_is_noticed) {
  for (const bool streaming : {false, true}) {
    for (const bool half : {false, true}) {
      std::promise<void> gone;
      std::promise<void> open;
      serve([&](const auto& exchange) {
        exchange->on_closed([&] { gone.set_value(); });
        if (streaming) exchange->begin({});
        open.set_value();
      });
      HttpProbe probe(port());
      probe.post("/", "{}");
      open.get_future().wait();
      if (half) {
        probe.half_close();
      } else {
        probe.close();
      }
      EXPECT_EQ(gone.get_future().wait_for(std::chrono::minutes(1)), std::future_status::ready);
      server_ = nullptr;
    }
  }
}

TEST_F(HttpServerTest, a_port_in_use_is_named) {
  echo();
  HttpOptions options;
  options.port = port();
  const auto second = HttpServer::start(options, {});
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.error().message.find(std::to_string(port())), std::string::npos);
  EXPECT_NE(second.error().message.find("in use"), std::string::npos);
  options.host = "nowhere";
  EXPECT_NE(HttpServer::start(options, {}).error().message.find("IP address"), std::string::npos);
}

TEST_F(HttpServerTest, open_answers_end_before_the_server_does) {
  std::promise<std::shared_ptr<Exchange>> open;
  serve([&](const auto& exchange) {
    if (exchange->request().path == "/slow") return open.set_value(exchange);
    exchange->respond({.body = "quick"});
  });
  HttpProbe idle(port());
  idle.get("/");
  EXPECT_EQ(idle.read().body, "quick");
  HttpProbe slow(port());
  slow.get("/slow");
  const auto exchange = open.get_future().get();
  std::thread stopper([&] { server_->stop(std::chrono::minutes(1)); });
  EXPECT_TRUE(idle.at_end());
  exchange->respond({.body = "done"});
  const Reply reply = slow.read();
  EXPECT_EQ(reply.body, "done");
  EXPECT_NE(reply.head.find("connection: close"), std::string::npos);
  stopper.join();
  EXPECT_FALSE(HttpProbe(port()).connected());
}

TEST_F(HttpServerTest, a_server_that_must_end_closes_open_answers) {
  std::promise<void> open;
  std::promise<void> gone;
  serve([&](const auto& exchange) {
    exchange->on_closed([&] { gone.set_value(); });
    open.set_value();
  });
  HttpProbe probe(port());
  probe.get("/");
  open.get_future().wait();
  server_->stop(std::chrono::milliseconds(0));
  EXPECT_EQ(gone.get_future().wait_for(std::chrono::minutes(1)), std::future_status::ready);
  EXPECT_TRUE(probe.at_end());
}

}  // namespace
}  // namespace kapitsa::server::http
