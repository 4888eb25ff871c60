// kapitsa opencode|claude|codex|pi: runs a coding agent that uses a server here, which is one that
// runs already with the model, or one of our own that ends with the agent.
#include "agents/agent.h"
#include "base/env.h"
#include "base/process.h"
#include "base/version.h"
#include "cli/cli.h"
#include "cli/models.h"
#include "cli/options.h"
#include "cli/serve.h"
#include "hub/http_client.h"
#include "kapitsa/inspect.h"
#include "server/server.h"

#include <fmt/format.h>

#include <cstdio>
#include <fstream>

namespace kapitsa::cli {
namespace {

constexpr int kExitMissing = 127;         // as shells say that there is no such program
constexpr int32_t kAgentContext = 65536;  // tokens; the prompts of agents begin with 10-25 thousand
constexpr int32_t kAgentParallel = 4;     // agents run agents

struct AgentOptions {
  std::string model;
  std::string key;
  int32_t port = kDefaultPort;
  bool dry_run = false;
  std::vector<std::string> more;
  MachineOptions machine;
};

std::vector<std::filesystem::path> usual_folders() {
  const auto home = environment("HOME");
  if (!home) return {};
  const std::filesystem::path folder(*home);
  return {folder / ".local/bin",    folder / ".npm-global/bin", folder / "bin",
          folder / ".opencode/bin", folder / ".claude/local",   folder / ".bun/bin"};
}

// What a server at this address says of itself; an error where there is none.
Result<agents::Endpoint> running_server(const AgentOptions& options) {
  agents::Endpoint endpoint{.address = fmt::format("http://127.0.0.1:{}", options.port),
                            .key = options.key};
  hub::HttpOptions http;
  http.user_agent = fmt::format("kapitsa/{}", kVersion);
  http.attempts = 1;
  http.connect_timeout = std::chrono::seconds(2);
  http.stall_timeout = std::chrono::seconds(5);
  KAPITSA_ASSIGN(
      const hub::HttpText text,
      hub::HttpClient(http).get_text(
          {.url = endpoint.address + "/v1/models", .bearer_token = options.key}, size_t{1} << 20));
  KAPITSA_ASSIGN(const server::ServedModel model, server::read_models(text.body));
  endpoint.model = model.name;
  endpoint.context = model.context;
  endpoint.reasoning = model.reasoning;
  return endpoint;
}

// Context by --ctx, or as much as agents like, the model was trained for and memory holds.
int32_t chosen_context(const LoadOptions& load) {
  if (load.context > 0) return load.context;
  const auto report = inspect(load);
  if (!report || report->context_trained == 0) return 0;
  int32_t context = std::min(report->context_trained, kAgentContext);
  if (report->memory && report->memory->largest_context > 0)
    context = std::min(context, report->memory->largest_context);
  return context;
}

struct OwnServer {
  std::unique_ptr<server::Server> server;
  agents::Endpoint endpoint;
};

Result<OwnServer> start_server(const AgentOptions& options, const std::filesystem::path& path) {
  OwnServer own;
  server::ServerOptions server_options;
  server_options.api_key = options.key;
  KAPITSA_ASSIGN(own.server, server::Server::start(server_options));
  LoadOptions load = load_options(options.machine, path, kAgentParallel);
  load.context = chosen_context(load);
  load.progress = [](const std::string& stage, double share) {
    if (share < 1.0) std::fprintf(stderr, "%3.0f %% %s\n", share * 100.0, stage.c_str());
  };
  KAPITSA_ASSIGN(std::unique_ptr<Engine> engine, Engine::load(load));
  own.endpoint.address = fmt::format("http://127.0.0.1:{}", own.server->port());
  own.endpoint.key = options.key;
  own.endpoint.model = served_name(options.model);
  own.endpoint.context = engine->model().context;
  own.endpoint.reasoning = server::reasons(engine->model());
  own.server->serve(std::move(engine), own.endpoint.model);
  return own;
}

Status write_files(const agents::Launch& launch) {
  for (const auto& [path, content] : launch.files) {
    std::error_code error;
    std::filesystem::create_directories(path.parent_path(), error);
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file << content;
    file.close();
    if (!file) return Error{ErrorCode::io, fmt::format("{}: cannot be written", path.string())};
  }
  return {};
}

int missing(const agents::Agent& agent) {
  std::fprintf(stderr, "kapitsa: %s is not installed (no program '%s'); install it with: %s (%s)\n",
               agent.title, agent.command, agent.install, agent.page);
  return kExitMissing;
}

// Where our own server would listen, for --dry-run.
Result<agents::Endpoint> planned_server(const AgentOptions& options) {
  KAPITSA_ASSIGN(const std::filesystem::path path, find_model(options.model));
  const LoadOptions load = load_options(options.machine, path, kAgentParallel);
  return agents::Endpoint{.address = "http://127.0.0.1:PORT",
                          .key = options.key,
                          .model = served_name(options.model),
                          .context = chosen_context(load)};
}

int launch_agent(const agents::Agent& agent, AgentOptions& options) {
  options.key = environment("KAPITSA_API_KEY").value_or("");
  const auto program =
      find_program(agent.command, environment("PATH").value_or(""), usual_folders());
  if (!program && !options.dry_run) return missing(agent);
  const auto folders = model_folders();
  if (!folders) return report(folders.error());
  const std::filesystem::path folder = folders->data / "agents" / agent.command;

  auto running = running_server(options);
  const bool reuse =
      running && (options.model.empty() || running->model == served_name(options.model));
  if (!reuse && options.model.empty())
    return report({ErrorCode::invalid_argument,
                   fmt::format("no server runs on port {}; name a model to start one: kapitsa {} "
                               "--model MODEL",
                               options.port, agent.command)});
  OwnServer own;
  if (!reuse && options.dry_run) {
    running = planned_server(options);
    if (!running) return report(running.error());
  } else if (!reuse) {
    const auto path = find_or_pull_model(options.model, false);
    if (!path && path.error().code == ErrorCode::cancelled) return kExitInterrupted;
    if (!path) return report(path.error());
    auto started = start_server(options, *path);
    if (!started) return report(started.error());
    own = std::move(*started);
    running = own.endpoint;
  }
  const agents::Launch launch = agent.launch(*running, folder, options.more);
  if (options.dry_run) {
    const std::string text =
        agents::dry_run_text(launch, program ? program->string() : agent.command, options.key);
    std::fwrite(text.data(), 1, text.size(), stdout);
    return 0;
  }
  if (const Status written = write_files(launch); !written) return report(written.error());
  const auto code = run_program(*program, launch.arguments, launch.variables);
  return code ? *code : report(code.error());
}

void add_agent(const Command& app, int& exit_code, const agents::Agent& agent) {
  auto options = std::make_shared<AgentOptions>();
  const Command command = app.subcommand(
      agent.command, fmt::format("Run {} with a model on this machine", agent.title));
  command.option("-m,--model", options->model,
                 "Name or path of a model; default: the one of the server that runs");
  command.option("--port", options->port, "Where to look for a server that runs")
      .range(int64_t{1}, int64_t{65535})
      .show_default();
  command.flag("--dry-run", options->dry_run, "Print what would run, and do nothing");
  command.option("ARGS", options->more, fmt::format("After --: for {} itself", agent.title));
  add_machine_options(command, options->machine);
  command.footer(fmt::format("Examples:\n"
                             "  kapitsa {0} --model 35b\n"
                             "  kapitsa {0} --dry-run\n"
                             "  kapitsa {0} --model 35b --ctx 131072 -- --help",
                             agent.command));
  command.on_run([options, &exit_code, &agent] { exit_code = launch_agent(agent, *options); });
}

}  // namespace

void add_agents(const Command& app, int& exit_code) {
  for (const agents::Agent& agent : agents::all_agents())
    add_agent(app, exit_code, agent);
}

}  // namespace kapitsa::cli
