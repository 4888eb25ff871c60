// kapitsa pull MODEL: downloads a model and prints its path on stdout, all else on stderr.
#include "cli/cli.h"
#include "cli/models.h"

#include <cstdio>
#include <memory>

namespace kapitsa::cli {
namespace {

struct PullCommand {
  std::string model;
  bool quiet = false;
};

int pull_command(const PullCommand& command) {
  const auto pulled = pull_model(command.model, command.quiet);
  if (!pulled && pulled.error().code == ErrorCode::cancelled) {
    std::fprintf(stderr, "Stopped. 'kapitsa pull %s' goes on where it was.\n",
                 command.model.c_str());
    return kExitInterrupted;
  }
  if (!pulled) return report(pulled.error());
  if (!command.quiet)
    std::fprintf(stderr, "%s is %s\n", pulled->name.c_str(),
                 pulled->was_there ? "already here" : "downloaded and verified");
  std::printf("%s\n", pulled->path.c_str());
  return 0;
}

}  // namespace

void add_pull(const Command& app, int& exit_code) {
  auto options = std::make_shared<PullCommand>();
  const Command command = app.subcommand("pull", "Download a model");
  command
      .option("MODEL", options->model,
              "Name of the catalog, or hf:OWNER/REPO[:FILE or type] from the Hugging Face hub")
      .required();
  command.flag("-q,--quiet", options->quiet, "No progress, only the path");
  command.footer(
      "A stopped download goes on where it was. Every file is verified before it is used.\n"
      "Environment: KAPITSA_HOME, HF_TOKEN, HF_ENDPOINT, PIP_INDEX_URL, https_proxy, "
      "SSL_CERT_FILE.\n"
      "Examples:\n"
      "  kapitsa pull smollm2\n"
      "  kapitsa pull hf:OWNER/REPO-GGUF:Q4_K_M");
  command.on_run([options, &exit_code] { exit_code = pull_command(*options); });
}

}  // namespace kapitsa::cli
