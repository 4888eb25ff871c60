// The JSON events of an answer, and the table and JSON of a benchmark.
#include "base/json.h"
#include "cli/answer.h"
#include "cli/bench_report.h"

#include <boost/json.hpp>
#include <gtest/gtest.h>

#include <sstream>

namespace kapitsa::cli {
namespace {

boost::json::object read(const std::string& text) {
  auto value = parse_json(text, "output");
  EXPECT_TRUE(value.ok()) << value.error().message;
  return value.ok() ? value->as_object() : boost::json::object();
}

TEST(AnswerEvents, each_kind_names_itself) {
  TextDelta delta;
  delta.text = "a\n\"b\"";
  delta.tokens = {1, 2};
  const auto text = read(event_json(delta, ""));
  EXPECT_EQ(text.at("event"), "text");
  EXPECT_EQ(text.at("text"), "a\n\"b\"");
  EXPECT_EQ(text.at("tokens").as_array().size(), 2U);
  Finished done;
  done.reason = FinishReason::cancelled;
  done.seed = UINT64_MAX;
  const auto end = read(event_json(done, "whole"));
  EXPECT_EQ(end.at("reason"), "cancelled");
  EXPECT_EQ(end.at("text"), "whole");
  EXPECT_EQ(end.at("seed").as_uint64(), UINT64_MAX);
  const auto failed = read(event_json(Failed{{ErrorCode::out_of_memory, "no room"}}, ""));
  EXPECT_EQ(failed.at("code"), "out_of_memory");
  EXPECT_EQ(failed.at("message"), "no room");
}

TEST(AnswerText, control_characters_do_not_reach_a_terminal) {
  EXPECT_EQ(for_terminal("a\x1b[2J\tb\n\x07\xC3\xA9"), "a[2J\tb\n\xC3\xA9");
}

BenchReport report() {
  BenchReport report;
  report.model.name = std::string(200, 'n');
  report.model.quantisation = "q4_1";
  report.model.file_bytes = 98362432;
  report.model.backend = "cpu (avx512 kernels, 128 threads)";
  report.machine.cpu = "A processor with a name that is very long, as some of them have";
  report.machine.usable_cores = 128;
  report.flags = "--threads 128";
  report.n_threads = 128;
  report.bytes_per_second = 400e9;
  for (const int32_t depth : {1024, 32768}) {
    BenchCell cell;
    cell.depth = depth;
    cell.bytes_per_token = 10000000000;
    cell.runs = {
        {depth - 65, 64, 0.5, 2.0}, {depth - 65, 64, 0.25, 3.2}, {depth - 65, 64, 1.0, 4.0}};
    report.cells.push_back(cell);
  }
  report.cells.push_back({.depth = 65536, .runs = {}, .skipped = "the model was trained for less"});
  return report;
}

TEST(BenchReport, the_table_fits_80_columns_and_says_what_was_left_out) {
  const std::string table = bench_table(report());
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);)
    EXPECT_LE(line.size(), 80U) << line;
  EXPECT_NE(table.find("16.0..32.0"), std::string::npos) << table;
  EXPECT_NE(table.find("64K: the model was trained for less"), std::string::npos) << table;
}

TEST(BenchReport, steps_of_all_layers_are_summed_by_kind_and_phase) {
  BenchReport traced = report();
  EXPECT_EQ(steps_table(traced), "");
  for (BenchRun& run : traced.cells[0].runs) {
    for (const char* label : {"0.experts_up", "1.experts_up", "head"}) {
      for (const bool prefill : {false, true}) {
        run.steps.push_back({.label = label,
                             .op = "ExpertLinear",
                             .prefill = prefill,
                             .passes = 64,
                             .rows = 64,
                             .bytes = 64000000,
                             .seconds = 0.064,
                             .best = 0.0005});
      }
    }
  }
  const std::string table = steps_table(traced);
  std::istringstream lines(table);
  std::vector<std::string> experts;
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), 80U) << line;
    if (line.starts_with("experts_up")) experts.push_back(line);
  }
  ASSERT_EQ(experts.size(), 2U) << table;
  // Two layers: 2 ms and 2 MB for each of 64 tokens, 1 ms undisturbed, 1 GB/s.
  for (const char* cell : {" 2000.0", " 1000.0", " 2.00", " 1.0"})
    EXPECT_NE(experts[0].find(cell), std::string::npos) << experts[0];
}

TEST(BenchReport, every_cell_of_the_json_is_complete_by_itself) {
  const auto json = read(bench_json(report()));
  const auto& cells = json.at("cells").as_array();
  ASSERT_EQ(cells.size(), 6U);
  for (const auto& value : cells) {
    const auto& cell = value.as_object();
    for (const char* key : {"engine", "version", "commit", "build", "flags", "model", "backend",
                            "machine", "test", "depth", "runs"})
      EXPECT_TRUE(cell.contains(key)) << key;
  }
  const auto& decode = cells[1].as_object();
  EXPECT_EQ(decode.at("runs").as_array().size(), 3U);
  EXPECT_EQ(decode.at("tokens_per_second").as_object().at("median").to_number<double>(), 20.0);
  EXPECT_EQ(decode.at("bytes_per_second").to_number<double>(), 200e9);
  EXPECT_EQ(decode.at("share_of_memory_bandwidth").to_number<double>(), 0.5);
  EXPECT_EQ(cells[5].as_object().at("skipped"), "the model was trained for less");
}

}  // namespace
}  // namespace kapitsa::cli
