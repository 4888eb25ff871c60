#include "cli/chat_input.h"

#include <fmt/format.h>

#include <charconv>
#include <utility>

namespace kapitsa::cli {
namespace {

constexpr std::string_view kQuotes = "\"\"\"";

struct CommandName {
  std::string_view name;
  ChatAction action;
  std::string_view argument;  // what must follow; "" nothing
};
constexpr CommandName kCommands[] = {
    {"help", ChatAction::help, ""},         {"clear", ChatAction::clear, ""},
    {"system", ChatAction::system, "TEXT"}, {"set", ChatAction::set, "NAME VALUE"},
    {"stats", ChatAction::stats, ""},       {"save", ChatAction::save, "FILE"},
    {"exit", ChatAction::exit, ""},         {"quit", ChatAction::exit, ""},
};

std::string_view trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

// The text before the first blank, and what follows it.
std::pair<std::string_view, std::string_view> split(std::string_view text) {
  const size_t blank = text.find_first_of(" \t\n");
  if (blank == std::string_view::npos) return {text, {}};
  return {text.substr(0, blank), trim(text.substr(blank))};
}

// std::from_chars for double is missing in older libc++.
bool parse(const std::string& text, float& number) {
  char* end = nullptr;
  number = std::strtof(text.c_str(), &end);
  return !text.empty() && *end == '\0';
}

template <std::integral Integer>
bool parse(const std::string& text, Integer& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

template <typename Number>
Status set_number(const std::string& name, const std::string& value, Number low, Number high,
                  Number& target) {
  Number number{};
  if (parse(value, number) && number >= low && number <= high) {
    target = number;
    return {};
  }
  return Error{
      ErrorCode::invalid_argument,
      fmt::format("{}: expected a number from {} to {}, found '{}'", name, low, high, value)};
}

}  // namespace

const char kChatHelp[] = "/help             this list\n"
                         "/clear            start a new conversation\n"
                         "/system TEXT      set the system message and start anew\n"
                         "/set NAME VALUE   temp, top_p, top_k, min_p, seed or max (tokens)\n"
                         "/stats            tokens used, speed and settings\n"
                         "/save FILE        write the conversation as JSON\n"
                         "/exit             leave; Ctrl-D too\n"
                         "Lines that end with \\ go on; \"\"\" begins and ends a longer text; //\n"
                         "begins a message with a slash. Ctrl-C stops an answer.\n";

bool MessageBuilder::add(std::string line) {
  if (!line.empty() && line.back() == '\r') line.pop_back();
  if (!started_ && !quoted_ && line.starts_with(kQuotes)) {
    quoted_ = true;
    line.erase(0, kQuotes.size());
  } else if (started_) {
    text_ += '\n';
  }
  started_ = true;
  if (quoted_) {
    const std::string_view kept = trim(line);
    if (!kept.ends_with(kQuotes)) {
      text_ += line;
      return false;
    }
    text_ += line.substr(0, line.rfind(kQuotes));
    return true;
  }
  if (line.ends_with('\\')) {
    text_.append(line, 0, line.size() - 1);
    return false;
  }
  text_ += line;
  return true;
}

std::string MessageBuilder::take() {
  quoted_ = started_ = false;
  return std::string(trim(std::exchange(text_, {})));
}

Result<ChatInput> parse_chat_input(const std::string& text) {
  if (!text.starts_with('/')) return ChatInput{ChatAction::message, text, ""};
  if (text.starts_with("//")) return ChatInput{ChatAction::message, text.substr(1), ""};
  const auto [name, argument] = split(std::string_view(text).substr(1));
  for (const CommandName& command : kCommands) {
    if (command.name != name) continue;
    ChatInput input{command.action, std::string(argument), ""};
    if (command.action == ChatAction::set) {
      const auto [setting, value] = split(argument);
      input.argument = std::string(setting);
      input.value = std::string(value);
    }
    const bool missing =
        input.argument.empty() || (command.action == ChatAction::set && input.value.empty());
    if (!command.argument.empty() && missing) {
      return Error{ErrorCode::invalid_argument,
                   fmt::format("expected /{} {}", command.name, command.argument)};
    }
    return input;
  }
  return Error{ErrorCode::invalid_argument,
               fmt::format("unknown command '/{}'; /help lists them, and // begins a message with "
                           "a slash",
                           name)};
}

Status apply_setting(const std::string& name, const std::string& value, ChatSettings& settings) {
  Sampling& sampling = settings.sampling;
  if (name == "temp") return set_number(name, value, 0.0F, 100.0F, sampling.temperature);
  if (name == "top_p") return set_number(name, value, 0.001F, 1.0F, sampling.top_p);
  if (name == "min_p") return set_number(name, value, 0.0F, 0.999F, sampling.min_p);
  if (name == "top_k") return set_number(name, value, 0, 1 << 24, sampling.top_k);
  if (name == "max") return set_number(name, value, 0, 1 << 24, settings.max_tokens);
  if (name == "seed") {
    if (value == "random") {
      sampling.seed.reset();
      return {};
    }
    uint64_t seed = 0;
    KAPITSA_TRY(set_number<uint64_t>(name, value, 0, UINT64_MAX, seed));
    sampling.seed = seed;
    return {};
  }
  return Error{
      ErrorCode::invalid_argument,
      fmt::format("unknown setting '{}'; expected temp, top_p, top_k, min_p, seed or max", name)};
}

std::string settings_text(const ChatSettings& settings) {
  const Sampling& sampling = settings.sampling;
  return fmt::format("temp {} top_p {} top_k {} min_p {} seed {} max {}", sampling.temperature,
                     sampling.top_p, sampling.top_k, sampling.min_p,
                     sampling.seed ? std::to_string(*sampling.seed) : "random",
                     settings.max_tokens);
}

}  // namespace kapitsa::cli
