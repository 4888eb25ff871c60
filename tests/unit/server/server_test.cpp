// The whole server over a scripted engine: what clients send and see.
#include "server/server.h"
#include "support/http_probe.h"
#include "support/scripted_engine.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>

namespace kapitsa::server {
namespace {

using test::HttpProbe;
using test::Reply;
using test::Script;
using test::ScriptedEngine;

constexpr const char* kTemplate = "<think></think><tool_call> enable_thinking";

class ServerTest : public testing::Test {
protected:
  void serve(ScriptedEngine::Writer writer, ServerOptions options = {}) {
    options.log = [this](const RequestRecord& record) {
      const std::lock_guard lock(mutex_);
      records_.push_back(record);
      logged_.notify_all();
    };
    auto started = Server::start(options);
    ASSERT_TRUE(started.ok()) << started.error().message;
    server_ = std::move(*started);
    auto engine = std::make_unique<ScriptedEngine>(std::move(writer), kTemplate, 1000);
    engine_ = engine.get();
    server_->serve(std::move(engine), "tiny");
  }
  void say(std::vector<std::string> pieces, FinishReason reason = FinishReason::stop_token) {
    serve([this, pieces, reason](const Request& request) {
      last_ = request;
      return Script{.pieces = pieces, .reason = reason};
    });
  }

  Reply post(const std::string& path, const std::string& body, const std::string& headers = "") {
    HttpProbe probe(server_->port());
    probe.post(path, body, headers);
    return probe.read();
  }
  std::string chat(const std::string& more, const std::string& headers = "") {
    return post("/v1/chat/completions",
                R"({"messages":[{"role":"user","content":"hi"}])" + more + "}", headers)
        .body;
  }
  RequestRecord record(size_t i = 0) {
    std::unique_lock lock(mutex_);
    logged_.wait_for(lock, std::chrono::minutes(1), [&] { return records_.size() > i; });
    return records_.at(i);
  }

