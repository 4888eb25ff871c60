// kapitsa serve: one model behind the OpenAI and Anthropic APIs, until a signal. What happens is
// told on stderr, a line for each request.
#include "cli/serve.h"

#include "base/env.h"
#include "base/json_write.h"
#include "base/system.h"
#include "cli/cli.h"
#include "cli/models.h"
#include "cli/options.h"
#include "server/server.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>
#include <cstdio>

namespace kapitsa::cli {
namespace {

constexpr std::chrono::seconds kDrain{10};  // for open answers, after a signal

struct ServeOptions {
  std::string model;
  std::string model_option;
  std::string name;
  std::string log_format = "text";
  int32_t port = kDefaultPort;
  int32_t parallel = 4;
  bool quiet = false;
  server::ServerOptions server;
  MachineOptions machine;
};

std::string time_text() {
  return fmt::format("{:%H:%M:%S}", fmt::localtime(std::time(nullptr)));
}

// What is not a request: "loading", "ready", "stopping".
class Teller {
public:
  explicit Teller(const ServeOptions& options)
      : json_(options.log_format == "json"), quiet_(options.quiet) {}

  void event(const char* name, const std::string& text) const {
    if (json_) {
      JsonWriter json;
      json.begin_object().member("event", name).member("message", text);
      std::fprintf(stderr, "%s\n", json.end_object().take().c_str());
    } else if (!quiet_) {
      std::fprintf(stderr, "%s\n", one_line(text).c_str());
    }
  }

  void request(const server::RequestRecord& record) const {
    if (json_) {
      std::fprintf(stderr, "%s\n", server::record_json(record).c_str());
    } else if (!quiet_) {
      std::fprintf(stderr, "%s %s\n", time_text().c_str(),
                   one_line(server::record_text(record)).c_str());
    }
  }

private:
  const bool json_;
  const bool quiet_;
};

int serve(ServeOptions& options) {
  const Teller teller(options);
  const auto path = find_or_pull_model(options.model, options.quiet);
  if (!path && path.error().code == ErrorCode::cancelled) return kExitInterrupted;
  if (!path) return report(path.error());
  if (options.server.api_key.empty())
    options.server.api_key = environment("KAPITSA_API_KEY").value_or("");
  options.server.port = static_cast<uint16_t>(options.port);
  options.server.log = [&](const server::RequestRecord& record) { teller.request(record); };
  // The port first: to learn that it is in use after minutes of loading is a nuisance.
  const auto server = server::Server::start(options.server);
  if (!server) return report(server.error());
  LoadOptions load = load_options(options.machine, *path, options.parallel);
  load.progress = [&](const std::string& stage, double share) {
    if (share < 1.0) teller.event("loading", fmt::format("{:3.0f} % {}", share * 100.0, stage));
  };
  auto engine = Engine::load(load);
  if (!engine) return report(engine.error());
  const ModelInfo model = (*engine)->model();
  const std::string name = options.name.empty() ? served_name(options.model) : options.name;
  (*server)->serve(std::move(*engine), name);
  teller.event("ready",
               fmt::format("{} ({}, {} tokens of context, {}) on http://{}:{}", name, model.name,
                           model.context, model.backend, options.server.host, (*server)->port()));
  (*server)->wait_for_signal();
  teller.event("stopping", "stopping; open answers have 10 seconds, a second signal ends them now");
  (*server)->stop(kDrain);
  return 0;
}

}  // namespace

std::string served_name(const std::string& model) {
  const std::filesystem::path path(model);
  if (path.extension() == ".gguf") return path.stem().string();
  const std::filesystem::path last =
      path.has_filename() ? path.filename() : path.parent_path().filename();
  return model.find(':') != model.npos || last.empty() ? model : last.string();
}

void add_serve(const Command& app, int& exit_code) {
  auto options = std::make_shared<ServeOptions>();
  const Command command =
      app.subcommand("serve", "Serve a model behind the OpenAI and Anthropic APIs");
  const Option model =
      command.option("MODEL", options->model,
                     "Name as in 'kapitsa list --all', or path of a model file or folder");
  command.option("-m,--model", options->model_option, "The same as MODEL").excludes(model);
  command.option("--name", options->name, "How the model is called in the API");
  command.option("--port", options->port, "0: one that is free")
      .range(int64_t{0}, int64_t{65535})
      .show_default();
  command.option("--host", options->server.host, "Address to listen on").show_default();
  command.option("--api-key", options->server.api_key,
                 "Key that clients must send; default: KAPITSA_API_KEY, or none");
  command
      .option("--allow-host", options->server.allowed_hosts,
              "Another name of this machine (repeatable)")
      .one_value_each();
  command
      .option("--allow-origin", options->server.allowed_origins,
              "Web page that may call from a browser, such as https://chat.example; *: all")
      .one_value_each();
  command.option("--parallel", options->parallel, "Requests that run at once; more wait")
      .range(int64_t{1}, int64_t{32})
      .show_default();
  command.option("--queue", options->server.max_requests, "Most requests that run and wait")
      .range(int64_t{1}, int64_t{100000})
      .show_default();
  command.option("--log-format", options->log_format, "text, or json: one object a line")
      .one_of({"text", "json"});
  command.flag("-q,--quiet", options->quiet, "No lines, except errors");
  add_machine_options(command, options->machine);
  command.footer("Examples:\n"
                 "  kapitsa serve smollm2\n"
                 "  kapitsa serve --model 35b --ctx 65536 --port 9000\n"
                 "  kapitsa serve smollm2 --host 0.0.0.0 --api-key SECRET");
  command.on_run([options, &exit_code] {
    if (options->model.empty()) options->model = options->model_option;
    exit_code =
        options->model.empty()
            ? report({ErrorCode::invalid_argument,
                      "serve needs a model: kapitsa serve MODEL; 'kapitsa list --all' names them"})
            : serve(*options);
  });
}

}  // namespace kapitsa::cli
