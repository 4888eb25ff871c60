// The listener, the two kinds of threads, and the end of it all.
#include "server/http/http_server.h"

#include "server/http/connection.h"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <fmt/format.h>

#include <condition_variable>
#include <csignal>
#include <deque>
#include <mutex>
#include <thread>
#include <unordered_set>
#include <vector>

namespace kapitsa::server::http {
namespace {

// Threads that run tasks in the order in which they come.
class Workers {
public:
  explicit Workers(int n) {
    for (int i = 0; i < n; ++i)
      threads_.emplace_back([this] { loop(); });
  }
  ~Workers() { stop(); }
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  // Tasks that run end, others are dropped.
  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_)
      thread.join();
    threads_.clear();
  }
  void add(std::function<void()> task) {
    {
      const std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    wake_.notify_one();
  }

private:
  void loop() {
    while (true) {
      std::function<void()> task;
      {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [&] { return stop_ || !tasks_.empty(); });
        if (stop_) return;
        task = std::move(tasks_.front());
        tasks_.pop_front();
      }
      task();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> tasks_;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

class HttpServerImpl final : public HttpServer {
public:
  HttpServerImpl(const HttpOptions& options, HttpCallbacks callbacks)
      : acceptor_(io_), pause_(io_), drain_timer_(io_), signals_(io_),
        keep_running_(io_.get_executor()), core_(std::make_shared<Core>()),
        workers_(options.workers) {
    core_->options = options;
    core_->callbacks = std::move(callbacks);
    core_->work = [this](std::function<void()> task) { workers_.add(std::move(task)); };
    core_->closed = [this](Connection* connection) {
      connections_.erase(connection);
      if (core_->draining && connections_.empty()) io_.stop();
    };
  }

  ~HttpServerImpl() override { stop(std::chrono::milliseconds(0)); }

  Status open() {
    const HttpOptions& options = core_->options;
    beast::error_code error;
    const auto address = asio::ip::make_address(options.host, error);
    if (error)
      return Error{ErrorCode::invalid_argument,
                   fmt::format("host: expected an IP address, found '{}'", options.host)};
    const asio::ip::tcp::endpoint endpoint(address, options.port);
    static_cast<void>(acceptor_.open(endpoint.protocol(), error));
    if (!error)
      static_cast<void>(acceptor_.set_option(asio::socket_base::reuse_address(true), error));
    if (!error) static_cast<void>(acceptor_.bind(endpoint, error));
    if (!error)
      static_cast<void>(acceptor_.listen(asio::socket_base::max_listen_connections, error));
    if (error == asio::error::address_in_use)
      return Error{ErrorCode::io, fmt::format("port {} on {} is in use; choose another with --port",
                                              options.port, options.host)};
    if (error)
      return Error{ErrorCode::io, fmt::format("cannot listen on port {} of {}: {}", options.port,
                                              options.host, error.message())};
    port_ = acceptor_.local_endpoint(error).port();
    accept();
    thread_ = std::thread([this] { io_.run(); });
    return {};
  }

  uint16_t port() const override { return port_; }

  void stop(std::chrono::milliseconds drain) override {
    if (!thread_.joinable()) return;
    asio::post(io_, [this, drain] { begin_drain(drain); });
    thread_.join();
    workers_.stop();
    // What is left was closed by the drain timer, or has no thread any more: only ends.
    for (const auto& [connection, owner] : std::exchange(connections_, {}))
      owner->close();
  }

  void wait_for_signal() override {
    std::mutex mutex;
    std::condition_variable came;
    bool done = false;
    asio::post(io_, [&] {
      static_cast<void>(signals_.add(SIGINT));
      static_cast<void>(signals_.add(SIGTERM));
      signals_.async_wait([&](beast::error_code, int) {
        {
          const std::lock_guard lock(mutex);
          done = true;
          came.notify_one();
        }
        signals_.async_wait([this](beast::error_code error, int) {
          if (!error) close_all();
        });
      });
    });
    std::unique_lock lock(mutex);
    came.wait(lock, [&] { return done; });
  }

private:
  void accept() {
    acceptor_.async_accept([this](beast::error_code error, Socket socket) {
      if (error == asio::error::operation_aborted || core_->draining) return;
      if (error) {  // no file handles left: wait for some
        pause_.expires_after(std::chrono::milliseconds(100));
        pause_.async_wait([this](beast::error_code) {
          if (!core_->draining) accept();
        });
        return;
      }
      if (connections_.size() < core_->options.max_connections) {
        auto connection = std::make_shared<Connection>(std::move(socket), core_, io_);
        connections_.emplace(connection.get(), connection);
        connection->start();
      }
      accept();
    });
  }

  void begin_drain(std::chrono::milliseconds drain) {
    core_->draining = true;
    beast::error_code ignored;
    static_cast<void>(acceptor_.close(ignored));
    pause_.cancel();
    for (const auto& connection : all_connections())
      connection->close_when_idle();
    if (connections_.empty()) return io_.stop();
    if (drain.count() == 0) return close_all();
    drain_timer_.expires_after(drain);
    drain_timer_.async_wait([this](beast::error_code error) {
      if (!error) close_all();
    });
  }

  void close_all() {
    for (const auto& connection : all_connections())
      connection->close();
  }

  // A copy: closing one takes it out of the map.
  std::vector<std::shared_ptr<Connection>> all_connections() const {
    std::vector<std::shared_ptr<Connection>> all;
    for (const auto& [key, connection] : connections_)
      all.push_back(connection);
    return all;
  }

  using Timer = asio::basic_waitable_timer<std::chrono::steady_clock,
                                           asio::wait_traits<std::chrono::steady_clock>, Executor>;
  asio::io_context io_;
  asio::basic_socket_acceptor<asio::ip::tcp, Executor> acceptor_;
  Timer pause_;
  Timer drain_timer_;
  asio::basic_signal_set<Executor> signals_;
  asio::executor_work_guard<Executor> keep_running_;
  std::shared_ptr<Core> core_;
  std::unordered_map<Connection*, std::shared_ptr<Connection>> connections_;
  uint16_t port_ = 0;
  std::thread thread_;
  Workers workers_;  // ends first: its tasks use all the rest
};

}  // namespace

Result<std::unique_ptr<HttpServer>> HttpServer::start(const HttpOptions& options,
                                                      HttpCallbacks callbacks) {
  auto server = std::make_unique<HttpServerImpl>(options, std::move(callbacks));
  KAPITSA_TRY(server->open());
  return std::unique_ptr<HttpServer>(std::move(server));
}

}  // namespace kapitsa::server::http
