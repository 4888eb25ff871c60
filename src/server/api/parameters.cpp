#include "server/api/parameters.h"

#include "base/json_write.h"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace kapitsa::server::api {
namespace {

namespace json = boost::json;

void read_bias(const Fields& fields, Sampling& sampling) {
  const json::object* bias = fields.object("logit_bias");
  if (bias == nullptr) return;
  for (const auto& member : *bias) {
    const std::string_view key{member.key().data(), member.key().size()};
    int32_t token = 0;
    const auto [end, failed] = std::from_chars(key.data(), key.data() + key.size(), token);
    if (failed != std::errc() || end != key.data() + key.size())
      return fields.fail("logit_bias",
                         fmt::format("logit_bias: expected a token id, found '{}'", key));
    const Fields inner(*bias, "logit_bias", fields.error());
    sampling.logit_bias[token] = static_cast<float>(inner.number(key, -100, 100).value_or(0.0));
  }
}

std::string type_of(const json::object& schema) {
  const json::value* type = schema.if_contains("type");
  if (type == nullptr) return "";
  if (const auto* text = type->if_string()) return std::string(view(*text));
  // ["string", "null"]: the one that is not null.
  if (const auto* list = type->if_array())
    for (const json::value& item : *list)
      if (const auto* text = item.if_string(); text != nullptr && *text != "null")
        return std::string(view(*text));
  return "";
}

}  // namespace

Sampling read_sampling(const Fields& fields, double highest_temperature) {
  Sampling sampling;
  const auto take = [&](const char* name, double low, double high, float& target) {
    if (const auto number = fields.number(name, low, high)) target = static_cast<float>(*number);
  };
  take("temperature", 0.0, highest_temperature, sampling.temperature);
  take("top_p", 0.0, 1.0, sampling.top_p);
  take("min_p", 0.0, 1.0, sampling.min_p);
  take("repetition_penalty", 0.01, 100.0, sampling.repetition_penalty);
  take("repeat_penalty", 0.01, 100.0, sampling.repetition_penalty);
  take("frequency_penalty", -2.0, 2.0, sampling.frequency_penalty);
  take("presence_penalty", -2.0, 2.0, sampling.presence_penalty);
  // Some clients say "all" as -1.
  if (const auto k = fields.integer("top_k", -1, INT32_MAX))
    sampling.top_k = static_cast<int32_t>(std::max<int64_t>(*k, 0));
  if (const auto typical = fields.number("typical_p", 0.0, 1.0); typical && *typical != 1.0)
    fields.fail("typical_p", "typical_p: not supported; use top_p or min_p",
                "unsupported_parameter");
  if (const auto seed = fields.integer("seed", INT64_MIN, INT64_MAX))
    sampling.seed = static_cast<uint64_t>(*seed);
  read_bias(fields, sampling);
  return sampling;
}

std::vector<std::string> read_stops(const Fields& fields, std::string_view name) {
  std::vector<std::string> stops;
  const json::value* value = fields.any(name);
  if (value == nullptr) return stops;
  if (const auto* text = value->if_string()) {
    stops.emplace_back(view(*text));
  } else if (const json::array* list = fields.list(name)) {
    for (size_t i = 0; i < list->size(); ++i) {
      const auto* item = (*list)[i].if_string();
      if (item == nullptr) {
        fields.fail(name, fmt::format("{}: expected a string", fields.path(name, i)));
        return {};
      }
      stops.emplace_back(view(*item));
    }
  }
  if (std::any_of(stops.begin(), stops.end(), [](const std::string& s) { return s.empty(); }))
    fields.fail(name, fmt::format("{}: expected a text, found an empty one", fields.path(name)));
  return stops;
}

Thinking thinking_of_effort(const Fields& fields, std::string_view name,
                            const std::string& effort) {
  constexpr std::string_view kEfforts[] = {"none", "minimal", "low", "medium",
                                           "high", "xhigh",   "max"};
  if (std::find(std::begin(kEfforts), std::end(kEfforts), effort) == std::end(kEfforts)) {
    fields.fail(name, fmt::format("{}: expected none, minimal, low, medium, high, xhigh or max, "
                                  "found '{}'",
                                  fields.path(name), effort));
    return {};
  }
  if (effort == "none") return {.enabled = false};
  if (effort == "minimal") return {.enabled = true, .effort = "low"};
  if (effort == "xhigh" || effort == "max") return {.enabled = true, .effort = "high"};
  return {.enabled = true, .effort = effort};
}

void apply_thinking(const Thinking& thinking, const ModelFacts& facts, ChatPrompt& prompt) {
  const auto knows = [&](const char* name) {
    return facts.info.chat_template.find(name) != std::string::npos;
  };
  if (thinking.enabled) {
    const char* truth = *thinking.enabled ? "true" : "false";
    prompt.template_arguments.emplace("enable_thinking", truth);
    if (knows("thinking")) prompt.template_arguments.emplace("thinking", truth);
  }
  if (!thinking.effort.empty() && knows("reasoning_effort"))
    prompt.template_arguments.emplace("reasoning_effort", json_string(thinking.effort));
}

void add_tool(const Fields& fields, Call& call, ChatPrompt& prompt, Tool tool,
              const json::object* parameters) {
  if (!fields.ok()) return;
  if (tool.name.empty())
    return fields.fail("name", fmt::format("{}: expected the name of a tool, found an empty one",
                                           fields.path("name")));
  for (const Tool& other : prompt.tools) {
    if (other.name == tool.name)
      return fields.fail("name", fmt::format("{}: there are two tools named '{}'",
                                             fields.path("name"), tool.name));
  }
  tool.parameters = parameters == nullptr || parameters->empty()
                        ? R"({"type":"object","properties":{}})"
                        : json_text(*parameters);
  if (parameters != nullptr) {
    const json::value* properties = parameters->if_contains("properties");
    if (properties != nullptr && properties->is_object()) {
      for (const auto& member : properties->get_object()) {
        if (const auto* schema = member.value().if_object())
          call.parameter_types[{tool.name, std::string(member.key())}] = type_of(*schema);
      }
    }
  }
  prompt.tools.push_back(std::move(tool));
  call.parse_tools = true;
}

Call chat_call(const ModelFacts& facts, ChatPrompt prompt, const Sampling& sampling,
               const std::vector<std::string>& stops, int32_t max_tokens, int n) {
  Call call;
  for (int choice = 0; choice < n; ++choice) {
    Request request;
    request.prompt = prompt;
    request.sampling = sampling;
    request.sampling.choice = static_cast<uint32_t>(choice);
    request.max_tokens = max_tokens;
    request.stop = stops;
    request.show_control = facts.format.control_in_reasoning ||
                           (facts.format.control_in_tools && !prompt.tools.empty());
    call.requests.push_back(std::move(request));
  }
  return call;
}

}  // namespace kapitsa::server::api
