// What `bench` measured, as a table for a terminal of 80 columns and as JSON. Pure functions.
#pragma once

#include "base/machine.h"
#include "kapitsa/engine.h"

#include <cstdint>
#include <string>
#include <vector>

namespace kapitsa::cli {

// One run at one depth: prompt_tokens are read, then decode_tokens made, which end at the depth.
struct BenchRun {
  int32_t prompt_tokens = 0;
  int32_t decode_tokens = 0;  // whose time was taken: the first comes with the prefill, where
                              // tokens come one by one
  double prefill_seconds = 0.0;
  double decode_seconds = 0.0;
  std::vector<StepTime> steps;  // with --trace

  double prefill_rate() const { return prompt_tokens / prefill_seconds; }  // tokens per second
  double decode_rate() const { return decode_tokens / decode_seconds; }
};

struct BenchCell {
  int32_t depth = 0;            // tokens of the sequence at the end
  int64_t bytes_per_token = 0;  // read by decoding, half way; 0: not known (block diffusion)
  std::vector<BenchRun> runs;
  std::string skipped;  // why there are no runs
};

struct BenchReport {
  ModelInfo model;
  std::string model_path;
  std::string model_sha256;  // "" where it was not computed
  std::string flags;         // options that differ from the defaults
  MachineInfo machine;
  int n_threads = 0;              // of the bandwidth
  double bytes_per_second = 0.0;  // read from memory, measured between the runs
  std::vector<BenchCell> cells;
};

std::string bench_table(const BenchReport& report);

// With --trace: where the time of each depth went, the same step of all layers together. ""
// without.
std::string steps_table(const BenchReport& report);

// {"cells": [...]}: two for each depth, "prefill" and "decode"; each is complete by itself.
std::string bench_json(const BenchReport& report);

}  // namespace kapitsa::cli
