#include "server/request_log.h"

#include <gtest/gtest.h>

namespace kapitsa::server {
namespace {

RequestRecord answered() {
  RequestRecord record{
      .id = "1", .method = "POST", .path = "/v1/messages", .status = 200, .seconds = 2.5};
  record.generated = true;
  record.stream = true;
  record.model = "m";
  record.ending = "stop";
  record.prompt_tokens = 200;
  record.prompt_done = 100;
  record.cached_tokens = 20;
  record.completion_tokens = 11;
  record.queue_seconds = 0.25;
  record.prefill_seconds = 0.5;
  record.decode_seconds = 1.0;
  return record;
}

TEST(RequestLog, a_line_says_what_was_read_and_made_and_why_it_ended) {
  EXPECT_EQ(
      record_text(answered()),
      "POST /v1/messages 200; prompt 200 tokens, 20 cached, 50 % read, 160.0 tok/s; answer 11 "
      "tokens, 10.0 tok/s; stop; waited 0.2 s; 2.50 s");
  RequestRecord refused{.method = "GET", .path = "/x", .status = 404, .seconds = 0.0};
  refused.error = "there is no /x";
  EXPECT_EQ(record_text(refused), "GET /x 404; 0.00 s; there is no /x");
}

TEST(RequestLog, as_json) {
  const std::string json = record_json(answered());
  EXPECT_NE(json.find(R"("event":"request","id":"1","method":"POST")"), std::string::npos) << json;
  EXPECT_NE(json.find(R"("ending":"stop","prompt_tokens":200)"), std::string::npos) << json;
}

TEST(RequestLog, metrics_add_up) {
  Metrics metrics;
  metrics.add(answered());
  metrics.add(answered());
  for (const char* path : {"/a", "/b"})
    metrics.add({.method = "GET", .path = path, .status = 404});
  const std::string text = metrics.text({{"open_requests", 1.0}});
  for (const char* line :
       {"kapitsa_requests_total{path=\"/v1/messages\",status=\"200\"} 2\n",
        "kapitsa_requests_total{path=\"other\",status=\"404\"} 2\n",
        "kapitsa_prompt_tokens_total 200\n", "kapitsa_completion_tokens_total 22\n",
        "# TYPE kapitsa_open_requests gauge\nkapitsa_open_requests 1\n"})
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
}

}  // namespace
}  // namespace kapitsa::server
