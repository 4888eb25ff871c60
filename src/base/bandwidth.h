// How fast this machine reads memory: the bound on decoding, which reads every weight for every
// token. A measurement, so it varies with what else runs.
#pragma once

#include "base/result.h"

#include <cstdint>

namespace kapitsa {

struct Bandwidth {
  int n_threads = 0;
  int64_t bytes = 0;              // size of the block that was read
  double bytes_per_second = 0.0;  // of the best pass
};

// Reads a block larger than any cache with n_threads threads, pass after pass for about `seconds`
// (at least three passes), each thread its own part. out_of_memory where there is no room for it.
Result<Bandwidth> measure_bandwidth(int n_threads, double seconds);

}  // namespace kapitsa