  Request last_;
  ScriptedEngine* engine_ = nullptr;
  std::mutex mutex_;
  std::condition_variable logged_;
  std::vector<RequestRecord> records_;
  std::unique_ptr<Server> server_;  // ends first: it uses the others
};

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}
#define EXPECT_HAS(text, part) EXPECT_TRUE(has(text, part)) << (text) << "\nwithout " << (part)

TEST_F(ServerTest, chat_answers_whole) {
  say({"<think>hm</th", "ink>\n\nGood ", "day"});
  const std::string body = chat(R"(,"model":"any","max_tokens":7,"seed":5,"stop":"x")");
  EXPECT_HAS(body, R"("model":"any")");
  EXPECT_HAS(body, R"("content":"Good day","refusal":null,"reasoning_content":"hm")");
  EXPECT_HAS(body, R"("finish_reason":"stop")");
  EXPECT_HAS(body, R"("completion_tokens":3)");
  EXPECT_EQ(last_.max_tokens, 7);
  EXPECT_EQ(last_.sampling.seed, 5U);
  EXPECT_EQ(last_.stop, std::vector<std::string>{"x"});
  EXPECT_EQ(record().ending, "stop");
}

TEST_F(ServerTest, chat_streams_in_order) {
  say({"Good", " day"}, FinishReason::length);
  const std::string body =
      chat(R"(,"stream":true,"stream_options":{"include_usage":true},"max_tokens":2)");
  const size_t role = body.find(R"("delta":{"role":"assistant","content":""})");
  const size_t first = body.find(R"("delta":{"content":"Good"})");
  const size_t end = body.find(R"("delta":{},"logprobs":null,"finish_reason":"length")");
  const size_t usage = body.find(R"("choices":[],"usage":{)");
  EXPECT_LT(role, first);
  EXPECT_LT(first, end);
  EXPECT_LT(end, usage);
  EXPECT_TRUE(body.ends_with("data: [DONE]\n\n"));
}

TEST_F(ServerTest, chat_calls_tools) {
  say({"<tool_call>{\"name\": \"read\", \"argu", "ments\": {\"path\": \"a\"}}</tool_call>",
       "\n<tool_call>{\"name\": \"read\", \"arguments\": {}}</tool_call>"});
  const std::string tools =
      R"(,"tools":[{"type":"function","function":{"name":"read","parameters":{"type":"object"}}}])";
  const std::string whole = chat(tools);
  EXPECT_HAS(whole, R"("content":null)");
  EXPECT_HAS(whole, R"("function":{"name":"read","arguments":"{\"path\": \"a\"}"})");
  EXPECT_HAS(whole, R"("finish_reason":"tool_calls")");
  EXPECT_EQ(std::get<ChatPrompt>(last_.prompt).tools.size(), 1U);
  const std::string stream = chat(tools + R"(,"stream":true)");
  EXPECT_HAS(stream, R"({"tool_calls":[{"index":0,"function":{"arguments":)");
  EXPECT_HAS(stream, R"("tool_calls":[{"index":1,"id":"call_)");
  const std::string one = chat(tools + R"(,"parallel_tool_calls":false)");
  EXPECT_FALSE(has(one, R"("arguments":"{}")")) << one;
  EXPECT_HAS(one, R"("finish_reason":"tool_calls")");
  // Not asked for: text.
  EXPECT_HAS(chat(tools + R"(,"tool_choice":"none")"), "<tool_call>{");
}

TEST_F(ServerTest, chat_calls_custom_tools_with_plain_text) {
  say({"<tool_call>{\"name\": \"patch\", \"arguments\": {\"inp",
       "ut\": \"a \\\"b\\\"\"}}</tool_call>"});
  const std::string tools = R"(,"tools":[{"type":"custom","custom":{"name":"patch"}}])";
  EXPECT_HAS(chat(tools), R"("type":"custom","custom":{"name":"patch","input":"a \"b\""})");
  const std::string stream = chat(tools + R"(,"stream":true)");
  EXPECT_HAS(stream, R"("type":"custom","custom":{"name":"patch","input":""})");
  EXPECT_HAS(stream, R"({"index":0,"custom":{"input":"a \"b\""}})");
  EXPECT_HAS(
      chat(R"(,"tools":[{"type":"custom","custom":{"name":"p","format":{"type":"grammar"}}}])"),
      "unsupported_parameter");
}

TEST_F(ServerTest, a_call_that_is_cut_by_length_is_no_call) {
  say({"<tool_call>{\"name\": \"read\", \"arguments\": {\"a"}, FinishReason::length);
  const std::string body =
      chat(R"(,"max_tokens":1,"tools":[{"type":"function","function":{"name":"read"}}])");
  EXPECT_HAS(body, R"("finish_reason":"length")");
}

TEST_F(ServerTest, several_answers_have_their_indices) {
  serve([](const Request& request) {
    return Script{.pieces = {"answer " + std::to_string(request.sampling.choice)}};
  });
  const std::string body = chat(R"(,"n":2)");
  EXPECT_HAS(body, R"({"index":0,"message":{"role":"assistant","content":"answer 0")");
  EXPECT_HAS(body, R"({"index":1,"message":{"role":"assistant","content":"answer 1")");
}

TEST_F(ServerTest, what_is_not_supported_is_refused_with_its_name) {
  say({"x"});
  const std::pair<const char*, const char*> cases[] = {
      {R"("response_format":{"type":"json_object"})", R"("param":"response_format.type")"},
      {R"("response_format":{"type":"json_schema","json_schema":{}})", "structured output"},
      {R"("tool_choice":"required")", "cannot be forced"},
      {R"("temperature":3)", R"("param":"temperature")"},
      {R"("temperature":"hot")", R"("code":"invalid_type")"},
      {R"("top_logprobs":3)", R"("param":"top_logprobs")"},
      {R"("stop":[""])", R"("param":"stop")"},
      {R"("n":0)", R"("param":"n")"},
      {R"("max_tokens":0)", R"("param":"max_tokens")"},
      {R"("logit_bias":{"a":1})", R"("param":"logit_bias")"},
      {R"("audio":{"voice":"x"})", R"("code":"unsupported_parameter")"},
      {R"("stream_options":{"include_usage":true})", R"("param":"stream_options")"},
      {R"("tools":[{"type":"function","function":{"name":"a"}},{"type":"function","function":{"name":"a"}}])",
       "two tools"}};
  for (const auto& [member, expected] : cases) {
    const std::string body = chat(std::string(",") + member);
    EXPECT_HAS(body, R"("type":"invalid_request_error")");
    EXPECT_HAS(body, expected);
  }
  // Unknown members and neutral values pass.
  EXPECT_HAS(chat(R"(,"never_heard_of":{"a":1},"audio":null,"user":"u","functions":[])"),
             R"("content":"x")");
}

