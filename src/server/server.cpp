#include "server/server.h"

#include "server/api/info.h"
#include "server/api/messages.h"
#include "server/handlers.h"
#include "server/http/http_server.h"
#include "server/service.h"

namespace kapitsa::server {
namespace {

class ServerImpl final : public Server {
public:
  explicit ServerImpl(const ServerOptions& options) : service_(std::make_shared<Service>()) {
    service_->log = options.log;
    service_->max_requests = options.max_requests;
    service_->keep_alive_after = options.keep_alive_after;
  }

  ~ServerImpl() override {
    stop(std::chrono::milliseconds(0));
    // The engine's last events go to the HTTP server, so the engine ends first.
    if (loaded_ != nullptr) loaded_->engine = nullptr;
  }

  Status open(const ServerOptions& options) {
    if (!is_loopback(options.host) && options.api_key.empty())
      return Error{ErrorCode::invalid_argument,
                   "host: other machines can reach " + options.host +
                       ", so a key is needed: --api-key, or KAPITSA_API_KEY"};
    const Handlers handlers(service_, {.bound_host = options.host,
                                       .more_hosts = options.allowed_hosts,
                                       .origins = options.allowed_origins,
                                       .api_key = options.api_key});
    http::HttpOptions http;
    http.host = options.host == "localhost" ? "127.0.0.1" : options.host;
    http.port = options.port;
    KAPITSA_ASSIGN(http_, http::HttpServer::start(
                              http, {.handler = [handlers](const auto& e) { handlers.handle(e); },
                                     .refuse = &Handlers::refuse}));
    return {};
  }

  uint16_t port() const override { return http_->port(); }

  void serve(std::unique_ptr<Engine> engine, const std::string& name) override {
    auto loaded = std::make_shared<Loaded>();
    loaded->facts.name = name;
    loaded->facts.info = engine->model();
    loaded->facts.format = text::output_format(loaded->facts.info.chat_template);
    loaded->facts.created = std::chrono::duration_cast<std::chrono::seconds>(
                                std::chrono::system_clock::now().time_since_epoch())
                                .count();
    api::probe_template(*engine, loaded->facts);
    loaded->engine = std::move(engine);
    loaded_ = loaded;
    service_->set(std::move(loaded));
  }

  void wait_for_signal() override { http_->wait_for_signal(); }

  void stop(std::chrono::milliseconds drain) override {
    service_->draining = true;
    if (http_) http_->stop(drain);
  }

private:
  std::shared_ptr<Service> service_;
  std::unique_ptr<http::HttpServer> http_;
  std::shared_ptr<Loaded> loaded_;
};

}  // namespace

Result<std::unique_ptr<Server>> Server::start(const ServerOptions& options) {
  auto server = std::make_unique<ServerImpl>(options);
  KAPITSA_TRY(server->open(options));
  return std::unique_ptr<Server>(std::move(server));
}

Result<ServedModel> read_models(const std::string& json) {
  KAPITSA_ASSIGN(const api::ReadModel model, api::read_models(json));
  return ServedModel{.name = model.name, .context = model.context, .reasoning = model.reasoning};
}

bool reasons(const ModelInfo& model) {
  return !text::output_format(model.chat_template).reasoning_end.empty();
}

}  // namespace kapitsa::server
