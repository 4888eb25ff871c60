// One connection of a client: reads requests one after the other, and writes the answers. Runs on
// the I/O thread only; ExchangeImpl is the way in from other threads.
#pragma once

#include "server/http/http_server.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/basic_stream.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include <deque>
#include <memory>
#include <optional>

namespace kapitsa::server::http {

namespace asio = boost::asio;
namespace beast = boost::beast;
using Executor = asio::io_context::executor_type;
using Socket = asio::basic_stream_socket<asio::ip::tcp, Executor>;

class Connection;
class ExchangeImpl;

// What the connections of one server share. Used on the I/O thread only, except `io`.
struct Core {
  HttpOptions options;
  HttpCallbacks callbacks;
  std::function<void(std::function<void()>)> work;
  std::function<void(Connection*)> closed;
  bool draining = false;
};

class Connection : public std::enable_shared_from_this<Connection> {
public:
  Connection(Socket socket, std::shared_ptr<Core> core, asio::io_context& io);
  ~Connection();

  void start() { read_head(); }
  // At once when no answer is open; else after it.
  void close_when_idle();
  void close();

  // Of the open exchange.
  void respond(const Response& response);
  void begin(Stream stream);
  void send(std::string_view text);
  void end();
  asio::io_context& io() { return io_; }
  const std::shared_ptr<Core>& core() const { return core_; }

private:
  enum class State : uint8_t { reading, answering, finishing, lingering, closed };

  void read_head();
  void on_head(beast::error_code error);
  void read_body();
  void on_body(beast::error_code error);
  void refuse(beast::error_code error);
  void dispatch();
  void watch();
  void on_watch(beast::error_code error, size_t n);
  void write(std::string_view bytes);
  void write_next();
  void on_written(beast::error_code error);
  void finished();
  void next();
  void linger();
  void arm_keep_alive();

  using Parser = beast::http::request_parser<beast::http::string_body>;

  beast::basic_stream<asio::ip::tcp, Executor> stream_;
  std::shared_ptr<Core> core_;
  asio::io_context& io_;
  beast::flat_buffer buffer_;
  std::optional<Parser> parser_;
  std::shared_ptr<ExchangeImpl> exchange_;

  State state_ = State::reading;
  bool keep_open_ = false;
  bool head_only_ = false;
  bool chunked_ = false;
  bool last_written_ = false;  // the answer is complete in `queue_`
  bool watching_ = false;
  bool writing_ = false;
  std::string queue_;    // not yet given to the socket
  std::string sending_;  // being sent
  std::array<char, 4096> scratch_{};
  asio::basic_waitable_timer<std::chrono::steady_clock,
                             asio::wait_traits<std::chrono::steady_clock>, Executor>
      timer_;
  Stream stream_info_;
  std::chrono::steady_clock::time_point last_sent_;
};

class ExchangeImpl final : public Exchange, public std::enable_shared_from_this<ExchangeImpl> {
public:
  ExchangeImpl(Request request, std::shared_ptr<Connection> connection);

  const Request& request() const override { return request_; }
  void post(std::function<void()> task) override;
  void work(std::function<void()> task) override;
  void respond(Response response) override;
  void begin(Stream stream) override;
  void send(std::string text) override;
  void end() override;
  void on_closed(std::function<void()> action) override;

  // The connection is done with this exchange; `early`: before the answer was complete.
  void detach(bool early);

private:
  template <typename Action>
  void with_connection(Action action);

  const Request request_;
  asio::io_context& io_;
  const std::shared_ptr<Core> core_;
  // On the I/O thread only.
  std::shared_ptr<Connection> connection_;
  std::function<void()> on_closed_;
  bool closed_early_ = false;
};

}  // namespace kapitsa::server::http
