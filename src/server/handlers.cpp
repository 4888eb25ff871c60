#include "server/handlers.h"

#include "server/api/dialects.h"
#include "server/api/info.h"
#include "server/generation.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace kapitsa::server {
namespace {

using Exchange = std::shared_ptr<http::Exchange>;
using ServicePtr = std::shared_ptr<Service>;

// A route that computes its reply: on a worker, once the model is there.
using Compute = std::string (*)(const Loaded&, std::string_view body, api::ApiError& error);

struct Route {
  std::string_view path;
  std::string_view method;  // GET allows HEAD
  bool open = false;        // needs no key
};

constexpr std::array kRoutes = {
    Route{"/", "GET", true},
    Route{"/health", "GET", true},
    Route{"/ready", "GET", true},
    Route{"/version", "GET", true},
    Route{"/metrics", "GET"},
    Route{"/status", "GET"},
    Route{"/models", "GET"},
    Route{"/tokenize", "POST"},
    Route{"/detokenize", "POST"},
    Route{"/apply-template", "POST"},
    Route{"/chat/completions", "POST"},
    Route{"/completions", "POST"},
    Route{"/responses", "POST"},
    Route{"/messages", "POST"},
    Route{"/messages/count_tokens", "POST"},
};

const Route* find_route(std::string_view path) {
  const auto found = std::find_if(kRoutes.begin(), kRoutes.end(),
                                  [&](const Route& route) { return route.path == path; });
  return found == kRoutes.end() ? nullptr : &*found;
}

// What one request carries through the functions below.
struct Context {
  Exchange exchange;
  ServicePtr service;
  std::string path;  // the route
  RequestRecord record;
  Clock::time_point received = Clock::now();
  http::Headers headers;  // of any reply

  // Probes come every few seconds; a line for each would hide the others.
  bool asked_often() const {
    return record.status == 200 && (path == "/health" || path == "/ready" || path == "/metrics");
  }
  void respond(http::Response response) {
    for (const auto& header : headers)
      response.headers.push_back(header);
    record.status = response.status;
    record.seconds = std::chrono::duration<double>(Clock::now() - received).count();
    exchange->respond(std::move(response));
    service->record(record, !asked_often());
  }
  void fail(const api::ApiError& error) {
    record.error = error.message;
    respond(api::error_response(api::family_of(path), error, record.id));
  }
  void reply(std::string body, const char* type = "application/json") {
    http::Response response{.content_type = type};
    response.headers = {{api::request_id_header(api::family_of(path)), record.id}};
    response.body = std::move(body);
    respond(std::move(response));
  }
};

api::StatusFigures figures_of(const Service& service) {
  api::StatusFigures figures;
  figures.uptime_seconds = std::chrono::duration<double>(Clock::now() - service.started).count();
  figures.open_requests = service.open_requests;
  figures.max_requests = service.max_requests;
  const Clock::time_point last{Clock::duration(service.last_progress.load())};
  const bool stuck = service.open_requests > 0 && Clock::now() - last > service.stuck_after;
  figures.state = service.draining              ? "draining"
                  : service.loaded() == nullptr ? "loading"
                  : service.failed              ? "failed"
                  : stuck                       ? "stuck"
                                                : "ready";
  return figures;
}

void health(Context& context) {
  const api::StatusFigures figures = figures_of(*context.service);
  http::Response response{.status = figures.state == "ready" ? 200 : 503};
  response.body = api::health_json(figures);
  context.respond(std::move(response));
}

// The page loads nothing from elsewhere, and may not.
void page(Context& context) {
  http::Response response{.content_type = "text/html; charset=utf-8"};
  response.headers = {{"content-security-policy",
                       "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
                       "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
                       "frame-ancestors 'none'"},
                      {"x-content-type-options", "nosniff"}};
  response.body = chat_page();
  context.respond(std::move(response));
}

void metrics(Context& context) {
  std::map<std::string, double> gauges = {
      {"open_requests", context.service->open_requests},
      {"up", figures_of(*context.service).state == "ready" ? 1.0 : 0.0}};
  if (const auto loaded = context.service->loaded()) {
    gauges["context_tokens"] = loaded->facts.info.context;
    gauges["memory_bytes"] = static_cast<double>(loaded->facts.info.memory_bytes);
  }
  context.reply(context.service->metrics.text(gauges), "text/plain; version=0.0.4");
}

api::ApiError not_ready(const Service& service) {
  if (service.draining)
    return {.status = 503,
            .message = "the server is stopping; try again",
            .code = "server_stopping",
            .retry_after = 5};
  if (service.loaded() == nullptr)
    return {.status = 503,
            .message = "the model is being loaded; try again",
            .code = "model_loading",
            .retry_after = 2};
  return {};
}

api::ApiError full(const Service& service) {
  if (service.open_requests < service.max_requests) return {};
  return {.status = 429,
          .message = fmt::format("{} requests are open, as many as this server takes; try again",
                                 service.open_requests.load()),
          .code = "rate_limit_exceeded",
          .retry_after = 2};
}

// Reads the body and starts the answer; on a worker.
void start_answer(Context& context) {
  const auto loaded = context.service->loaded();
  api::ApiError error;
  const std::string& body = context.exchange->request().body;
  auto parsed = api::parse_request(context.path, body, loaded->facts, context.record.id, error);
  if (!error && parsed.call.chat && !loaded->facts.info.has_chat_template)
    error = api::invalid("", "the model has no chat template; use /v1/completions");
  if (error) return context.fail(error);
  generate(context.exchange, context.service, std::move(parsed.call), std::move(parsed.dialect),
           context.record, context.received);
}

void compute(Context& context) {
  const auto loaded = context.service->loaded();
  const Engine& engine = *loaded->engine;
  const std::string& body = context.exchange->request().body;
  api::ApiError error;
  std::string reply;
  if (context.path == "/tokenize") {
    reply = api::tokenize(engine, loaded->facts, body, error);
  } else if (context.path == "/detokenize") {
    reply = api::detokenize(engine, body, error);
  } else if (context.path == "/apply-template") {
    reply = api::apply_template(engine, loaded->facts, body, error);
  } else {
    reply = api::count_tokens(engine, loaded->facts, body, error);
  }
  if (error) return context.fail(error);
  context.reply(std::move(reply));
}

void models(Context& context, std::string_view name) {
  const auto loaded = context.service->loaded();
  if (name.empty()) return context.reply(api::models_json(loaded->facts));
  if (name == loaded->facts.name) return context.reply(api::model_json(loaded->facts));
  context.fail({.status = 404,
                .message = fmt::format("there is no model '{}'; this server has '{}'", name,
                                       loaded->facts.name),
                .code = "model_not_found"});
}

void on_worker(Context context, void (*action)(Context&)) {
  const Exchange exchange = context.exchange;
  exchange->work([context = std::move(context), action]() mutable { action(context); });
}

bool generates(std::string_view path) {
  return path == "/chat/completions" || path == "/completions" || path == "/responses" ||
         path == "/messages";
}

void dispatch(Context context) {
  const std::string& path = context.path;
  if (path == "/") return page(context);
  if (path == "/health" || path == "/ready") return health(context);
  if (path == "/metrics") return metrics(context);
  if (path == "/version") return context.reply(api::version_json());
  if (path == "/status") {
    const auto loaded = context.service->loaded();
    return context.reply(
        api::status_json(loaded ? &loaded->facts : nullptr, figures_of(*context.service)));
  }
  if (const api::ApiError error = not_ready(*context.service); error) return context.fail(error);
  if (path == "/models") return models(context, "");
  if (path.starts_with("/models/")) return models(context, std::string_view(path).substr(8));
  if (!generates(path)) return on_worker(std::move(context), compute);
  if (const api::ApiError error = full(*context.service); error) return context.fail(error);
  on_worker(std::move(context), start_answer);
}

bool preflight(const Context& context) {
  return context.exchange->request().method == "OPTIONS" && !context.headers.empty();
}

}  // namespace

