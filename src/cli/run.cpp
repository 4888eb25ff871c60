// kapitsa run MODEL [PROMPT]: one answer to a prompt from the command line or from a pipe, or a
// conversation in a terminal. The answer goes to stdout as it is generated, all else to stderr.
#include "base/system.h"
#include "cli/cli.h"
#include "cli/event_queue.h"
#include "cli/models.h"
#include "kapitsa/engine.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <cstdio>
#include <iostream>
#include <iterator>

namespace kapitsa::cli {
namespace {

struct RunOptions {
  std::string model;
  std::string prompt;
  std::string system;
  bool raw = false;
  bool quiet = false;
  int32_t max_tokens = 0;
  std::vector<std::string> stop;
  Sampling sampling;
  uint64_t seed = 0;
  bool has_seed = false;
  LoadOptions load;
  std::string compute = "fast";
  std::string kv = "auto";
};

const std::map<std::string, Compute> kComputes = {{"fast", Compute::fast}, {"f32", Compute::f32}};
const std::map<std::string, KvType> kKvTypes = {{"auto", KvType::automatic},
                                                {"f32", KvType::f32},
                                                {"f16", KvType::f16},
                                                {"bf16", KvType::bf16}};

template <typename Map>
std::vector<std::string> keys(const Map& map) {
  std::vector<std::string> names;
  for (const auto& [name, value] : map)
    names.push_back(name);
  return names;
}

void print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

std::string summary(const Finished& done) {
  const auto rate = [](int32_t tokens, double seconds) {
    return seconds > 0.0 ? fmt::format("{:.1f} tok/s", tokens / seconds) : std::string("-");
  };
  std::string text =
      fmt::format("prompt {} tokens, {}; answer {} tokens, {}; seed {}", done.prompt_tokens,
                  rate(done.prompt_tokens, done.prefill_seconds), done.completion_tokens,
                  rate(done.completion_tokens - 1, done.decode_seconds), done.seed);
  if (done.reason == FinishReason::length) text += "; stopped at the token limit";
  if (done.reason == FinishReason::cancelled) text += "; stopped by Ctrl-C";
  return text;
}

struct Outcome {
  int exit_code = 0;
  std::string answer;
};

// Submits one request and prints its answer as it comes.
Outcome answer(Engine& engine, Request request, bool quiet) {
  Outcome outcome;
  EventQueue queue;
  const InterruptGuard interrupt;
  const auto id = engine.submit(std::move(request), [&](const Event& event) { queue.push(event); });
  if (!id) return {report(id.error()), ""};
  bool cancelled = false;
  while (true) {
    if (interrupt.interrupted() && !cancelled) {
      engine.cancel(*id);
      cancelled = true;
    }
    const auto event = queue.pop(std::chrono::milliseconds(50));
    if (!event) continue;
    if (const auto* delta = std::get_if<TextDelta>(&*event)) {
      print(delta->text);
      outcome.answer += delta->text;
    } else if (const auto* done = std::get_if<Finished>(&*event)) {
      print("\n");
      if (!quiet) std::fprintf(stderr, "[%s]\n", summary(*done).c_str());
      if (done->reason == FinishReason::cancelled) outcome.exit_code = kExitInterrupted;
      return outcome;
    } else if (const auto* failed = std::get_if<Failed>(&*event)) {
      outcome.exit_code = report(failed->error);
      return outcome;
    }
  }
}

Request make_request(const RunOptions& options) {
  Request request;
  request.sampling = options.sampling;
  if (options.has_seed) request.sampling.seed = options.seed;
  request.max_tokens = options.max_tokens;
  request.stop = options.stop;
  return request;
}

std::vector<ChatMessage> opening(const RunOptions& options) {
  std::vector<ChatMessage> messages;
  if (!options.system.empty()) messages.push_back({.role = "system", .content = options.system});
  return messages;
}

int answer_once(Engine& engine, const RunOptions& options) {
  Request request = make_request(options);
  if (options.raw || !engine.model().has_chat_template) {
    request.prompt = TextPrompt{options.prompt, options.raw};
  } else {
    ChatPrompt chat;
    chat.messages = opening(options);
    chat.messages.push_back({.role = "user", .content = options.prompt});
    request.prompt = std::move(chat);
  }
  return answer(engine, std::move(request), options.quiet).exit_code;
}

// Ctrl-C ends an answer and leaves the conversation; the end of input, or /exit, ends it.
int converse(Engine& engine, const RunOptions& options) {
  if (!engine.model().has_chat_template) {
    return report({ErrorCode::invalid_argument,
                   "the model has no chat template; give a PROMPT or pipe one in"});
  }
  std::fprintf(stderr, "%s. Empty line or Ctrl-D ends the conversation.\n",
               engine.model().name.c_str());
  std::vector<ChatMessage> messages = opening(options);
  std::string line;
  while (true) {
    std::fputs("> ", stderr);
    if (!std::getline(std::cin, line) || line.empty()) return 0;
    messages.push_back({.role = "user", .content = line});
    Request request = make_request(options);
    request.prompt = ChatPrompt{.messages = messages};
    Outcome outcome = answer(engine, std::move(request), options.quiet);
    if (outcome.exit_code == kExitFailed) {
      messages.pop_back();
      continue;
    }
    messages.push_back({.role = "assistant", .content = std::move(outcome.answer)});
  }
}

int run_command(RunOptions& options, bool has_prompt) {
  const auto path = find_or_pull_model(options.model, options.quiet);
  if (!path && path.error().code == ErrorCode::cancelled) return kExitInterrupted;
  if (!path) return report(path.error());
  const bool terminal = is_terminal(0);
  if (!has_prompt && !terminal) {
    options.prompt.assign(std::istreambuf_iterator<char>(std::cin), {});
    while (!options.prompt.empty() && options.prompt.back() == '\n')
      options.prompt.pop_back();
    has_prompt = true;
  }
  if (has_prompt && options.prompt.empty()) {
    return report({ErrorCode::invalid_argument, "the prompt is empty"});
  }
  options.load.model = *path;
  options.load.max_sequences = 1;
  options.load.compute = kComputes.at(options.compute);
  options.load.kv_type = kKvTypes.at(options.kv);
  const auto engine = Engine::load(options.load);
  if (!engine) return report(engine.error());
  return has_prompt ? answer_once(**engine, options) : converse(**engine, options);
}

}  // namespace

void add_run(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<RunOptions>();
  options->sampling.temperature = 0.7F;
  options->sampling.top_p = 0.95F;
  CLI::App* command = app.add_subcommand("run", "Answer a prompt, or chat in the terminal");
  command
      ->add_option("MODEL", options->model,
                   "Name as in 'kapitsa list --all', or path of a model file or folder")
      ->required();
  CLI::Option* prompt = command->add_option(
      "PROMPT", options->prompt, "What to ask; without it: standard input, or a conversation");

  command->add_option("-s,--system", options->system, "System message");
  command->add_flag(
      "--raw", options->raw,
      "Complete PROMPT as it is, without the chat template; special tokens are parsed");
  command->add_option("-n,--max-tokens", options->max_tokens,
                      "Longest answer, in tokens; 0: no limit");
  command->add_option("--stop", options->stop, "End the answer before this text (repeatable)");
  command->add_flag("-q,--quiet", options->quiet, "Only the answer, no line of figures");

  Sampling& sampling = options->sampling;
  const char* group = "Sampling";
  command->add_option("--temp", sampling.temperature, "Temperature; 0: always the likeliest token")
      ->capture_default_str()
      ->group(group);
  command->add_option("--top-k", sampling.top_k, "Keep the k likeliest tokens; 0: all")
      ->group(group);
  command->add_option("--top-p", sampling.top_p, "Keep the likeliest tokens up to this probability")
      ->capture_default_str()
      ->group(group);
  command->add_option("--min-p", sampling.min_p, "Drop tokens below this share of the likeliest")
      ->group(group);
  command->add_option("--repeat-penalty", sampling.repetition_penalty, "1: off")->group(group);
  CLI::Option* seed = command->add_option(
      "--seed", options->seed, "Same seed, same answer; default: a random one, shown at the end");
  seed->group(group);

  group = "Machine";
  command
      ->add_option("--ctx", options->load.context,
                   "Tokens of prompt and answer together; default: the model's, at most 8192")
      ->group(group);
  command->add_option("-t,--threads", options->load.threads, "CPU threads; default: one per core")
      ->group(group);
  command->add_option("--backend", options->load.backend, "cpu or ref; default: the fastest")
      ->group(group);
  command->add_option("--isa", options->load.isa, "CPU instruction set; default: the best")
      ->group(group);
  command->add_option("--compute", options->compute, "fast, or f32 for exact comparisons")
      ->check(CLI::IsMember(keys(kComputes)))
      ->group(group);
  command->add_option("--kv", options->kv, "Type of the key/value cache")
      ->check(CLI::IsMember(keys(kKvTypes)))
      ->group(group);
  command->footer("Examples:\n"
                  "  kapitsa run smollm2 \"Name three rivers.\"\n"
                  "  kapitsa run smollm2 --seed 7 --temp 1 \"Write a haiku.\"\n"
                  "  git diff | kapitsa run smollm2 -s \"Explain this change.\"\n"
                  "  kapitsa run model.gguf --raw \"Once upon a time\" -n 100");
  command->callback([options, prompt, seed, &exit_code] {
    options->has_seed = seed->count() > 0;
    exit_code = run_command(*options, prompt->count() > 0);
  });
}

}  // namespace kapitsa::cli
