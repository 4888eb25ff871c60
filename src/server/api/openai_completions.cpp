#include "server/api/openai_completions.h"

#include "server/api/openai_common.h"
#include "server/api/parameters.h"

#include <boost/json/array.hpp>
#include <fmt/format.h>

namespace kapitsa::server::api {
namespace {

namespace json = boost::json;

constexpr size_t kMaxAnswers = 64;  // prompts times n

struct Prompt {
  std::variant<ChatPrompt, TextPrompt, TokenPrompt> prompt;
  std::string text;  // for echo
};

std::optional<TokenPrompt> read_tokens(const Fields& body, const json::array& list) {
  TokenPrompt prompt;
  for (const json::value& item : list) {
    const int64_t* id = item.if_int64();
    if (id == nullptr || *id < 0 || *id > INT32_MAX) {
      body.fail("prompt", "prompt: expected texts, token ids, or lists of token ids");
      return std::nullopt;
    }
    prompt.tokens.push_back(static_cast<int32_t>(*id));
  }
  return prompt;
}

std::vector<Prompt> read_prompts(const Fields& body) {
  std::vector<Prompt> prompts;
  const json::value* value = body.any("prompt");
  const auto add_text = [&](const json::string& text) {
    prompts.push_back({TextPrompt{.text = std::string(view(text)),
                                  .parse_special = body.flag("parse_special").value_or(false)},
                       std::string(view(text))});
  };
  if (value == nullptr) {
    body.fail("prompt", "prompt: expected a text or token ids, found none",
              "missing_required_parameter");
    return prompts;
  }
  if (const auto* text = value->if_string()) {
    add_text(*text);
    return prompts;
  }
  const json::array* list = body.list("prompt");
  if (list == nullptr) return prompts;
  if (!list->empty() && list->front().is_int64()) {
    if (auto tokens = read_tokens(body, *list)) prompts.push_back({std::move(*tokens), ""});
    return prompts;
  }
  for (const json::value& item : *list) {
    if (const auto* text = item.if_string()) {
      add_text(*text);
    } else if (const auto* ids = item.if_array()) {
      if (auto tokens = read_tokens(body, *ids)) prompts.push_back({std::move(*tokens), ""});
    } else {
      body.fail("prompt", "prompt: expected texts, token ids, or lists of token ids");
    }
  }
  if (prompts.empty()) body.fail("prompt", "prompt: expected at least one, found none");
  return prompts;
}

class CompletionDialect final : public Dialect {
public:
  explicit CompletionDialect(CompletionReplyOptions options)
      : options_(std::move(options)), usages_(options_.echo.size()) {}

  Family family() const override { return Family::openai; }

  std::string begin() override {
    std::string text;
    for (size_t i = 0; i < options_.echo.size(); ++i)
      if (!options_.echo[i].empty()) text += chunk(i, options_.echo[i], "", nullptr);
    return text;
  }

  std::string event(size_t choice, const AnswerEvent& event) override {
    if (const auto* text = std::get_if<AnswerText>(&event)) {
      if (text->text.empty() && text->logprobs.empty()) return "";
      return chunk(choice, text->text, "", &text->logprobs);
    }
    if (const auto* end = std::get_if<Ended>(&event)) {
      usages_[choice] = end->usage;
      return chunk(choice, "", finish_reason(*end), nullptr);
    }
    return "";
  }

  std::string end() override {
    std::string text;
    if (options_.include_usage) {
      JsonWriter json;
      open(json);
      json.key("choices").begin_array().end_array();
      write_usage(json, total(usages_, options_.n));
      text = sse("", json.end_object().take());
    }
    return text + "data: [DONE]\n\n";
  }

  std::string keep_alive() override { return ": still working\n\n"; }

  std::string failure(const ApiError& error) override {
    return sse("", error_json(Family::openai, error, options_.id));
  }

  std::string body(const std::vector<WholeAnswer>& answers) override {
    JsonWriter json;
    open(json);
    json.key("choices").begin_array();
    std::vector<Usage> usages;
    for (size_t i = 0; i < answers.size(); ++i) {
      const std::string echo = i < options_.echo.size() ? options_.echo[i] : "";
      write_choice(json, i, echo + answers[i].joined(AnswerPart::Kind::text),
                   finish_reason(answers[i].end), &answers[i].logprobs, echo.size());
      usages.push_back(answers[i].end.usage);
    }
    json.end_array();
    write_usage(json, total(usages, options_.n));
    return json.end_object().take();
  }

private:
  void open(JsonWriter& json) const {
    json.begin_object().member("id", "cmpl-" + options_.id).member("object", "text_completion");
    json.member("created", options_.created).member("model", options_.model);
  }