std::string route_of(std::string_view path) {
  while (path.starts_with("/v1/") || path == "/v1")
    path.remove_prefix(3);
  while (path.size() > 1 && path.ends_with('/'))
    path.remove_suffix(1);
  return path.empty() ? "/" : std::string(path);
}

void Handlers::handle(const std::shared_ptr<http::Exchange>& exchange) const {
  const http::Request& request = exchange->request();
  Context context{.exchange = exchange, .service = service_, .path = route_of(request.path)};
  context.record.id = random_id();
  context.record.method = request.method;
  context.record.path = request.path;
  context.headers = cors_headers(policy_, request);
  const bool one_model = context.path.starts_with("/models/");
  const Route* route = find_route(one_model ? "/models" : std::string_view(context.path));
  if (preflight(context)) return context.respond({.status = 204});
  if (const auto error = check_access(policy_, request, route != nullptr && route->open); error)
    return context.fail(error);
  if (route == nullptr)
    return context.fail({.status = 404, .message = fmt::format("there is no {}", request.path)});
  const bool fits =
      request.method == route->method || (request.method == "HEAD" && route->method == "GET");
  if (!fits) {
    context.headers.emplace_back("allow", std::string(route->method));
    return context.fail({.status = 405,
                         .message = fmt::format("{} takes {}, not {}", request.path, route->method,
                                                request.method)});
  }
  if (const auto coding = request.header("content-encoding");
      !coding.empty() && coding != "identity")
    return context.fail({.status = 415,
                         .message = fmt::format("request bodies compressed with '{}' are not "
                                                "supported; send them plain",
                                                coding)});
  dispatch(std::move(context));
}

http::Response Handlers::refuse(int status, const std::string& message, const std::string& path) {
  return api::error_response(api::family_of(path), {.status = status, .message = message},
                             random_id());
}

}  // namespace kapitsa::server
