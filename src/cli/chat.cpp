#include "cli/chat.h"

#include "base/file.h"
#include "base/json_write.h"
#include "cli/cli.h"
#include "cli/line_reader.h"
#include "cli/show.h"

#include <fmt/format.h>

#include <cstdio>

namespace kapitsa::cli {
namespace {

// For the person, not part of the answer.
void note(const std::string& text) {
  std::fprintf(stderr, "%s\n", text.c_str());
}

class Conversation {
public:
  Conversation(Engine& engine, const ChatOptions& options)
      : engine_(engine), options_(options), settings_(options.settings),
        reader_(LineReader::open(interrupt_, options.history)) {
    restart(options.system);
  }

  int run() {
    note(fmt::format("{}. /help lists the commands, Ctrl-D leaves.",
                     one_line(engine_.model().name)));
    while (true) {
      const auto text = read_message();
      if (!text) return 0;
      if (text->empty()) continue;
      const auto input = parse_chat_input(*text);
      if (!input) {
        note(input.error().message);
        continue;
      }
      if (input->action == ChatAction::exit) return 0;
      if (input->action == ChatAction::message) {
        say(input->argument);
      } else {
        act(*input);
      }
    }
  }

private:
  // nullopt at the end of the input. Ctrl-C drops what was typed.
  std::optional<std::string> read_message() {
    MessageBuilder message;
    std::string line;
    while (true) {
      const char* prompt = message.empty() ? "> " : ". ";
      const auto ending = reader_->read(prompt, line);
      interrupt_.reset();
      if (ending == LineReader::Ending::interrupted) return std::string();
      if (ending == LineReader::Ending::end_of_input) {
        if (message.empty()) return std::nullopt;
        return message.take();
      }
      if (message.add(line)) return message.take();
    }
  }

  void restart(const std::string& system) {
    messages_.clear();
    tokens_used_ = 0;
    if (!system.empty()) messages_.push_back({.role = "system", .content = system});
  }

  std::string system() const {
    return !messages_.empty() && messages_[0].role == "system" ? messages_[0].content
                                                               : std::string();
  }

  void act(const ChatInput& input) {
    switch (input.action) {
    case ChatAction::help: std::fputs(kChatHelp, stderr); break;
    case ChatAction::clear:
      restart(system());
      note("A new conversation.");
      break;
    case ChatAction::system:
      restart(input.argument);
      note("A new conversation with this system message.");
      break;
    case ChatAction::set:
      if (const Status done = apply_setting(input.argument, input.value, settings_); !done) {
        note(done.error().message);
      } else {
        note(settings_text(settings_));
      }
      break;
    case ChatAction::stats: show_stats(); break;
    case ChatAction::save: save(input.argument); break;
    case ChatAction::message:
    case ChatAction::exit: break;
    }
  }

  void show_stats() const {
    note(fmt::format("context: {} of {} tokens in {} messages", tokens_used_,
                     engine_.model().context, messages_.size()));
    if (last_) note("last: " + figures(*last_));
    note("settings: " + settings_text(settings_));
  }

  void save(const std::string& file) const {
    JsonWriter json(2);
    json.begin_object().member("model", engine_.model().name).key("messages").begin_array();
    for (const ChatMessage& message : messages_) {
      json.begin_object()
          .member("role", message.role)
          .member("content", message.content)
          .end_object();
    }
    const Status saved = write_file_atomic(file, json.end_array().end_object().take() + "\n");
    note(saved ? fmt::format("Saved {} messages to {}.", messages_.size(), file)
               : saved.error().message);
  }

  void say(const std::string& text) {
    messages_.push_back({.role = "user", .content = text});
    Request request;
    request.prompt = ChatPrompt{.messages = messages_};
    request.sampling = settings_.sampling;
    request.max_tokens = settings_.max_tokens;
    request.stop = options_.stop;
    Outcome outcome = answer(engine_, std::move(request), options_.style, interrupt_);
    interrupt_.reset();
    if (outcome.error) {
      messages_.pop_back();
      if (outcome.error->code == ErrorCode::context_overflow)
        note("The conversation is too long: " + outcome.error->message +
             ". /clear starts a new one; --ctx makes room for longer ones.");
      return;
    }
    last_ = outcome.finished;
    if (outcome.text.empty() && last_->reason == FinishReason::cancelled) {
      messages_.pop_back();  // as if it had not been asked
      return;
    }
    messages_.push_back({.role = "assistant", .content = std::move(outcome.text)});
    tokens_used_ = last_->prompt_tokens + last_->completion_tokens;
    if (last_->reason == FinishReason::length && tokens_used_ >= engine_.model().context) {
      note(fmt::format("The context of {} tokens is full, so the answer ends here. /clear starts "
                       "a new conversation; --ctx makes room for longer ones.",
                       engine_.model().context));
    }
  }

  Engine& engine_;
  const ChatOptions& options_;
  ChatSettings settings_;
  InterruptGuard interrupt_;
  std::unique_ptr<LineReader> reader_;
  std::vector<ChatMessage> messages_;
  std::optional<Finished> last_;
  int32_t tokens_used_ = 0;  // by the messages so far
};

}  // namespace

int chat(Engine& engine, const ChatOptions& options) {
  if (!engine.model().has_chat_template) {
    return report({ErrorCode::invalid_argument,
                   "the model has no chat template; give a PROMPT or pipe one in"});
  }
  return Conversation(engine, options).run();
}

}  // namespace kapitsa::cli