TEST_F(ServerTest, wrong_bodies_are_explained) {
  say({"x"});
  const std::pair<const char*, const char*> cases[] = {
      {"", "valid JSON"},
      {"{\"messages\":[", "valid JSON"},
      {"[]", "JSON object"},
      {"{\"a\":\"\xff\"}", "offset"},
      {"{}", R"("param":"messages")"},
      {R"({"messages":[]})", "at least one"},
      {R"({"messages":[1]})", R"("param":"messages[0]")"},
      {R"({"messages":[{"role":"cat","content":"x"}]})", R"("param":"messages[0].role")"},
      {R"({"messages":[{"role":"user","content":[{"type":"image_url"}]}]})", "text only"},
      {R"({"messages":[{"role":"user","content":5}]})", R"("param":"messages[0].content")"}};
  for (const auto& [body, expected] : cases) {
    const Reply reply = post("/v1/chat/completions", body);
    EXPECT_EQ(reply.status, 400) << body;
    EXPECT_HAS(reply.body, expected);
  }
  EXPECT_EQ(post("/v1/chat/completions", std::string(5000, '[')).status, 400);
}

TEST_F(ServerTest, a_prompt_that_is_too_long_is_told_in_the_words_of_each_api) {
  say({"x"});
  const std::string text(2000, 'a');
  const std::string message = R"({"messages":[{"role":"user","content":")" + text + R"("}])";
  const Reply openai = post("/v1/chat/completions", message + "}");
  EXPECT_EQ(openai.status, 400);
  EXPECT_HAS(openai.body, R"("code":"context_length_exceeded")");
  EXPECT_HAS(openai.body, "exceeds the available context size (1000 tokens)");
  EXPECT_HAS(openai.body, R"("n_ctx":1000)");
  const Reply anthropic = post("/v1/messages?beta=true", message + R"(,"max_tokens":5})");
  EXPECT_EQ(anthropic.status, 400);
  EXPECT_HAS(anthropic.body, "prompt is too long: 2017 tokens > 999 maximum");
  EXPECT_HAS(anthropic.body, R"("type":"error")");
}

TEST_F(ServerTest, messages_stream_blocks_in_order) {
  say({"<think>hm</think>", "Hi.",
       "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}</tool_call>"});
  const std::string request =
      R"({"max_tokens":5,"messages":[{"role":"user","content":"hi"}],"thinking":{"type":"adaptive"},
          "tools":[{"name":"f","input_schema":{"type":"object"}},{"type":"web_search_20250305","name":"w"}])";
  const std::string body = post("/v1/messages", request + R"(,"stream":true})").body;
  const char* order[] = {"event: message_start",
                         R"("index":0,"content_block":{"type":"thinking")",
                         R"("index":0,"delta":{"type":"thinking_delta","thinking":"hm"})",
                         R"("delta":{"type":"signature_delta")",
                         R"({"type":"content_block_stop","index":0})",
                         R"("index":1,"content_block":{"type":"text")",
                         R"("index":1,"delta":{"type":"text_delta","text":"Hi."})",
                         R"({"type":"content_block_stop","index":1})",
                         R"("index":2,"content_block":{"type":"tool_use","id":"toolu_)",
                         R"("index":2,"delta":{"type":"input_json_delta","partial_json":)",
                         R"({"type":"content_block_stop","index":2})",
                         R"("stop_reason":"tool_use")",
                         "event: message_stop"};
  size_t at = 0;
  for (const char* next : order) {
    const size_t found = body.find(next, at);
    ASSERT_NE(found, std::string::npos) << next << " is not in " << body;
    at = found;
  }
  EXPECT_EQ(std::get<ChatPrompt>(last_.prompt).tools.size(), 1U);
  EXPECT_EQ(std::get<ChatPrompt>(last_.prompt).template_arguments.at("enable_thinking"), "true");
  const std::string whole = post("/v1/messages", request + "}").body;
  EXPECT_HAS(whole, R"({"type":"thinking","thinking":"hm","signature":")");
  EXPECT_HAS(whole, R"("name":"f","input":{"a": 1}})");
}

