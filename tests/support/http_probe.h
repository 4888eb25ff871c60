// A client that speaks HTTP byte by byte, also wrongly. It waits for answers with a deadline that
// only a hang can reach.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <utility>

namespace kapitsa::test {

struct Reply {
  int status = 0;
  std::string head;
  std::string body;  // of a chunked reply: its chunks joined
};

class HttpProbe {
public:
  explicit HttpProbe(uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    const timeval deadline{.tv_sec = 60, .tv_usec = 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &deadline, sizeof deadline);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const void* raw = &address;
    connected_ = ::connect(fd_, static_cast<const sockaddr*>(raw), sizeof address) == 0;
  }
  ~HttpProbe() { close(); }
  HttpProbe(const HttpProbe&) = delete;
  HttpProbe& operator=(const HttpProbe&) = delete;

  bool connected() const { return connected_; }
  void close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }
  void half_close() { ::shutdown(fd_, SHUT_WR); }

  void send(const std::string& text) {
    for (size_t sent = 0; sent < text.size();) {
      const ssize_t n = ::send(fd_, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
      if (n <= 0) return;
      sent += static_cast<size_t>(n);
    }
  }
  void post(const std::string& path, const std::string& body, const std::string& headers = "") {
    send("POST " + path + " HTTP/1.1\r\nHost: localhost\r\n" + headers +
         "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
  }
  void get(const std::string& path, const std::string& headers = "") {
    send("GET " + path + " HTTP/1.1\r\nHost: localhost\r\n" + headers + "\r\n");
  }

  // Up to and with `mark`; everything up to the end where it never comes.
  std::string read_until(const std::string& mark) {
    while (unread_.find(mark) == std::string::npos && more()) {
    }
    const size_t end = unread_.find(mark);
    return take(end == std::string::npos ? unread_.size() : end + mark.size());
  }

  // The next reply; `has_body` is false for one to HEAD.
  Reply read(bool has_body = true) {
    Reply reply;
    reply.head = read_until("\r\n\r\n");
    if (reply.head.size() > 12) reply.status = std::stoi(reply.head.substr(9, 3));
    if (!has_body) return reply;
    if (reply.head.find("transfer-encoding: chunked") != std::string::npos) {
      while (true) {
        const std::string size = read_until("\r\n");
        const size_t n = size.empty() ? 0 : std::stoul(size, nullptr, 16);
        reply.body += exactly(n);
        exactly(2);
        if (n == 0) return reply;
      }
    }
    const size_t length = reply.head.find("content-length: ");
    if (length != std::string::npos)
      reply.body = exactly(std::stoul(reply.head.substr(length + 16)));
    return reply;
  }

  // Whether the server has closed, once everything else is read.
  bool at_end() { return unread_.empty() && !more(); }

private:
  bool more() {
    char buffer[4096];
    const ssize_t n = ::recv(fd_, buffer, sizeof buffer, 0);
    if (n <= 0) return false;
    unread_.append(buffer, static_cast<size_t>(n));
    return true;
  }
  std::string exactly(size_t n) {
    while (unread_.size() < n && more()) {
    }
    return take(std::min(n, unread_.size()));
  }
  std::string take(size_t n) {
    std::string text = unread_.substr(0, n);
    unread_.erase(0, n);
    return text;
  }

  int fd_;
  bool connected_ = false;
  std::string unread_;
};

}  // namespace kapitsa::test
