#include "base/process.h"

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>

#include <cerrno>
#include <cstring>

extern char** environ;

namespace kapitsa {
namespace {

volatile sig_atomic_t child = 0;

extern "C" void pass_on(int number) {
  if (child > 0) ::kill(child, number);
}

class SignalGuard {
public:
  SignalGuard() {
    set(0, SIGINT, SIG_IGN);
    set(1, SIGQUIT, SIG_IGN);
    set(2, SIGTERM, pass_on);
    set(3, SIGHUP, pass_on);
  }
  ~SignalGuard() {
    for (const auto& [number, action] : before_)
      ::sigaction(number, &action, nullptr);
  }
  SignalGuard(const SignalGuard&) = delete;
  SignalGuard& operator=(const SignalGuard&) = delete;

private:
  void set(size_t i, int number, void (*handler)(int)) {
    struct sigaction action{};
    action.sa_handler = handler;
    sigemptyset(&action.sa_mask);
    before_[i].first = number;
    ::sigaction(number, &action, &before_[i].second);
  }
  std::pair<int, struct sigaction> before_[4]{};
};

// The child gets the default actions back: an ignored signal would stay ignored.
int spawn(pid_t& pid, const std::string& path, char* const* arguments, char* const* variables) {
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  sigset_t defaults;
  sigemptyset(&defaults);
  for (const int number : {SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGPIPE})
    sigaddset(&defaults, number);
  ::posix_spawnattr_setsigdefault(&attributes, &defaults);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  const int error = ::posix_spawn(&pid, path.c_str(), nullptr, &attributes, arguments, variables);
  ::posix_spawnattr_destroy(&attributes);
  return error;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts)
    result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

}  // namespace

std::optional<std::filesystem::path> find_program(const std::string& name, std::string_view path,
                                                  const std::vector<std::filesystem::path>& more) {
  std::vector<std::filesystem::path> folders;
  while (!path.empty()) {
    const size_t end = std::min(path.find(':'), path.size());
    if (end > 0) folders.emplace_back(path.substr(0, end));
    path.remove_prefix(std::min(end + 1, path.size()));
  }
  folders.insert(folders.end(), more.begin(), more.end());
  for (const std::filesystem::path& folder : folders) {
    std::filesystem::path file = folder / name;
    std::error_code ignored;
    if (std::filesystem::is_regular_file(file, ignored) && ::access(file.c_str(), X_OK) == 0)
      return file;
  }
  return std::nullopt;
}

Result<int> run_program(const std::filesystem::path& program,
                        const std::vector<std::string>& arguments,
                        const std::vector<std::pair<std::string, std::string>>& variables) {
  std::vector<std::string> argument_texts{program.string()};
  argument_texts.insert(argument_texts.end(), arguments.begin(), arguments.end());
  std::vector<std::string> variable_texts;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string text(*entry);
    bool replaced = false;
    for (const auto& [name, value] : variables)
      replaced = replaced || text.starts_with(name + "=");
    if (!replaced) variable_texts.push_back(text);
  }
  for (const auto& [name, value] : variables)
    variable_texts.push_back(name + "=" + value);

  const SignalGuard guard;
  pid_t pid = 0;
  if (const int error = spawn(pid, program.string(), pointers(argument_texts).data(),
                              pointers(variable_texts).data());
      error != 0)
    return Error{ErrorCode::io,
                 fmt::format("{}: cannot be started: {}", program.string(), std::strerror(error))};
  child = pid;
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0) {
    if (errno != EINTR) {
      child = 0;
      return Error{ErrorCode::io,
                   fmt::format("{}: lost: {}", program.string(), std::strerror(errno))};
    }
  }
  child = 0;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace kapitsa
