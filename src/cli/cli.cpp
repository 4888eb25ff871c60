#include "cli/cli.h"

#include "base/interrupt.h"
#include "base/version.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <new>
#include <system_error>

namespace kapitsa::cli {

namespace {

constexpr size_t kMaxLine = 2000;  // bytes of a message: a hostile file may put megabytes into it

int output_failed() {
  return report({ErrorCode::io, "standard output: cannot be written; the output is incomplete"});
}

int usage_error(const std::string& message) {
  std::fprintf(stderr, "kapitsa: %s (see kapitsa --help)\n", one_line(message).c_str());
  return kExitUsage;
}

}  // namespace

std::string one_line(std::string_view message) {
  std::string line;
  for (const char c : message.substr(0, kMaxLine)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7F) {
      line += fmt::format("\\x{:02x}", byte);
    } else {
      line += c;
    }
  }
  if (message.size() > kMaxLine) line += "...";
  return line;
}

int report(const Error& error) {
  std::fprintf(stderr, "kapitsa: %s\n", one_line(error.message).c_str());
  return kExitFailed;
}

int run(int argc, char** argv) {
  end_on_interrupt();
  Application application("kapitsa", "Runs large language models on this machine.",
                          fmt::format("kapitsa {} ({})", kVersion, kCommit));
  const Command app = application.root();
  app.footer("Examples:\n"
             "  kapitsa run smollm2 \"Why is the sky blue?\"\n"
             "  kapitsa run path/to/model.gguf --temp 0 --max-tokens 200 < question.txt\n"
             "  kapitsa bench\n"
             "'kapitsa COMMAND --help' explains a command.");
  int exit_code = 0;
  add_run(app, exit_code);
  add_serve(app, exit_code);
  add_agents(app, exit_code);
  add_pull(app, exit_code);
  add_list(app, exit_code);
  add_rm(app, exit_code);
  add_inspect(app, exit_code);
  add_verify(app, exit_code);
  add_bench(app, exit_code);
  add_doctor(app, exit_code);
  add_synth(app, exit_code);
  add_completions(app, exit_code);
  try {
    const Application::Outcome outcome = application.run(argc, argv);
    if (!outcome.usage_error.empty()) return usage_error(outcome.usage_error);
    if (outcome.exit_code != 0) exit_code = outcome.exit_code;
  } catch (const std::bad_alloc&) {
    return report({ErrorCode::out_of_memory, "out of memory: the system refused to give more"});
  } catch (const std::system_error& error) {
    if (error.code() != std::errc::resource_unavailable_try_again) return output_failed();
    return report({ErrorCode::out_of_memory,
                   fmt::format("the system refused a thread: {}; use fewer --threads, or allow "
                               "this process more memory",
                               error.what())});
  }
  // What the last flush could not write must not look like success.
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
    return exit_code == 0 ? output_failed() : exit_code;
  return exit_code;
}

}  // namespace kapitsa::cli
