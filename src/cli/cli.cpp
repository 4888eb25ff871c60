#include "cli/cli.h"

#include "base/version.h"

#include <cstdio>

namespace kapitsa::cli {

int run(int /*argc*/, char** /*argv*/) {
  std::printf("kapitsa %s (%s)\n", kVersion, kCommit);
  return 0;
}

}  // namespace kapitsa::cli
