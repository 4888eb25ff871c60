#include "server/request_log.h"

#include "base/json_write.h"

#include <fmt/format.h>

namespace kapitsa::server {
namespace {

std::string rate(int32_t tokens, double seconds) {
  return seconds > 0.0 && tokens > 0 ? fmt::format(", {:.1f} tok/s", tokens / seconds) : "";
}

double as_double(int32_t n) {
  return static_cast<double>(n);
}

}  // namespace

std::string record_text(const RequestRecord& record) {
  std::string line = fmt::format("{} {} {}", record.method, record.path, record.status);
  if (record.generated) {
    const double share =
        record.prompt_tokens > 0 ? 100.0 * record.prompt_done / record.prompt_tokens : 0.0;
    line += fmt::format("; prompt {} tokens, {} cached, {:.0f} % read{}", record.prompt_tokens,
                        record.cached_tokens, share,
                        rate(record.prompt_done - record.cached_tokens, record.prefill_seconds));
    line += fmt::format("; answer {} tokens{}", record.completion_tokens,
                        rate(record.completion_tokens - 1, record.decode_seconds));
    line += "; " + record.ending;
    if (record.queue_seconds >= 0.1) line += fmt::format("; waited {:.1f} s", record.queue_seconds);
  }
  line += fmt::format("; {:.2f} s", record.seconds);
  if (!record.error.empty()) line += "; " + record.error;
  return line;
}

std::string record_json(const RequestRecord& record) {
  JsonWriter json;
  json.begin_object().member("event", "request").member("id", record.id);
  json.member("method", record.method).member("path", record.path);
  json.member("status", record.status).member("seconds", record.seconds);
  if (record.generated) {
    json.member("model", record.model).member("stream", record.stream);
    json.member("ending", record.ending).member("prompt_tokens", record.prompt_tokens);
    json.member("prompt_done", record.prompt_done).member("cached_tokens", record.cached_tokens);
    json.member("completion_tokens", record.completion_tokens);
    json.member("queue_seconds", record.queue_seconds);
    json.member("prefill_seconds", record.prefill_seconds);
    json.member("decode_seconds", record.decode_seconds);
  }
  if (!record.error.empty()) json.member("error", record.error);
  return json.end_object().take();
}

void Metrics::add(const RequestRecord& record) {
  const std::lock_guard lock(mutex_);
  // Paths that do not exist would let anyone grow the table.
  ++requests_[{record.status == 404 ? "other" : record.path, record.status}];
  sums_["request_seconds_total"] += record.seconds;
  if (!record.generated) return;
  sums_["prompt_tokens_total"] += as_double(record.prompt_done);
  sums_["prompt_cached_tokens_total"] += as_double(record.cached_tokens);
  sums_["completion_tokens_total"] += as_double(record.completion_tokens);
  sums_["queue_seconds_total"] += record.queue_seconds;
  sums_["prefill_seconds_total"] += record.prefill_seconds;
  sums_["decode_seconds_total"] += record.decode_seconds;
}

std::string Metrics::text(const std::map<std::string, double>& gauges) const {
  const std::lock_guard lock(mutex_);
  std::string text = "# TYPE kapitsa_requests_total counter\n";
  for (const auto& [key, count] : requests_)
    text += fmt::format("kapitsa_requests_total{{path={},status=\"{}\"}} {}\n",
                        json_string(key.first), key.second, count);
  for (const auto& [name, sum] : sums_)
    text += fmt::format("# TYPE kapitsa_{0} counter\nkapitsa_{0} {1}\n", name, sum);
  for (const auto& [name, value] : gauges)
    text += fmt::format("# TYPE kapitsa_{0} gauge\nkapitsa_{0} {1}\n", name, value);
  return text;
}

}  // namespace kapitsa::server
