#include "cli/bench_report.h"

#include "base/json_write.h"
#include "base/version.h"
#include "cli/machine_report.h"
#include "cli/show.h"

#include <fmt/format.h>

#include <algorithm>

namespace kapitsa::cli {
namespace {

Spread rates(const BenchCell& cell, double (BenchRun::*rate)() const) {
  std::vector<double> values;
  for (const BenchRun& run : cell.runs)
    values.push_back((run.*rate)());
  return spread_of(std::move(values));
}

std::string low_high(const Spread& spread) {
  const int digits = spread.median < 100.0 ? 1 : 0;
  return fmt::format("{:.{}f}..{:.{}f}", spread.low, digits, spread.high, digits);
}

// Bytes per second that decoding reads at this rate.
double traffic(const BenchCell& cell, double rate) {
  return rate * static_cast<double>(cell.bytes_per_token);
}

// The same step of all layers: "attention" for "3.attention".
std::string_view kind_of(const StepTime& step) {
  const std::string_view label = step.label;
  const size_t digits = label.find_first_not_of("0123456789");
  return digits != std::string_view::npos && digits > 0 && label[digits] == '.'
             ? label.substr(digits + 1)
             : label;
}

// What one kind of step took in all runs.
struct StepSum {
  std::string kind, op;
  double bytes = 0.0, seconds = 0.0;
  double best = 0.0;  // seconds for each token if nothing disturbed any of them
};

// The steps of one phase by kind and op, in the order of the first layer that has them.
std::vector<StepSum> sum_steps(const BenchCell& cell, bool prefill) {
  std::vector<StepTime> steps;  // of all runs
  for (const BenchRun& run : cell.runs) {
    for (const StepTime& step : run.steps) {
      if (step.prefill != prefill) continue;
      steps.push_back(step);
    }
  }
  std::vector<StepSum> sums;
  for (const StepTime& step : steps) {
    auto same = std::ranges::find_if(
        sums, [&](const StepSum& sum) { return sum.kind == kind_of(step) && sum.op == step.op; });
    if (same == sums.end())
      same = sums.insert(sums.end(), {.kind = std::string(kind_of(step)), .op = step.op});
    same->bytes += static_cast<double>(step.bytes);
    same->seconds += step.seconds;
    same->best += step.best / static_cast<double>(cell.runs.size());
  }
  return sums;
}

std::string phase_table(const BenchCell& cell, bool prefill) {
  std::vector<StepSum> sums = sum_steps(cell, prefill);
  if (sums.empty()) return {};
  double tokens = 0.0, seconds = 0.0;
  for (const BenchRun& run : cell.runs) {
    tokens += prefill ? run.prompt_tokens : run.decode_tokens;
    seconds += prefill ? run.prefill_seconds : run.decode_seconds;
  }
  StepSum all = {.kind = "all steps", .op = ""};
  for (const StepSum& sum : sums) {
    all.bytes += sum.bytes;
    all.seconds += sum.seconds;
    all.best += sum.best;
  }
  sums.push_back({.kind = "between passes", .op = "", .seconds = seconds - all.seconds});
  sums.push_back(all);
  Table table({"step", "op", "us/token", "share", "best us", "MB/token", "GB/s"});
  for (const StepSum& sum : sums) {
    const bool reads = sum.bytes > 0.0;
    table.add({sum.kind, sum.op, fmt::format("{:.1f}", 1e6 * sum.seconds / tokens),
               fmt::format("{:.1f}%", 100.0 * sum.seconds / seconds),
               fmt::format("{:.1f}", 1e6 * sum.best),
               reads ? fmt::format("{:.2f}", sum.bytes / 1e6 / tokens) : "",
               reads ? fmt::format("{:.1f}", sum.bytes / 1e9 / sum.seconds) : ""});
  }
  return fmt::format("\n{} tokens, {}\n", show_context(cell.depth),
                     prefill ? "prefill" : "decode") +
         table.text();
}

void write_context(JsonWriter& json, const BenchReport& report) {
  json.member("engine", "kapitsa")
      .member("version", kVersion)
      .member("commit", kCommit)
      .member("build", build_text())
      .member("flags", report.flags);
  json.key("model").begin_object();
  json.member("name", report.model.name)
      .member("path", report.model_path)
      .member("sha256", report.model_sha256)
      .member("bytes", report.model.file_bytes)
      .member("architecture", report.model.architecture)
      .member("quantisation", report.model.quantisation)
      .member("parameters", report.model.n_parameters)
      .end_object();
  json.member("backend", report.model.backend).key("machine");
  write_machine(json, report.machine);
  json.member("memory_bytes_per_second", report.bytes_per_second)
      .member("memory_threads", report.n_threads);
}

void write_cell(JsonWriter& json, const BenchReport& report, const BenchCell& cell, bool decode) {
  const Spread spread = rates(cell, decode ? &BenchRun::decode_rate : &BenchRun::prefill_rate);
  json.begin_object().member("test", decode ? "decode" : "prefill").member("depth", cell.depth);
  write_context(json, report);
  if (!cell.skipped.empty()) json.member("skipped", cell.skipped);
  json.key("runs").begin_array();
  for (const BenchRun& run : cell.runs) {
    json.begin_object()
        .member("tokens", decode ? run.decode_tokens : run.prompt_tokens)
        .member("seconds", decode ? run.decode_seconds : run.prefill_seconds)
        .end_object();
  }
  json.end_array();
  if (!cell.runs.empty()) {
    json.key("tokens_per_second").begin_object();
    json.member("median", spread.median).member("low", spread.low).member("high", spread.high);
    json.end_object();
  }
  if (decode && !cell.runs.empty() && cell.bytes_per_token > 0) {
    const double bytes = traffic(cell, spread.median);
    json.member("bytes_per_token", cell.bytes_per_token)
        .member("bytes_per_second", bytes)
        .member("share_of_memory_bandwidth", bytes / report.bytes_per_second)
        .member("bound_tokens_per_second",
                report.bytes_per_second / static_cast<double>(cell.bytes_per_token));
  }
  json.end_object();
}

}  // namespace

std::string bench_table(const BenchReport& report) {
  std::string text = shorten(fmt::format("{}, {}, {}", report.model.name, report.model.quantisation,
                                         show_bytes(report.model.file_bytes)),
                             80) +
                     "\n";
  text +=
      shorten(report.model.backend + (report.flags.empty() ? "" : "; " + report.flags), 80) + "\n";
  text += shorten(fmt::format("{}; memory reads {}", show_machine(report.machine),
                              show_rate(report.bytes_per_second)),
                  80) +
          "\n\n";
  Table table(
      {"context", "prefill", "decode", "low..high", "bound", "MB/token", "GB/s", "share", "runs"});
  table.add({"", "tok/s", "tok/s", "tok/s", "tok/s", "", "", "", ""});
  std::string skipped;
  for (const BenchCell& cell : report.cells) {
    if (!cell.skipped.empty()) {
      skipped += fmt::format("{}: {}\n", show_context(cell.depth), cell.skipped);
      continue;
    }
    const Spread decode = rates(cell, &BenchRun::decode_rate);
    const double bytes = traffic(cell, decode.median);
    const double bound = report.bytes_per_second / static_cast<double>(cell.bytes_per_token);
    const auto known = [&](const std::string& value) {
      return cell.bytes_per_token > 0 ? value : "-";
    };
    table.add({show_context(cell.depth),
               fmt::format("{:.1f}", rates(cell, &BenchRun::prefill_rate).median),
               fmt::format("{:.1f}", decode.median), low_high(decode),
               known(fmt::format("{:.1f}", bound)),
               known(fmt::format("{:.1f}", static_cast<double>(cell.bytes_per_token) / 1e6)),
               known(fmt::format("{:.2f}", bytes / 1e9)),
               known(fmt::format("{:.0f}%", 100.0 * bytes / report.bytes_per_second)),
               std::to_string(cell.runs.size())});
  }
  return text + table.text() + skipped;
}

std::string steps_table(const BenchReport& report) {
  std::string text;
  for (const BenchCell& cell : report.cells) {
    for (const bool prefill : {false, true})
      text += phase_table(cell, prefill);
  }
  return text;
}

std::string bench_json(const BenchReport& report) {
  JsonWriter json(2);
  json.begin_object().key("cells").begin_array();
  for (const BenchCell& cell : report.cells) {
    write_cell(json, report, cell, false);
    write_cell(json, report, cell, true);
  }
  return json.end_array().end_object().take();
}

}  // namespace kapitsa::cli