TEST_F(ServerTest, messages_keep_the_order_of_a_conversation) {
  say({"x"});
  const std::string body = post("/v1/messages", R"({"max_tokens":5,
    "system":[{"type":"text","text":"x-anthropic-billing-header: 5"},{"type":"text","text":"Be brief."}],
    "messages":[
      {"role":"user","content":"go"},
      {"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":"s"},
        {"type":"text","text":""},{"type":"tool_use","id":"u1","name":"f","input":{"a":1}}]},
      {"role":"user","content":[{"type":"text","text":"and?"},
        {"type":"tool_result","tool_use_id":"u1","is_error":true,"content":[{"type":"text","text":"bad"}]}]},
      {"role":"system","content":"Later."},
      {"role":"assistant","content":"It"}]})")
                               .body;
  EXPECT_HAS(body, R"("stop_reason":"end_turn")");
  const auto& prompt = std::get<ChatPrompt>(last_.prompt);
  ASSERT_EQ(prompt.messages.size(), 6U);
  EXPECT_EQ(prompt.messages[0].content, "Be brief.");
  EXPECT_EQ(prompt.messages[2].reasoning, "t");
  EXPECT_EQ(prompt.messages[2].tool_calls.at(0).arguments, R"({"a":1})");
  EXPECT_EQ(prompt.messages[3].role, "tool");
  EXPECT_EQ(prompt.messages[3].content, "Error: bad");
  EXPECT_EQ(prompt.messages[3].name, "f");
  EXPECT_EQ(prompt.messages[4].content, "and?");
  EXPECT_EQ(prompt.messages[5].role, "system");
  EXPECT_EQ(prompt.answer_begin, "It");
}

TEST_F(ServerTest, counted_tokens_are_those_of_the_real_request) {
  say({"x"});
  const std::string messages = R"("messages":[{"role":"user","content":"hello"}])";
  const std::string counted = post("/v1/messages/count_tokens", "{" + messages + "}").body;
  EXPECT_EQ(counted, R"({"input_tokens":22})");
  EXPECT_HAS(post("/v1/messages", "{\"max_tokens\":5," + messages + "}").body,
             R"("input_tokens":22)");
  const Reply missing = post("/v1/messages", "{" + messages + "}");
  EXPECT_EQ(missing.status, 400);
  EXPECT_HAS(missing.body, "max_tokens");
}

TEST_F(ServerTest, responses_number_their_events) {
  say({"<think>hm</think>Hi.",
       "<tool_call>{\"name\": \"patch\", \"arguments\": {\"input\": \"*** x\"}}</tool_call>"});
  const std::string request =
      R"({"input":[{"role":"developer","content":"short"},{"role":"user","content":[{"type":"input_text","text":"hi"}]},
           {"type":"something_new"}],"instructions":"i","store":false,"include":["reasoning.encrypted_content"],
          "tools":[{"type":"custom","name":"patch"},{"type":"web_search"},
                   {"type":"namespace","name":"ns","tools":[{"type":"function","name":"f"}]}])";
  const std::string body = post("/v1/responses", request + R"(,"stream":true})").body;
  size_t at = 0;
  for (int number = 0; body.find("data: ", at) != std::string::npos; ++number) {
    at = body.find("data: ", at) + 6;
    const std::string data = body.substr(at, body.find('\n', at) - at);
    EXPECT_HAS(data, "\"sequence_number\":" + std::to_string(number) + ",");
  }
  for (const char* part :
       {"event: response.created\n", "response.reasoning_text.delta", "response.output_text.done",
        "response.custom_tool_call_input.done", R"("input":"*** x")", "event: response.completed\n",
        R"("encrypted_content":"hm")"})
    EXPECT_HAS(body, part);
  EXPECT_EQ(std::get<ChatPrompt>(last_.prompt).tools.size(), 2U);
  EXPECT_EQ(std::get<ChatPrompt>(last_.prompt).messages.front().content, "i\n\nshort");
  const std::string whole = post("/v1/responses", request + "}").body;
  EXPECT_HAS(whole, R"("status":"completed")");
  EXPECT_HAS(whole, R"("type":"custom_tool_call")");
  EXPECT_EQ(post("/v1/responses", R"({"input":"x","previous_response_id":"r"})").status, 400);
}

