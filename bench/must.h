// What a benchmark does with an error: prints it and ends.
#pragma once

#include "base/result.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <utility>

namespace kapitsa::bench {

inline void must(const Status& status) {
  if (status) return;
  fmt::print(stderr, "{}\n", status.error().message);
  std::exit(1);
}

template <typename T>
T must(Result<T> result) {
  if (!result) must(Status(result.error()));
  return std::move(*result);
}

}  // namespace kapitsa::bench
