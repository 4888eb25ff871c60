// Requests are parsed by Beast; answers are written by hand, one buffer for what has gathered.
// While an answer is open the socket is read all the time, for that is how a client that goes away
// shows: what it sends meanwhile is kept for the next request.
#include "server/http/connection.h"

#include <boost/asio/dispatch.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http/read.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace kapitsa::server::http {
namespace {

constexpr size_t kMaxPipelined = size_t{64} << 10;  // bytes kept for the requests after this one
constexpr size_t kMaxUnsent = size_t{32} << 20;  // bytes of an answer that a client has not taken
constexpr std::chrono::seconds kLinger{2};       // for a client that still sends what was refused

bool is_http_error(const beast::error_code& error) {
  return error.category() ==
         beast::error_code(beast::http::make_error_code(beast::http::error::bad_method)).category();
}

int status_of(const beast::error_code& error) {
  if (error == beast::http::error::header_limit || error == beast::http::error::buffer_overflow)
    return 431;
  if (error == beast::http::error::body_limit) return 413;
  return 400;
}

std::string_view view(beast::string_view text) {
  return {text.data(), text.size()};
}

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result)
    c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

std::string path_of(std::string_view target) {
  // The absolute form, "http://host/path", is for proxies, but allowed (RFC 9112 section 3.2.2).
  if (const size_t scheme = target.find("://"); scheme != target.npos && scheme < 8) {
    const size_t slash = target.find('/', scheme + 3);
    target = slash == target.npos ? std::string_view("/") : target.substr(slash);
  }
  return std::string(target.substr(0, target.find_first_of("?#")));
}

// A header value from the API must not end the line.
void append_header(std::string& head, std::string_view name, std::string_view value) {
  head += name;
  head += ": ";
  for (const char c : value)
    head += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  head += "\r\n";
}

std::string head_of(int status, std::string_view type, const Headers& headers) {
  std::string head = fmt::format("HTTP/1.1 {} {}\r\n", status, reason_phrase(status));
  if (!type.empty()) append_header(head, "content-type", type);
  for (const auto& [name, value] : headers)
    append_header(head, name, value);
  return head;
}

}  // namespace

Connection::Connection(Socket socket, std::shared_ptr<Core> core, asio::io_context& io)
    : stream_(std::move(socket)), core_(std::move(core)), io_(io),
      buffer_(core_->options.max_header_bytes + kMaxPipelined), timer_(io) {
  beast::error_code ignored;
  static_cast<void>(stream_.socket().set_option(asio::ip::tcp::no_delay(true), ignored));
}

Connection::~Connection() = default;

void Connection::read_head() {
  state_ = State::reading;
  if (core_->draining) return close();
  parser_.emplace();
  parser_->header_limit(static_cast<std::uint32_t>(core_->options.max_header_bytes));
  parser_->body_limit(core_->options.max_body_bytes);
  stream_.expires_after(core_->options.idle_timeout);
  beast::http::async_read_header(
      stream_, buffer_, *parser_,
      [self = shared_from_this()](beast::error_code error, size_t) { self->on_head(error); });
}

void Connection::on_head(beast::error_code error) {
  if (state_ == State::closed) return;
  if (error) return refuse(error);
  const std::string expect = lower(view(parser_->get()[beast::http::field::expect]));
  if (expect == "100-continue" && !parser_->is_done()) {
    static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
    stream_.expires_after(core_->options.write_timeout);
    asio::async_write(stream_, asio::buffer(kContinue.data(), kContinue.size()),
                      [self = shared_from_this()](beast::error_code failed, size_t) {
                        if (failed) return self->close();
                        self->read_body();
                      });
    return;
  }
  read_body();
}

void Connection::read_body() {
  stream_.expires_after(core_->options.body_timeout);
  beast::http::async_read(
      stream_, buffer_, *parser_,
      [self = shared_from_this()](beast::error_code error, size_t) { self->on_body(error); });
}

void Connection::on_body(beast::error_code error) {
  if (state_ == State::closed) return;
  if (error) return refuse(error);
  dispatch();
}

