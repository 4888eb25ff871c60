// An HTTP server on the loopback address for tests of downloads: each request goes to a function of
// the test, whose reply can be cut, stall, lie about its length, or be anything else that a server
// should not do. Nothing waits for a clock: a stalled reply ends when its client gives up.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace kapitsa::test {

struct FakeRequest {
  std::string target;                          // path and query
  std::map<std::string, std::string> headers;  // names in lower case

  std::string header(const std::string& name) const;
  std::optional<int64_t> range_start() const;  // of "bytes=N-"
};

struct FakeReply {
  int status = 200;
  std::vector<std::pair<std::string, std::string>> headers = {};
  std::string body = {};
  int64_t claimed_length = -1;      // Content-Length; -1: that of the body
  std::optional<size_t> send = {};  // send only so many bytes of the body, then close
  bool stall = false;               // do not close after that: wait until the client does
};

// A reply with the whole content, or the part that the request asks for when its If-Range agrees.
FakeReply serve_file(const FakeRequest& request, const std::string& content,
                     const std::string& etag = "");

class FakeServer {
public:
  using Handler = std::function<FakeReply(const FakeRequest&)>;
  explicit FakeServer(Handler handler);
  ~FakeServer();
  FakeServer(const FakeServer&) = delete;
  FakeServer& operator=(const FakeServer&) = delete;

  std::string url(const std::string& target, const std::string& host = "127.0.0.1") const;
  std::vector<FakeRequest> requests() const;

private:
  void accept_all();
  void answer(int fd);

  const Handler handler_;
  int listener_ = -1;
  uint16_t port_ = 0;
  mutable std::mutex mutex_;
  std::vector<FakeRequest> requests_;
  std::vector<int> open_;
  std::vector<std::thread> workers_;
  std::thread acceptor_;
};

}  // namespace kapitsa::test
