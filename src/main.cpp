// The program: everything it does lives in src/cli.
#include "cli/cli.h"

int main(int argc, char** argv) {
  return kapitsa::cli::run(argc, argv);
}
