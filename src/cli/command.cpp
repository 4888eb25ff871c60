// The front of CLI11: see command.h.
#include "cli/command.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <system_error>
#include <type_traits>
#include <utility>

namespace kapitsa::cli {
namespace {

std::vector<const CLI::App*> all_subcommands(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

// CLI11 keeps the choices of IsMember only in its description of the value: "TEXT:{a,b}".
std::vector<std::string> choices_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const size_t open = type.find('{');
  const size_t close = type.find('}');
  if (open == std::string::npos || close == std::string::npos) return {};
  return CLI::detail::split(type.substr(open + 1, close - open - 1), ',');
}

OptionEntry entry_of(const CLI::Option& option) {
  OptionEntry entry;
  for (const std::string& name : option.get_snames())
    entry.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames())
    entry.names.push_back("--" + name);
  entry.description = option.get_description();
  entry.choices = choices_of(option);
  entry.takes_value = option.get_items_expected_max() > 0;
  return entry;
}

// Whether the whole text is a number of this type, in decimal; the parser itself would take a part
// of it, octal digits, or a number that is none.
template <typename Number>
bool is_number(const std::string& text) {
  Number value{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end) return false;
  if constexpr (std::is_floating_point_v<Number>) return std::isfinite(value);
  return true;
}

// For Option::check(): what is wrong with a value of this type.
template <typename Number>
std::string not_a_number(const std::string& text) {
  if (is_number<Number>(text)) return "";
  if constexpr (std::is_floating_point_v<Number>)
    return fmt::format("expected a number, found {}", text);
  return fmt::format("expected a whole number from {} to {}, found {}",
                     std::numeric_limits<Number>::min(), std::numeric_limits<Number>::max(), text);
}

template <typename Number>
CLI::Option* number_option(CLI::App& app, const std::string& names, Number& value,
                           const std::string& description) {
  return app.add_option(names, value, description)->check(not_a_number<Number>);
}

// Beside not_a_number(), which has seen the text.
template <typename Number>
std::string not_in_range(const std::string& text, Number low, Number high) {
  Number value{};
  std::from_chars(text.data(), text.data() + text.size(), value);
  if (value >= low && value <= high) return "";
  return fmt::format("expected a number from {} to {}, found {}", low, high, text);
}

// The first argument when it looks like a command and is none.
std::string unknown_command(const CLI::App& app, int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') return "";
  const auto commands = all_subcommands(app);
  const bool known = std::any_of(commands.begin(), commands.end(), [&](const CLI::App* command) {
    return command->check_name(argv[1]);
  });
  return known ? "" : argv[1];
}

}  // namespace

Option& Option::required() {
  option_->required();
  return *this;
}

Option& Option::range(int64_t low, int64_t high) {
  option_->check([low, high](const std::string& text) { return not_in_range(text, low, high); },
                 fmt::format("[{} - {}]", low, high));
  return *this;
}

Option& Option::range(double low, double high) {
  option_->check([low, high](const std::string& text) { return not_in_range(text, low, high); },
                 fmt::format("[{} - {}]", low, high));
  return *this;
}

Option& Option::one_of(const std::vector<std::string>& choices) {
  option_->check(CLI::IsMember(choices));
  return *this;
}

Option& Option::check(const std::function<std::string(const std::string&)>& problem) {
  option_->check(problem);
  return *this;
}

Option& Option::group(const std::string& name) {
  option_->group(name);
  return *this;
}

Option& Option::show_default() {
  option_->capture_default_str();
  return *this;
}

Option& Option::separated_by(char separator) {
  option_->delimiter(separator);
  return *this;
}

Option& Option::one_value_each() {
  option_->allow_extra_args(false);
  return *this;
}

Option& Option::excludes(const Option& other) {
  option_->excludes(other.option_);
  return *this;
}

Option& Option::needs(const Option& other) {
  option_->needs(other.option_);
  return *this;
}

bool Option::given() const {
  return option_->count() > 0;
}

Command Command::subcommand(const std::string& name, const std::string& description) const {
  return Command(app_->add_subcommand(name, description));
}

Option Command::option(const std::string& names, std::string& value,
                       const std::string& description) const {
  return Option(app_->add_option(names, value, description));
}

Option Command::option(const std::string& names, int32_t& value,
                       const std::string& description) const {
  return Option(number_option(*app_, names, value, description));
}

Option Command::option(const std::string& names, uint64_t& value,
                       const std::string& description) const {
  return Option(number_option(*app_, names, value, description));
}

Option Command::option(const std::string& names, float& value,
                       const std::string& description) const {
  return Option(number_option(*app_, names, value, description));
}

Option Command::option(const std::string& names, double& value,
                       const std::string& description) const {
  return Option(number_option(*app_, names, value, description));
}

Option Command::option(const std::string& names, std::vector<std::string>& value,
                       const std::string& description) const {
  return Option(app_->add_option(names, value, description));
}

Option Command::option(const std::string& names, std::vector<int32_t>& value,
                       const std::string& description) const {
  return Option(app_->add_option(names, value, description)->check(not_a_number<int32_t>));
}

Option Command::flag(const std::string& names, bool& value, const std::string& description) const {
  return Option(app_->add_flag(names, value, description));
}

void Command::footer(const std::string& text) const {
  app_->footer(text);
}

void Command::on_run(std::function<void()> action) const {
  app_->callback(std::move(action));
}

std::vector<CommandEntry> Command::commands() const {
  std::vector<CommandEntry> commands;
  for (const CLI::App* command : all_subcommands(*app_)) {
    CommandEntry entry;
    entry.name = command->get_name();
    entry.description = command->get_description();
    for (const CLI::Option* option : command->get_options()) {
      if (!option->get_positional()) {
        entry.options.push_back(entry_of(*option));
        continue;
      }
      if (option->get_name(true) == "MODEL") entry.takes_model = true;
      if (entry.choices.empty()) entry.choices = choices_of(*option);
    }
    commands.push_back(std::move(entry));
  }
  return commands;
}

Application::Application(const std::string& name, const std::string& description,
                         const std::string& version)
    : app_(std::make_unique<CLI::App>(description, name)) {
  app_->set_version_flag("--version", version);
  app_->require_subcommand(1);
}

Application::~Application() = default;

Application::Outcome Application::run(int argc, char** argv) {
  if (const std::string name = unknown_command(*app_, argc, argv); !name.empty())
    return {.usage_error = fmt::format("unknown command '{}'", name)};
  try {
    app_->parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return {.exit_code = app_->exit(error)};  // --help, --version
    return {.usage_error = error.what()};
  }
  return {};
}

}  // namespace kapitsa::cli