TEST_F(ServerTest, completions_go_on_from_text) {
  say({" there"}, FinishReason::length);
  const std::string body =
      post("/v1/completions", R"({"prompt":["Hi","You"],"echo":true,"max_tokens":1})").body;
  EXPECT_HAS(body, R"({"index":0,"text":"Hi there","logprobs":null,"finish_reason":"length"})");
  EXPECT_HAS(body, R"({"index":1,"text":"You there")");
  EXPECT_HAS(body, R"("prompt_tokens":5)");
  EXPECT_EQ(post("/v1/completions", R"({"prompt":"a","suffix":"b"})").status, 400);
}

TEST_F(ServerTest, a_client_that_goes_away_ends_its_answer) {
  for (const char* stream : {"true", "false"}) {
    serve([](const Request&) { return Script{.pieces = {"a"}, .hold = true}; });
    records_.clear();
    HttpProbe probe(server_->port());
    probe.post("/v1/chat/completions",
               std::string(R"({"messages":[{"role":"user","content":"hi"}],"stream":)") + stream +
                   "}");
    if (std::string(stream) == "true") probe.read_until("\"content\":\"a\"");
    probe.close();
    EXPECT_EQ(record().ending, "cancelled");
    EXPECT_EQ(record().status, 499);
    EXPECT_EQ(engine_->n_cancelled(), 1);
    server_ = nullptr;
  }
}

TEST_F(ServerTest, long_silence_is_filled_by_each_api_in_its_way) {
  ServerOptions options;
  options.keep_alive_after = std::chrono::milliseconds(10);
  serve([](const Request&) { return Script{.hold = true}; }, options);
  const std::pair<const char*, const char*> cases[] = {
      {"/v1/chat/completions", ": still working\n\n"}, {"/v1/messages", "event: ping\n"}};
  for (const auto& [path, sign] : cases) {
    HttpProbe probe(server_->port());
    probe.post(path,
               R"({"messages":[{"role":"user","content":"hi"}],"max_tokens":5,"stream":true})");
    EXPECT_HAS(probe.read_until(sign), sign);
  }
  HttpProbe probe(server_->port());
  probe.post("/v1/responses", R"({"input":"hi","stream":true})");
  probe.read_until("event: response.in_progress\n");
  EXPECT_HAS(probe.read_until("event: response.in_progress\n"), "event: response.in_progress\n");
  engine_->release();
}

TEST_F(ServerTest, a_full_server_says_when_to_come_again) {
  ServerOptions options;
  options.max_requests = 1;
  serve([](const Request&) { return Script{.pieces = {"a"}, .hold = true}; }, options);
  HttpProbe first(server_->port());
  first.post("/v1/chat/completions",
             R"({"messages":[{"role":"user","content":"hi"}],"stream":true})");
  first.read_until("\"content\":\"a\"");
  const std::string body = R"({"messages":[{"role":"user","content":"hi"}],"max_tokens":5})";
  const Reply second = post("/v1/chat/completions", body);
  EXPECT_EQ(second.status, 429);
  EXPECT_HAS(second.head, "retry-after: ");
  EXPECT_EQ(post("/v1/messages", body).status, 529);
  engine_->release();
  EXPECT_HAS(first.read_until("[DONE]"), "[DONE]");
  EXPECT_EQ(record(2).status, 200);
  EXPECT_EQ(post("/v1/chat/completions", body).status, 200);
}

