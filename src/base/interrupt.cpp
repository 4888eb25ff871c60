#include "base/interrupt.h"

#include <signal.h>
#include <unistd.h>

#include <memory>

namespace kapitsa {
namespace {

volatile sig_atomic_t interrupts = 0;

// Only what a signal handler may call (POSIX 2.4.3).
extern "C" void end_program(int) {
  constexpr char kLine[] = "\nkapitsa: stopped by Ctrl-C\n";
  if (::write(STDERR_FILENO, kLine, sizeof(kLine) - 1) < 0) ::_exit(kInterruptedExit);
  ::_exit(kInterruptedExit);
}

extern "C" void count_interrupt(int) {
  interrupts = interrupts + 1;
  ::signal(SIGINT, end_program);  // the next one
}

extern "C" void count_every_signal(int) {
  interrupts = interrupts + 1;
}

// Without SA_RESTART, so that a read from the terminal ends.
void install(int signal, void (*handler)(int)) {
  struct sigaction action{};
  action.sa_handler = handler;
  sigemptyset(&action.sa_mask);
  ::sigaction(signal, &action, nullptr);
}

}  // namespace

void end_on_interrupt() {
  ::signal(SIGINT, end_program);
}

struct InterruptGuard::Previous {
  struct sigaction interrupt{};
  struct sigaction terminate{};
};

InterruptGuard::InterruptGuard(Kind kind) : kind_(kind), previous_(std::make_unique<Previous>()) {
  ::sigaction(SIGINT, nullptr, &previous_->interrupt);
  ::sigaction(SIGTERM, nullptr, &previous_->terminate);
  reset();
}

InterruptGuard::~InterruptGuard() {
  ::sigaction(SIGINT, &previous_->interrupt, nullptr);
  ::sigaction(SIGTERM, &previous_->terminate, nullptr);
}

bool InterruptGuard::interrupted() const {
  return interrupts != 0;
}

void InterruptGuard::reset() {
  interrupts = 0;
  install(SIGINT, kind_ == Kind::cleanup ? count_every_signal : count_interrupt);
  if (kind_ == Kind::cleanup) install(SIGTERM, count_every_signal);
}

}  // namespace kapitsa
