// The engine's tokenizer and chat templates as a filter for tests/peers/run.py: a JSON object a
// line on standard input, one on standard output for each.
//   {"op": "vocabulary", "vocabulary": FILE}              -> {"tokens": [...], "merges": [...],
//                                                            "types": [...]}
//   {"op": "tokens", "vocabulary": FILE, "texts": [...]}          -> {"ids": [[...], ...]}
//   {"op": "render", "template": TEXT, "messages": [...], "variables": {...}}
//                                                  -> {"text": TEXT}
// What fails gives {"error": MESSAGE}.
#include "engine/vocabulary.h"
#include "support/moment.h"
#include "text/chat_template.h"
#include "text/jinja/format.h"
#include "weights/open.h"

#include <boost/json.hpp>

#include <iostream>
#include <map>
#include <memory>
#include <string>

namespace kapitsa::test {
namespace {

namespace json = boost::json;

class TextTool {
public:
  Result<json::object> answer(const json::object& request) {
    if (request.at("op") == "vocabulary") return vocabulary(request);
    return request.at("op") == "tokens" ? tokens(request) : render(request);
  }

private:
  Result<const text::Tokenizer*> tokenizer(const std::string& path) {
    if (const auto found = vocabularies_.find(path); found != vocabularies_.end())
      return &found->second.tokenizer;
    KAPITSA_ASSIGN(const weights::Checkpoint file, weights::open_checkpoint(path));
    KAPITSA_ASSIGN(engine::Vocabulary vocabulary, engine::read_vocabulary(file));
    return &vocabularies_.emplace(path, std::move(vocabulary)).first->second.tokenizer;
  }

  Result<json::object> vocabulary(const json::object& request) {
    const auto path = json::value_to<std::string>(request.at("vocabulary"));
    KAPITSA_ASSIGN(const weights::Checkpoint file, weights::open_checkpoint(path));
    json::object answer;
    for (const char* key : {"tokens", "merges"}) {
      KAPITSA_ASSIGN(const std::vector<std::string_view> words,
                     file.strings(std::string("tokenizer.ggml.") + key));
      json::array& list = answer[key].emplace_array();
      for (const std::string_view word : words)
        list.emplace_back(json::string(word));
    }
    KAPITSA_ASSIGN(const std::vector<int64_t> types,
                   file.integers("tokenizer.ggml.token_type", 0, 6));
    answer["types"] = json::value_from(types);
    return answer;
  }

  Result<json::object> tokens(const json::object& request) {
    KAPITSA_ASSIGN(const text::Tokenizer* const with,
                   tokenizer(json::value_to<std::string>(request.at("vocabulary"))));
    json::array all;
    for (const json::value& text : request.at("texts").as_array()) {
      KAPITSA_ASSIGN(const std::vector<int32_t> ids, with->encode(text.as_string()));
      all.emplace_back(json::value_from(ids));
    }
    return json::object{{"ids", std::move(all)}};
  }

  Result<json::object> render(const json::object& request) {
    const auto source = json::value_to<std::string>(request.at("template"));
    KAPITSA_ASSIGN(const text::ChatTemplate parsed, text::ChatTemplate::parse(source));
    KAPITSA_ASSIGN(const text::jinja::Value messages,
                   text::jinja::parse_json(json::serialize(request.at("messages")),
                                           text::jinja::Str::Origin::user));
    text::ChatTemplateOptions options;
    options.now = moment();
    options.bos_token = "<s>";
    options.eos_token = "</s>";
    for (const auto& [name, value] : request.at("variables").as_object()) {
      if (name == "tools") {
        options.tools_json = value.is_null() ? "" : json::serialize(value);
      } else if (name == "add_generation_prompt") {
        options.add_generation_prompt = value.as_bool();
      } else {
        KAPITSA_ASSIGN(
            text::jinja::Value own,
            text::jinja::parse_json(json::serialize(value), text::jinja::Str::Origin::user));
        options.variables.emplace_back(name, std::move(own));
      }
    }
    KAPITSA_ASSIGN(const std::vector<text::Segment> segments, parsed.render(messages, options));
    std::string text;
    for (const text::Segment& segment : segments)
      text += segment.text;
    return json::object{{"text", text}};
  }

  std::map<std::string, engine::Vocabulary> vocabularies_;
};

}  // namespace
}  // namespace kapitsa::test

int main() {
  kapitsa::test::TextTool tool;
  std::string line;
  while (std::getline(std::cin, line)) {
    const auto answer = tool.answer(boost::json::parse(line).as_object());
    std::cout << (answer ? boost::json::serialize(*answer)
                         : boost::json::serialize(
                               boost::json::object{{"error", answer.error().message}}))
              << std::endl;
  }
  return 0;
}
