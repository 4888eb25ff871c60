// kapitsa completions SHELL: a completion script, made from the commands and options themselves, so
// that it cannot disagree with them.
#include "cli/cli.h"
#include "cli/models.h"

#include <fmt/format.h>

#include <cstdio>

namespace kapitsa::cli {
namespace {

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  const auto folders = model_folders();
  const hub::Catalog& catalog = folders ? folders->catalog : hub::builtin_catalog();
  for (const hub::CatalogEntry& entry : catalog.entries) {
    if (entry.runs) names.push_back(entry.alias);
  }
  return names;
}

std::string words(const std::vector<std::string>& list) {
  return fmt::format("{}", fmt::join(list, " "));
}

// In single quotes for a shell, also for zsh, where ':' and '[' in descriptions mean something.
std::string in_quotes(const std::string& text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
    } else {
      out += c;
    }
  }
  return out + "'";
}

std::string bash_script(const std::vector<CommandEntry>& commands) {
  std::string names;
  std::string cases;
  for (const CommandEntry& command : commands) {
    names += fmt::format("{}{}", names.empty() ? "" : " ", command.name);
    std::string options;
    std::string values;
    for (const OptionEntry& option : command.options) {
      options += fmt::format("{}{}", options.empty() ? "" : " ", words(option.names));
      if (!option.takes_value) continue;
      values += fmt::format(
          "        {}) COMPREPLY=($(compgen {} -- \"$word\")); return ;;\n",
          fmt::join(option.names, "|"),
          option.choices.empty() ? "-f" : fmt::format("-W {}", in_quotes(words(option.choices))));
    }
    std::vector<std::string> arguments = command.choices;
    if (command.takes_model) arguments = model_names();
    cases += fmt::format("    {})\n", command.name);
    if (!values.empty()) cases += "      case \"$before\" in\n" + values + "      esac\n";
    cases += fmt::format("      if [[ $word == -* ]]; then COMPREPLY=($(compgen -W {} -- "
                         "\"$word\"))\n"
                         "      else COMPREPLY=($(compgen {}-W {} -- \"$word\"))\n"
                         "      fi ;;\n",
                         in_quotes(options), command.takes_model ? "-f " : "",
                         in_quotes(words(arguments)));
  }
  return fmt::format(
      "# bash completion for kapitsa; add to ~/.bashrc:\n"
      "#   eval \"$(kapitsa completions bash)\"\n"
      "_kapitsa() {{\n"
      "  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}}\n"
      "  COMPREPLY=()\n"
      "  if [[ $COMP_CWORD -eq 1 ]]; then\n"
      "    COMPREPLY=($(compgen -W {} -- \"$word\"))\n"
      "    return\n"
      "  fi\n"
      "  case \"${{COMP_WORDS[1]}}\" in\n{}  esac\n"
      "}}\n"
      "complete -o filenames -F _kapitsa kapitsa\n",
      in_quotes(names + " --help --version"), cases);
}

// A description inside zsh's [...] or after its ':'.
std::string zsh_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':') out += '\\';
    out += c;
  }
  return out;
}

std::string zsh_script(const std::vector<CommandEntry>& commands) {
  std::string list;
  std::string cases;
  for (const CommandEntry& command : commands) {
    list += fmt::format("    {}\n", in_quotes(command.name + ":" + zsh_text(command.description)));
    cases += fmt::format("    {})\n      _arguments", command.name);
    for (const OptionEntry& option : command.options) {
      for (const std::string& name : option.names) {
        std::string spec = fmt::format("{}[{}]", name, zsh_text(option.description));
        if (option.takes_value) {
          spec += option.choices.empty() ? ":value:_files"
                                         : fmt::format(":value:({})", words(option.choices));
        }
        cases += fmt::format(" \\\n        {}", in_quotes(spec));
      }
    }
    if (command.takes_model) {
      cases += " \\\n        " + in_quotes(fmt::format("1:model:{{_alternative \"names:name:({})\" "
                                                       "\"files:file:_files\"}}",
                                                       words(model_names())));
    } else if (!command.choices.empty()) {
      cases += " \\\n        " + in_quotes(fmt::format("1:argument:({})", words(command.choices)));
    }
    cases += " ;;\n";
  }
  return fmt::format("#compdef kapitsa\n"
                     "# zsh completion for kapitsa; save as _kapitsa in a folder of $fpath.\n"
                     "_kapitsa() {{\n"
                     "  local -a commands=(\n{}  )\n"
                     "  if (( CURRENT == 2 )); then\n"
                     "    _describe command commands\n"
                     "    return\n"
                     "  fi\n"
                     "  local command=$words[2]\n"
                     "  shift words\n"
                     "  (( CURRENT-- ))\n"
                     "  case $command in\n{}  esac\n"
                     "}}\n"
                     "compdef _kapitsa kapitsa\n",
                     list, cases);
}

std::string fish_script(const std::vector<CommandEntry>& commands) {
  std::string script = "# fish completion for kapitsa; save as\n"
                       "#   ~/.config/fish/completions/kapitsa.fish\n"
                       "complete -c kapitsa -n __fish_use_subcommand -f\n";
  for (const CommandEntry& command : commands) {
    const std::string seen = in_quotes("__fish_seen_subcommand_from " + command.name);
    script += fmt::format("complete -c kapitsa -n __fish_use_subcommand -a {} -d {}\n",
                          command.name, in_quotes(command.description));
    for (const OptionEntry& option : command.options) {
      script += fmt::format("complete -c kapitsa -n {}", seen);
      for (const std::string& name : option.names)
        script += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      if (!option.choices.empty()) {
        script += fmt::format(" -x -a {}", in_quotes(words(option.choices)));
      } else if (option.takes_value) {
        script += " -r";
      }
      script += fmt::format(" -d {}\n", in_quotes(option.description));
    }
    const std::vector<std::string> arguments =
        command.takes_model ? model_names() : command.choices;
    if (!arguments.empty())
      script += fmt::format("complete -c kapitsa -n {} -a {}\n", seen, in_quotes(words(arguments)));
  }
  return script;
}

}  // namespace

void add_completions(const Command& app, int& /*exit_code*/) {
  auto shell = std::make_shared<std::string>();
  const Command command = app.subcommand("completions", "Print a completion script for a shell");
  command.option("SHELL", *shell, "Which shell").required().one_of({"bash", "zsh", "fish"});
  command.footer("Examples:\n"
                 "  eval \"$(kapitsa completions bash)\"\n"
                 "  kapitsa completions fish > ~/.config/fish/completions/kapitsa.fish");
  command.on_run([shell, app] {
    const std::vector<CommandEntry> commands = app.commands();
    fmt::print("{}", *shell == "bash"  ? bash_script(commands)
                     : *shell == "zsh" ? zsh_script(commands)
                                       : fish_script(commands));
  });
}

}  // namespace kapitsa::cli
