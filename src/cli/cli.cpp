#include "cli/cli.h"

#include "base/version.h"

#include <CLI/CLI.hpp>

#include <cstdio>
#include <exception>

namespace kapitsa::cli {

int report(const Error& error) {
  std::fprintf(stderr, "kapitsa: %s\n", error.message.c_str());
  return kExitFailed;
}

int run(int argc, char** argv) {
  CLI::App app("Runs large language models on this machine.", "kapitsa");
  app.set_version_flag("--version", std::string("kapitsa ") + kVersion + " (" + kCommit + ")");
  app.require_subcommand(1);
  app.footer("Examples:\n"
             "  kapitsa run smollm2 \"Why is the sky blue?\"\n"
             "  kapitsa run path/to/model.gguf --temp 0 --max-tokens 200 < question.txt\n"
             "  kapitsa bench\n"
             "'kapitsa COMMAND --help' explains a command.");
  int exit_code = 0;
  add_run(app, exit_code);
  add_pull(app, exit_code);
  add_list(app, exit_code);
  add_rm(app, exit_code);
  add_inspect(app, exit_code);
  add_verify(app, exit_code);
  add_bench(app, exit_code);
  add_doctor(app, exit_code);
  add_completions(app, exit_code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    std::fprintf(stderr, "kapitsa: %s (see kapitsa --help)\n", error.what());
    return kExitUsage;
  } catch (const std::exception& error) {  // out of memory outside any Result
    std::fprintf(stderr, "kapitsa: %s\n", error.what());
    return kExitFailed;
  }
  return exit_code;
}

}  // namespace kapitsa::cli
