// kapitsa rm MODEL...: removes models that Kapitsa downloaded, after a question in a terminal.
#include "base/system.h"
#include "cli/cli.h"
#include "cli/models.h"

#include <cstdio>
#include <iostream>
#include <memory>

namespace kapitsa::cli {
namespace {

struct RmCommand {
  std::vector<std::string> models;
  bool yes = false;
};

bool confirmed(const hub::Removable& model) {
  std::fprintf(stderr, "Remove %s%s (%s) from %s? [y/N] ", model.name.c_str(),
               model.complete ? "" : ", an unfinished download",
               hub::shown_bytes(model.bytes).c_str(), model.folder.c_str());
  std::string line;
  return std::getline(std::cin, line) && (line == "y" || line == "Y" || line == "yes");
}

int rm_command(const RmCommand& command) {
  const auto folders = model_folders();
  if (!folders) return report(folders.error());
  for (const std::string& name : command.models) {
    const auto model = hub::find_removable(name, *folders);
    if (!model) return report(model.error());
    if (!command.yes && !is_terminal(0))
      return report(
          {ErrorCode::invalid_argument, "rm asks before it removes; without a terminal, give -y"});
    if (!command.yes && !confirmed(*model)) continue;
    if (const Status removed = hub::remove_model(*model); !removed) return report(removed.error());
    std::fprintf(stderr, "Removed %s, %s\n", model->name.c_str(),
                 hub::shown_bytes(model->bytes).c_str());
  }
  return 0;
}

}  // namespace

void add_rm(const Command& app, int& exit_code) {
  auto options = std::make_shared<RmCommand>();
  const Command command = app.subcommand("rm", "Remove a downloaded model");
  command.option("MODEL", options->models, "As 'kapitsa list' names it").required();
  command.flag("-y,--yes", options->yes, "Do not ask");
  command.footer("Only what Kapitsa itself downloaded is removed; caches of other programs stay.\n"
                 "Examples:\n"
                 "  kapitsa rm smollm2");
  command.on_run([options, &exit_code] { exit_code = rm_command(*options); });
}

}  // namespace kapitsa::cli
