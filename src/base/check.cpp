#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace kapitsa {

void check_failed(const char* file, int line, const char* condition, const char* message) {
  std::fprintf(stderr, "kapitsa: internal error: %s (%s) at %s:%d\n", message, condition, file,
               line);
  std::abort();
}

}  // namespace kapitsa