void Connection::refuse(beast::error_code error) {
  const bool timed_out = error == beast::error::timeout;
  if (timed_out || !is_http_error(error) || error == beast::http::error::end_of_stream ||
      error == beast::http::error::partial_message) {
    return close();
  }
  const std::string path = parser_->is_header_done() ? path_of(view(parser_->get().target())) : "";
  const int status = status_of(error);
  const std::string message =
      status == 413
          ? fmt::format("the request body is larger than {} bytes", core_->options.max_body_bytes)
      : status == 431
          ? fmt::format("the request head is larger than {} bytes", core_->options.max_header_bytes)
          : "not a valid HTTP request: " + error.message();
  keep_open_ = false;
  head_only_ = false;
  state_ = State::answering;
  respond(core_->callbacks.refuse(status, message, path));
}

void Connection::dispatch() {
  auto& message = parser_->get();
  Request request;
  request.method = std::string(view(message.method_string()));
  request.path = path_of(view(message.target()));
  for (const auto& field : message)
    request.headers.emplace_back(lower(view(field.name_string())),
                                 std::string(view(field.value())));
  request.body = std::move(message.body());
  keep_open_ = parser_->keep_alive() && !core_->draining;
  head_only_ = request.method == "HEAD";
  chunked_ = message.version() >= 11;
  last_written_ = false;
  state_ = State::answering;
  exchange_ = std::make_shared<ExchangeImpl>(std::move(request), shared_from_this());
  const auto exchange = exchange_;  // the handler may finish it
  watch();
  core_->callbacks.handler(exchange);
}

void Connection::watch() {
  if (watching_ || state_ != State::answering || buffer_.size() >= kMaxPipelined) return;
  watching_ = true;
  stream_.expires_never();
  stream_.async_read_some(
      buffer_.prepare(4096),
      [self = shared_from_this()](beast::error_code error, size_t n) { self->on_watch(error, n); });
}

void Connection::on_watch(beast::error_code error, size_t n) {
  watching_ = false;
  if (state_ == State::closed) return;
  buffer_.commit(n);
  if (state_ == State::finishing) {
    if (error && error != asio::error::operation_aborted) return close();
    return next();
  }
  if (error) return close();
  watch();
}

void Connection::respond(const Response& response) {
  if (state_ != State::answering || last_written_) return;
  std::string bytes = head_of(response.status, response.content_type, response.headers);
  if (response.status != 204)
    append_header(bytes, "content-length", std::to_string(response.body.size()));
  append_header(bytes, "connection", keep_open_ ? "keep-alive" : "close");
  bytes += "\r\n";
  if (!head_only_) bytes += response.body;
  last_written_ = true;
  write(bytes);
}

void Connection::begin(Stream stream) {
  if (state_ != State::answering || last_written_) return;
  stream_info_ = std::move(stream);
  if (!chunked_) keep_open_ = false;
  std::string bytes = head_of(200, stream_info_.content_type, stream_info_.headers);
  append_header(bytes, "connection", keep_open_ ? "keep-alive" : "close");
  if (chunked_) append_header(bytes, "transfer-encoding", "chunked");
  bytes += "\r\n";
  write(bytes);
  if (stream_info_.keep_alive) arm_keep_alive();
}

void Connection::send(std::string_view text) {
  if (state_ != State::answering || last_written_ || text.empty()) return;
  if (queue_.size() > kMaxUnsent) return close();
  write(chunked_ ? fmt::format("{:x}\r\n{}\r\n", text.size(), text) : std::string(text));
}

void Connection::end() {
  if (state_ != State::answering || last_written_) return;
  last_written_ = true;
  timer_.cancel();
  write(chunked_ ? "0\r\n\r\n" : "");
}

void Connection::arm_keep_alive() {
  timer_.expires_after(stream_info_.keep_alive_after / 2);
  timer_.async_wait([self = shared_from_this()](beast::error_code error) {
    if (error || self->state_ != State::answering || self->last_written_) return;
    const auto silent = std::chrono::steady_clock::now() - self->last_sent_;
    if (silent >= self->stream_info_.keep_alive_after) self->send(self->stream_info_.keep_alive());
    self->arm_keep_alive();
  });
}

