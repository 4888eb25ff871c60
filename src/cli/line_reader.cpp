#include "cli/line_reader.h"

#include "base/system.h"

#ifdef KAPITSA_LIBEDIT
#include <histedit.h>
#endif

#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <system_error>

namespace kapitsa::cli {
namespace {

class PlainReader final : public LineReader {
public:
  explicit PlainReader(InterruptGuard& interrupt) : interrupt_(interrupt) {}

  Ending read(const std::string& prompt, std::string& line) override {
    std::fputs(prompt.c_str(), stderr);
    std::fflush(stderr);
    line.clear();
    char buffer[4096];
    while (true) {
      errno = 0;
      if (std::fgets(buffer, sizeof buffer, stdin) == nullptr) {
        if (errno == EINTR && interrupt_.interrupted()) {
          std::clearerr(stdin);
          std::fputc('\n', stderr);
          return Ending::interrupted;
        }
        if (errno == EINTR) {  // the terminal was resized
          std::clearerr(stdin);
          continue;
        }
        return line.empty() ? Ending::end_of_input : Ending::line;
      }
      line += buffer;
      if (line.ends_with('\n')) {
        line.pop_back();
        return Ending::line;
      }
    }
  }

private:
  InterruptGuard& interrupt_;
};

#ifdef KAPITSA_LIBEDIT

constexpr int kHistoryLines = 1000;

// Ctrl-C is a key here, not a signal, so that libedit has always put the terminal in order.
class EditingReader final : public LineReader {
public:
  explicit EditingReader(const std::filesystem::path& history) : history_file_(history) {
    // The line is decoded by the locale; plain C knows ASCII only.
    if (std::setlocale(LC_CTYPE, "") == nullptr || MB_CUR_MAX == 1)
      std::setlocale(LC_CTYPE, "C.UTF-8");
    HistEvent event{};
    history_ = history_init();
    ::history(history_, &event, H_SETSIZE, kHistoryLines);
    ::history(history_, &event, H_SETUNIQUE, 1);
    if (!history_file_.empty()) ::history(history_, &event, H_LOAD, history_file_.c_str());
    edit_ = el_init("kapitsa", stdin, stderr, stderr);
    el_set(edit_, EL_CLIENTDATA, this);
    el_set(edit_, EL_PROMPT, &EditingReader::prompt);
    el_set(edit_, EL_EDITOR, "emacs");
    el_set(edit_, EL_HIST, &::history, history_);
    el_set(edit_, EL_ADDFN, "kapitsa-interrupt", "Drop the line", &EditingReader::interrupt);
    el_set(edit_, EL_SETTY, "-d", "-isig", nullptr);
    el_set(edit_, EL_BIND, "^C", "kapitsa-interrupt", nullptr);
    el_set(edit_, EL_BIND, "^R", "em-inc-search-prev", nullptr);
  }
  ~EditingReader() override {
    el_end(edit_);
    HistEvent event{};
    if (!history_file_.empty()) {
      ::history(history_, &event, H_SAVE, history_file_.c_str());
      std::error_code ignored;  // what was typed is private
      std::filesystem::permissions(
          history_file_, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write,
          ignored);
    }
    history_end(history_);
  }
  EditingReader(const EditingReader&) = delete;
  EditingReader& operator=(const EditingReader&) = delete;

  Ending read(const std::string& prompt, std::string& line) override {
    prompt_ = prompt;
    interrupted_ = false;
    int length = 0;
    // Before the prompt, so that a Ctrl-C typed right after it is a key already.
    el_set(edit_, EL_PREP_TERM, 1);
    const char* text = el_gets(edit_, &length);
    if (interrupted_) return Ending::interrupted;
    if (text == nullptr || length <= 0) {
      std::fputc('\n', stderr);
      return Ending::end_of_input;
    }
    line.assign(text, static_cast<size_t>(length));
    while (line.ends_with('\n') || line.ends_with('\r'))
      line.pop_back();
    HistEvent event{};
    if (!line.empty()) ::history(history_, &event, H_ENTER, line.c_str());
    return Ending::line;
  }

private:
  static EditingReader& self(EditLine* edit) {
    void* reader = nullptr;
    el_get(edit, EL_CLIENTDATA, &reader);
    return *static_cast<EditingReader*>(reader);
  }
  static char* prompt(EditLine* edit) { return self(edit).prompt_.data(); }
  static unsigned char interrupt(EditLine* edit, int /*key*/) {
    self(edit).interrupted_ = true;
    std::fputs("^C\n", stderr);
    return CC_EOF;
  }

  std::filesystem::path history_file_;
  History* history_ = nullptr;
  EditLine* edit_ = nullptr;
  std::string prompt_;
  bool interrupted_ = false;
};

#endif

}  // namespace

std::unique_ptr<LineReader>
LineReader::open(InterruptGuard& interrupt, [[maybe_unused]] const std::filesystem::path& history) {
#ifdef KAPITSA_LIBEDIT
  if (is_terminal(0) && is_terminal(2)) return std::make_unique<EditingReader>(history);
#endif
  return std::make_unique<PlainReader>(interrupt);
}

}  // namespace kapitsa::cli
