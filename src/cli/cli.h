// The command line: parses the arguments, runs one command, returns the exit code of the process:
// 0 done, 1 failed (one line on stderr says why), 2 wrong usage, 130 stopped by Ctrl-C.
#pragma once

#include "base/result.h"
#include "cli/command.h"

#include <string>
#include <string_view>

namespace kapitsa::cli {

inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitInterrupted = 130;

int run(int argc, char** argv);

// Each command lives in one file and adds itself to the application; its callback sets exit_code.
void add_run(const Command& app, int& exit_code);
void add_serve(const Command& app, int& exit_code);
void add_agents(const Command& app, int& exit_code);
void add_pull(const Command& app, int& exit_code);
void add_list(const Command& app, int& exit_code);
void add_rm(const Command& app, int& exit_code);
void add_inspect(const Command& app, int& exit_code);
void add_verify(const Command& app, int& exit_code);
void add_bench(const Command& app, int& exit_code);
void add_doctor(const Command& app, int& exit_code);
void add_synth(const Command& app, int& exit_code);
void add_completions(const Command& app, int& exit_code);

// Prints "kapitsa: <message>" on stderr and returns kExitFailed.
int report(const Error& error);
// The message as one line that is safe to show: control characters escaped, cut where it is
// endless.
std::string one_line(std::string_view message);

}  // namespace kapitsa::cli