void Connection::write(std::string_view bytes) {
  queue_ += bytes;
  last_sent_ = std::chrono::steady_clock::now();
  if (!writing_) write_next();
}

void Connection::write_next() {
  if (queue_.empty()) {
    if (last_written_) finished();
    return;
  }
  writing_ = true;
  sending_.swap(queue_);
  queue_.clear();
  stream_.expires_after(core_->options.write_timeout);
  asio::async_write(
      stream_, asio::buffer(sending_),
      [self = shared_from_this()](beast::error_code error, size_t) { self->on_written(error); });
}

void Connection::on_written(beast::error_code error) {
  writing_ = false;
  sending_.clear();
  if (state_ == State::closed) return;
  if (error) return close();
  write_next();
}

void Connection::finished() {
  const bool refused = exchange_ == nullptr;
  state_ = State::finishing;
  if (exchange_) std::exchange(exchange_, nullptr)->detach(false);
  stream_info_ = {};
  if (refused) return linger();
  if (watching_) return stream_.cancel();  // on_watch() goes on
  next();
}

void Connection::next() {
  if (keep_open_ && !core_->draining) return read_head();
  beast::error_code ignored;
  static_cast<void>(stream_.socket().shutdown(asio::ip::tcp::socket::shutdown_send, ignored));
  close();
}

// Closing while unread bytes wait would reset the connection, and the client might lose the answer.
void Connection::linger() {
  if (state_ != State::lingering) {
    state_ = State::lingering;
    beast::error_code ignored;
    static_cast<void>(stream_.socket().shutdown(asio::ip::tcp::socket::shutdown_send, ignored));
    stream_.expires_after(kLinger);
  }
  stream_.async_read_some(asio::buffer(scratch_),
                          [self = shared_from_this()](beast::error_code error, size_t) {
                            if (error) return self->close();
                            self->linger();
                          });
}

void Connection::close_when_idle() {
  if (state_ == State::reading) return close();
  keep_open_ = false;
}

void Connection::close() {
  if (state_ == State::closed) return;
  state_ = State::closed;
  timer_.cancel();
  stream_info_ = {};
  stream_.close();
  if (exchange_) std::exchange(exchange_, nullptr)->detach(true);
  core_->closed(this);
}

// --- ExchangeImpl --------------------------------------------------------------------------------

ExchangeImpl::ExchangeImpl(Request request, std::shared_ptr<Connection> connection)
    : request_(std::move(request)), io_(connection->io()), core_(connection->core()),
      connection_(std::move(connection)) {}

void ExchangeImpl::post(std::function<void()> task) {
  asio::post(io_, std::move(task));
}

void ExchangeImpl::work(std::function<void()> task) {
  core_->work(std::move(task));
}

template <typename Action>
void ExchangeImpl::with_connection(Action action) {
  asio::dispatch(io_, [self = shared_from_this(), action = std::move(action)]() mutable {
    if (const auto connection = self->connection_) action(*connection);
  });
}

void ExchangeImpl::respond(Response response) {
  with_connection([response = std::move(response)](Connection& c) { c.respond(response); });
}

void ExchangeImpl::begin(Stream stream) {
  with_connection(
      [stream = std::move(stream)](Connection& c) mutable { c.begin(std::move(stream)); });
}

void ExchangeImpl::send(std::string text) {
  with_connection([text = std::move(text)](Connection& c) { c.send(text); });
}

void ExchangeImpl::end() {
  with_connection([](Connection& c) { c.end(); });
}

void ExchangeImpl::on_closed(std::function<void()> action) {
  asio::dispatch(io_, [self = shared_from_this(), action = std::move(action)]() mutable {
    if (self->connection_) {
      self->on_closed_ = std::move(action);
    } else if (self->closed_early_) {
      action();
    }
  });
}

void ExchangeImpl::detach(bool early) {
  connection_ = nullptr;
  closed_early_ = early;
  const auto action = std::exchange(on_closed_, nullptr);
  if (early && action) action();
}

}  // namespace kapitsa::server::http
