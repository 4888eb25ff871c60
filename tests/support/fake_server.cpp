#include "support/fake_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <utility>

namespace kapitsa::test {
namespace {

// Until the empty line that ends the head, or until the client closes.
std::string read_head(int fd) {
  std::string head;
  char c = 0;
  while (!head.ends_with("\r\n\r\n") && ::recv(fd, &c, 1, 0) == 1)
    head.push_back(c);
  return head;
}

FakeRequest parse(const std::string& head) {
  FakeRequest request;
  const size_t first = head.find(' ');
  request.target = head.substr(first + 1, head.find(' ', first + 1) - first - 1);
  for (size_t line = head.find("\r\n") + 2; line < head.size();) {
    const size_t end = head.find("\r\n", line);
    const size_t colon = head.find(": ", line);
    if (colon < end) {
      std::string name = head.substr(line, colon - line);
      std::transform(name.begin(), name.end(), name.begin(),
                     [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
      request.headers[name] = head.substr(colon + 2, end - colon - 2);
    }
    line = end + 2;
  }
  return request;
}

void send_all(int fd, const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t n = ::send(fd, text.data() + done, text.size() - done, MSG_NOSIGNAL);
    if (n <= 0) return;
    done += static_cast<size_t>(n);
  }
}

}  // namespace

std::string FakeRequest::header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? "" : found->second;
}

std::optional<int64_t> FakeRequest::range_start() const {
  const std::string range = header("range");
  if (!range.starts_with("bytes=")) return std::nullopt;
  return std::atoll(range.c_str() + 6);
}

FakeReply serve_file(const FakeRequest& request, const std::string& content,
                     const std::string& etag) {
  FakeReply reply{.body = content};
  if (!etag.empty()) reply.headers.emplace_back("ETag", etag);
  const auto start = request.range_start();
  const std::string condition = request.header("if-range");
  if (!start || (!condition.empty() && condition != etag)) return reply;
  if (*start >= static_cast<int64_t>(content.size())) return {.status = 416};
  reply.status = 206;
  reply.body = content.substr(static_cast<size_t>(*start));
  reply.headers.emplace_back("Content-Range", "bytes " + std::to_string(*start) + "-" +
                                                  std::to_string(content.size() - 1) + "/" +
                                                  std::to_string(content.size()));
  return reply;
}

FakeServer::FakeServer(Handler handler) : handler_(std::move(handler)) {
  listener_ = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ::bind(listener_, reinterpret_cast<const sockaddr*>(&address), size);
  ::listen(listener_, 64);
  ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
  port_ = ntohs(address.sin_port);
  acceptor_ = std::thread([this] { accept_all(); });
}

FakeServer::~FakeServer() {
  ::shutdown(listener_, SHUT_RDWR);
  acceptor_.join();
  ::close(listener_);
  {
    const std::lock_guard lock(mutex_);
    for (const int fd : open_)
      ::shutdown(fd, SHUT_RDWR);
  }
  for (std::thread& worker : workers_)
    worker.join();
}

std::string FakeServer::url(const std::string& target, const std::string& host) const {
  return "http://" + host + ":" + std::to_string(port_) + target;
}

std::vector<FakeRequest> FakeServer::requests() const {
  const std::lock_guard lock(mutex_);
  return requests_;
}

void FakeServer::accept_all() {
  while (true) {
    const int fd = ::accept(listener_, nullptr, nullptr);
    if (fd < 0) return;
    {
      const std::lock_guard lock(mutex_);
      open_.push_back(fd);
    }
    workers_.emplace_back([this, fd] { answer(fd); });
  }
}

void FakeServer::answer(int fd) {
  const std::string head = read_head(fd);
  if (!head.empty()) {
    const FakeRequest request = parse(head);
    {
      const std::lock_guard lock(mutex_);
      requests_.push_back(request);
    }
    const FakeReply reply = handler_(request);
    const int64_t length =
        reply.claimed_length >= 0 ? reply.claimed_length : static_cast<int64_t>(reply.body.size());
    std::string text = "HTTP/1.1 " + std::to_string(reply.status) +
                       " Reply\r\nConnection: close\r\nContent-Length: " + std::to_string(length) +
                       "\r\n";
    for (const auto& [name, value] : reply.headers)
      text.append(name).append(": ").append(value).append("\r\n");
    text.append("\r\n").append(reply.body, 0, reply.send.value_or(reply.body.size()));
    send_all(fd, text);
    char ignored = 0;
    while (reply.stall && ::recv(fd, &ignored, 1, 0) > 0) {
    }
  }
  const std::lock_guard lock(mutex_);
  std::erase(open_, fd);
  ::close(fd);
}

}  // namespace kapitsa::test