  std::string chunk(size_t choice, const std::string& text, const char* finish,
                    const std::vector<TextDelta::Position>* logprobs) {
    if (offsets_.size() <= choice) offsets_.resize(choice + 1);
    JsonWriter json;
    open(json);
    json.key("choices").begin_array();
    write_choice(json, choice, text, finish, logprobs, offsets_[choice]);
    json.end_array();
    offsets_[choice] += text.size();
    return sse("", json.end_object().take());
  }

  // Parallel arrays, offsets in bytes of the text.
  void write_choice(JsonWriter& json, size_t choice, const std::string& text, const char* finish,
                    const std::vector<TextDelta::Position>* logprobs, size_t offset) const {
    json.begin_object().member("index", choice).member("text", text).key("logprobs");
    if (options_.logprobs && logprobs != nullptr) {
      write_arrays(json, *logprobs, offset);
    } else {
      json.null();
    }
    json.key("finish_reason");
    if (*finish == '\0') {
      json.null();
    } else {
      json.value(finish);
    }
    json.end_object();
  }

  static void write_arrays(JsonWriter& json, const std::vector<TextDelta::Position>& logprobs,
                           size_t offset) {
    json.begin_object().key("tokens").begin_array();
    for (const auto& position : logprobs)
      json.value(position.chosen.bytes);
    json.end_array().key("token_logprobs").begin_array();
    for (const auto& position : logprobs)
      json.value(static_cast<double>(position.chosen.logprob));
    json.end_array().key("top_logprobs").begin_array();
    for (const auto& position : logprobs) {
      json.begin_object();
      for (const TokenLogprob& token : position.top)
        json.member(token.bytes, static_cast<double>(token.logprob));
      json.end_object();
    }
    json.end_array().key("text_offset").begin_array();
    for (const auto& position : logprobs) {
      json.value(offset);
      offset += position.chosen.bytes.size();
    }
    json.end_array().end_object();
  }

  const CompletionReplyOptions options_;
  std::vector<Usage> usages_;
  std::vector<size_t> offsets_;
};

}  // namespace

Call parse_completion(const json::object& object, const ModelFacts& facts,
                      CompletionReplyOptions& reply, ApiError& error) {
  const Fields body(object, "", error);
  Sampling sampling = read_sampling(body);
  if (const auto logprobs = body.integer("logprobs", 0, 20)) {
    reply.logprobs = true;
    sampling.n_logprobs = static_cast<int32_t>(*logprobs);
  }
  body.refuse("suffix", "filling in the middle is not supported");
  body.refuse("grammar", kNoGrammar);
  body.refuse("min_tokens", "not supported");
  const auto n = body.integer("n", 1, 16).value_or(1);
  if (const auto best = body.integer("best_of", 0, 20); best && *best > n)
    body.fail("best_of", "best_of: more than n is not supported", "unsupported_parameter");
  const bool echo = body.flag("echo").value_or(false);
  if (echo && reply.logprobs)
    body.fail("echo", "echo: not supported together with logprobs", "unsupported_parameter");
  reply.n = static_cast<size_t>(n);
  const auto max_tokens = body.integer("max_tokens", 1, INT32_MAX).value_or(16);
  const std::vector<std::string> stops = read_stops(body, "stop");

  Call call;
  call.chat = false;
  for (Prompt& prompt : read_prompts(body)) {
    if (echo && std::holds_alternative<TokenPrompt>(prompt.prompt))
      body.fail("echo", "echo: not supported for token ids", "unsupported_parameter");
    for (int64_t choice = 0; choice < n; ++choice) {
      Request request;
      request.prompt = prompt.prompt;
      request.sampling = sampling;
      request.sampling.choice = static_cast<uint32_t>(choice);
      request.max_tokens = static_cast<int32_t>(max_tokens);
      request.stop = stops;
      request.ignore_eos = body.flag("ignore_eos").value_or(false);
      call.requests.push_back(std::move(request));
      reply.echo.push_back(echo ? prompt.text : "");
    }
  }
  if (call.requests.size() > kMaxAnswers)
    body.fail("prompt", fmt::format("prompt: expected at most {} answers, found {}", kMaxAnswers,
                                    call.requests.size()));
  call.model = body.text("model").value_or(facts.name);
  call.stream = body.flag("stream").value_or(false);
  reply.include_usage = include_usage(body, call.stream);
  reply.model = call.model;
  return call;
}

std::unique_ptr<Dialect> completion_dialect(CompletionReplyOptions options) {
  return std::make_unique<CompletionDialect>(std::move(options));
}

}  // namespace kapitsa::server::api
