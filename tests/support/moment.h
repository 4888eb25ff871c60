// The moment at which templates are rendered in tests, the same as in the scripts that made or make
// their expected texts: Friday, 26 July 2024, 09:05:03.
#pragma once

#include <ctime>

namespace kapitsa::test {

inline std::tm moment() {
  std::tm now{};
  now.tm_year = 124;
  now.tm_mon = 6;
  now.tm_mday = 26;
  now.tm_hour = 9;
  now.tm_min = 5;
  now.tm_sec = 3;
  now.tm_wday = 5;
  now.tm_yday = 207;
  return now;
}

}  // namespace kapitsa::test
