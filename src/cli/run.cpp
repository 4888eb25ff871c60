// kapitsa run MODEL [PROMPT]: one answer to a prompt from the command line or from a pipe, or a
// conversation in a terminal. The answer goes to stdout as it is generated, all else to stderr.
#include "base/system.h"
#include "cli/answer.h"
#include "cli/chat.h"
#include "cli/cli.h"
#include "cli/models.h"
#include "cli/options.h"
#include "cli/show.h"
#include "kapitsa/engine.h"

#include <fmt/format.h>

#include <cstdio>
#include <iostream>
#include <iterator>
#include <system_error>

namespace kapitsa::cli {
namespace {

struct RunOptions {
  std::string model;
  std::string prompt;
  bool raw = false;
  bool converse = false;
  ChatOptions chat;
  uint64_t seed = 0;
  float confidence = 0.0F;
  MachineOptions machine;
};

int answer_once(Engine& engine, const RunOptions& options) {
  Request request;
  request.sampling = options.chat.settings.sampling;
  request.max_tokens = options.chat.settings.max_tokens;
  request.stop = options.chat.stop;
  if (options.raw || !engine.model().has_chat_template) {
    request.prompt = TextPrompt{options.prompt, options.raw};
  } else {
    ChatPrompt prompt;
    if (!options.chat.system.empty())
      prompt.messages.push_back({.role = "system", .content = options.chat.system});
    prompt.messages.push_back({.role = "user", .content = options.prompt});
    request.prompt = std::move(prompt);
  }
  const InterruptGuard interrupt;
  const Outcome outcome = answer(engine, std::move(request), options.chat.style, interrupt);
  if (outcome.error && outcome.error->code == ErrorCode::context_overflow)
    return report(*outcome.error);
  return outcome.exit_code;
}

// Lines that were typed are kept beside the models; without a place for them they are not.
std::filesystem::path history_file() {
  const auto folders = model_folders();
  if (!folders) return {};
  std::error_code error;
  std::filesystem::create_directories(folders->data, error);
  return error ? std::filesystem::path() : folders->data / "history";
}

// What the parser would take in part or change.
std::string not_empty(const std::string& text) {
  return text.empty() ? "expected a text, found an empty one" : "";
}

// Options that would have no effect are refused, not ignored.
Status check_use(const Engine& engine, const RunOptions& options) {
  if (options.chat.system.empty()) return {};
  if (options.raw)
    return Error{ErrorCode::invalid_argument,
                 "--system has no meaning with --raw: put it into PROMPT"};
  if (!engine.model().has_chat_template)
    return Error{ErrorCode::invalid_argument,
                 "--system needs a chat template, and the model has none: put it into PROMPT"};
  return {};
}

void warn_of_long_context(const Engine& engine) {
  const ModelInfo& model = engine.model();
  if (model.context <= model.context_trained) return;
  std::fprintf(stderr,
               "kapitsa: the context of %d tokens is longer than the %d that the model was "
               "trained for; answers may get worse beyond them\n",
               model.context, model.context_trained);
}

void warn_of_disk(const Engine& engine) {
  if (engine.model().weights_on_disk == 0) return;
  std::fprintf(
      stderr,
      "kapitsa: %s of the weights do not fit in the free memory and are read from the disk "
      "again for every token; a smaller quantisation or a shorter --ctx is faster\n",
      show_bytes(engine.model().weights_on_disk).c_str());
}

// With --json, programs read what failed where they read all else.
int fail(const Error& error, const RunOptions& options) {
  if (options.chat.style.json) fmt::print("{}\n", event_json(Failed{error}, ""));
  return report(error);
}

int run_command(RunOptions& options, bool has_prompt) {
  const auto path = find_or_pull_model(options.model, options.chat.style.quiet);
  if (!path && path.error().code == ErrorCode::cancelled) return kExitInterrupted;
  if (!path) return fail(path.error(), options);
  const bool converse = options.converse || (!has_prompt && is_terminal(0));
  if (!has_prompt && !converse) {
    options.prompt.assign(std::istreambuf_iterator<char>(std::cin), {});
    while (!options.prompt.empty() && options.prompt.back() == '\n')
      options.prompt.pop_back();
  }
  if (!converse && options.prompt.empty()) {
    return fail({ErrorCode::invalid_argument, "the prompt is empty"}, options);
  }
  const auto engine = Engine::load(load_options(options.machine, *path));
  if (!engine) return fail(engine.error(), options);
  if (const Status use = check_use(**engine, options); !use) return fail(use.error(), options);
  warn_of_long_context(**engine);
  warn_of_disk(**engine);
  if (!converse) return answer_once(**engine, options);
  options.chat.history = history_file();
  return chat(**engine, options.chat);
}

}  // namespace

void add_run(const Command& app, int& exit_code) {
  auto options = std::make_shared<RunOptions>();
  ChatOptions& chat = options->chat;
  Sampling& sampling = chat.settings.sampling;
  sampling.temperature = 0.7F;
  sampling.top_p = 0.95F;
  const Command command = app.subcommand("run", "Answer a prompt, or chat in the terminal");
  command
      .option("MODEL", options->model,
              "Name as in 'kapitsa list --all', or path of a model file or folder")
      .required();
  const Option prompt = command.option(
      "PROMPT", options->prompt, "What to ask; without it: standard input, or a conversation");

  command.option("-s,--system", chat.system, "System message");
  command.flag("--raw", options->raw,
               "Complete PROMPT as it is, without the chat template; special tokens are parsed");
  command
      .flag("--chat", options->converse,
            "A conversation even when standard input is no terminal: one line, one message")
      .excludes(prompt);
  command.option("-n,--max-tokens", chat.settings.max_tokens,
                 "Longest answer, in tokens; 0: no limit");
  command.option("--stop", chat.stop, "End the answer before this text (repeatable)")
      .one_value_each()
      .check(not_empty);
  command.flag("-q,--quiet", chat.style.quiet, "Only the answer, no line of figures");
  command.flag("--json", chat.style.json,
               "Events as JSON, one a line; the last one has the whole answer");

  const char* group = "Sampling";
  command.option("--temp", sampling.temperature, "Temperature; 0: always the likeliest token")
      .show_default()
      .group(group);
  command.option("--top-k", sampling.top_k, "Keep the k likeliest tokens; 0: all").group(group);
  command.option("--top-p", sampling.top_p, "Keep the likeliest tokens up to this probability")
      .show_default()
      .group(group);
  command.option("--min-p", sampling.min_p, "Drop tokens below this share of the likeliest")
      .group(group);
  Option confidence = command.option(
      "--confidence", options->confidence,
      "Models that write blocks: a token settles above this probability; default: the model's");
  confidence.group(group);
  command.option("--repeat-penalty", sampling.repetition_penalty, "1: off").group(group);
  Option seed = command.option("--seed", options->seed,
                               "Same seed, same answer; default: a random one, shown at the end");
  seed.group(group);
  add_machine_options(command, options->machine);
  command.footer("Examples:\n"
                 "  kapitsa run smollm2\n"
                 "  kapitsa run smollm2 \"Name three rivers.\"\n"
                 "  kapitsa run smollm2 --seed 7 --temp 1 \"Write a haiku.\"\n"
                 "  git diff | kapitsa run smollm2 -s \"Explain this change.\"\n"
                 "  kapitsa run model.gguf --raw \"Once upon a time\" -n 100");
  command.on_run([options, prompt, seed, confidence, &exit_code] {
    if (confidence.given()) options->chat.settings.sampling.confidence = options->confidence;
    if (seed.given()) options->chat.settings.sampling.seed = options->seed;
    exit_code = run_command(*options, prompt.given());
  });
}

}  // namespace kapitsa::cli
