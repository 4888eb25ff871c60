// The command line: parses the arguments, runs one command, returns the exit code of the process.
#pragma once

namespace kapitsa::cli {

int run(int argc, char** argv);

}  // namespace kapitsa::cli