TEST_F(ServerTest, a_failure_of_the_device_is_told_and_turns_health_red) {
  serve([](const Request&) {
    return Script{.pieces = {"a"}, .failure = Error{ErrorCode::device_failed, "the chip is gone"}};
  });
  const Reply whole =
      post("/v1/chat/completions", R"({"messages":[{"role":"user","content":"hi"}]})");
  EXPECT_EQ(whole.status, 503);
  EXPECT_HAS(whole.body, "the chip is gone");
  EXPECT_HAS(chat(R"(,"stream":true)"), R"(data: {"error":{"message":"the chip is gone")");
  const std::string message =
      R"({"messages":[{"role":"user","content":"hi"}],"max_tokens":5,"stream":true})";
  EXPECT_HAS(post("/v1/messages", message).body, "event: error\n");
  EXPECT_HAS(post("/v1/responses", R"({"input":"hi","stream":true})").body,
             "event: response.failed\n");
  HttpProbe probe(server_->port());
  probe.get("/health");
  EXPECT_EQ(probe.read().status, 503);
}

TEST(ServerStates, a_server_that_loads_says_so) {
  const auto server = Server::start({});
  ASSERT_TRUE(server.ok());
  HttpProbe probe((*server)->port());
  probe.get("/health");
  const Reply health = probe.read();
  EXPECT_EQ(health.status, 503);
  EXPECT_HAS(health.body, "loading");
  probe.get("/v1/models");
  EXPECT_EQ(probe.read().status, 503);
  probe.get("/status");
  EXPECT_EQ(probe.read().status, 200);
}

TEST(ServerStates, other_machines_need_a_key) {
  const auto open = Server::start({.host = "0.0.0.0"});
  ASSERT_FALSE(open.ok());
  EXPECT_HAS(open.error().message, "--api-key");
}

TEST_F(ServerTest, routes_methods_and_keys) {
  ServerOptions options;
  options.api_key = "k";
  serve([](const Request&) { return Script{.pieces = {"x"}}; }, options);
  HttpProbe probe(server_->port());
  probe.send("HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(probe.read(false).status, 200);
  probe.get("/health");
  EXPECT_EQ(probe.read().status, 200);
  probe.get("/v1/models");
  EXPECT_EQ(probe.read().status, 401);
  const std::string key = "Authorization: Bearer k\r\n";
  for (const char* path :
       {"/v1/models", "/models", "/v1/v1/models", "/v1/models/tiny", "/metrics"}) {
    probe.get(path, key);
    EXPECT_EQ(probe.read().status, 200) << path;
  }
  probe.get("/v1/models/other", key);
  EXPECT_EQ(probe.read().status, 404);
  probe.get("/v1/chat/completions", key);
  const Reply wrong = probe.read();
  EXPECT_EQ(wrong.status, 405);
  EXPECT_HAS(wrong.head, "allow: POST");
  EXPECT_EQ(post("/v1/chat/completions", "{}", key + "Content-Encoding: zstd\r\n").status, 415);
  probe.get("/nothing", key);
  EXPECT_EQ(probe.read().status, 404);
  EXPECT_HAS(post("/v1/messages", "{}").body, R"("type":"authentication_error")");
}

TEST_F(ServerTest, text_and_tokens) {
  say({"x"});
  EXPECT_EQ(post("/tokenize", R"({"content":"AB"})").body, R"({"tokens":[65,66]})");
  EXPECT_EQ(post("/detokenize", R"({"tokens":[65,66]})").body, R"({"content":"AB"})");
  EXPECT_EQ(post("/apply-template", R"({"messages":[{"role":"user","content":"a"}]})").body,
            R"({"prompt":"<user>a<assistant>"})");
  EXPECT_EQ(post("/detokenize", R"({"tokens":["a"]})").status, 400);
}

}  // namespace
}  // namespace kapitsa::server
