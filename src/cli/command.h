// How commands and their options are declared. A thin front of CLI11, whose header takes longer to
// compile than all of our command line: command.cpp alone includes it. Names are written as CLI11
// takes them ("-t,--threads"; without dashes: positional). A Command and an Option only point into
// their Application, which must outlive them; so must the variables that options set.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace kapitsa::cli {

class Option {
public:
  explicit Option(CLI::Option* option) : option_(option) {}

  Option& required();
  Option& range(int64_t low, int64_t high);
  Option& range(double low, double high);
  Option& one_of(const std::vector<std::string>& choices);
  // The text of the error, or "" where the value is right.
  Option& check(const std::function<std::string(const std::string&)>& problem);
  // The heading in --help.
  Option& group(const std::string& name);
  // --help shows the value that the variable has now.
  Option& show_default();
  // Of an option that fills a list: several values in one argument, or one value each time.
  Option& separated_by(char separator);
  Option& one_value_each();
  Option& excludes(const Option& other);
  Option& needs(const Option& other);
  // Whether the command line has it; known once it is parsed.
  bool given() const;

private:
  CLI::Option* option_;
};

// One option of a command, as the completion scripts need it.
struct OptionEntry {
  std::vector<std::string> names;  // "-t", "--threads"
  std::string description;
  std::vector<std::string> choices;  // of the value, where it is one of a few
  bool takes_value = false;
};

struct CommandEntry {
  std::string name;
  std::string description;
  std::vector<OptionEntry> options;
  std::vector<std::string> choices;  // of the first argument
  bool takes_model = false;
};

class Command {
public:
  explicit Command(CLI::App* app) : app_(app) {}

  Command subcommand(const std::string& name, const std::string& description) const;
  Option option(const std::string& names, std::string& value, const std::string& description) const;
  Option option(const std::string& names, int32_t& value, const std::string& description) const;
  Option option(const std::string& names, uint64_t& value, const std::string& description) const;
  Option option(const std::string& names, float& value, const std::string& description) const;
  Option option(const std::string& names, double& value, const std::string& description) const;
  Option option(const std::string& names, std::vector<std::string>& value,
                const std::string& description) const;
  Option option(const std::string& names, std::vector<int32_t>& value,
                const std::string& description) const;
  Option flag(const std::string& names, bool& value, const std::string& description) const;
  // What --help ends with.
  void footer(const std::string& text) const;
  void on_run(std::function<void()> action) const;
  // The commands below this one.
  std::vector<CommandEntry> commands() const;

private:
  CLI::App* app_;
};

class Application {
public:
  Application(const std::string& name, const std::string& description, const std::string& version);
  ~Application();
  Application(const Application&) = delete;
  Application& operator=(const Application&) = delete;

  Command root() const { return Command(app_.get()); }

  struct Outcome {
    int exit_code = 0;
    std::string usage_error;  // "" when the arguments were right
  };
  // Parses, and runs the action of the command that is named. What an action throws passes through.
  Outcome run(int argc, char** argv);

private:
  std::unique_ptr<CLI::App> app_;
};

}  // namespace kapitsa::cli
