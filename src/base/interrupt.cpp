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

// Without SA_RESTART, so that a read from the terminal ends.
void install() {
  struct sigaction action{};
  action.sa_handler = count_interrupt;
  sigemptyset(&action.sa_mask);
  ::sigaction(SIGINT, &action, nullptr);
}

}  // namespace

void end_on_interrupt() {
  ::signal(SIGINT, end_program);
}

struct InterruptGuard::Previous {
  struct sigaction action{};
};

InterruptGuard::InterruptGuard() : previous_(std::make_unique<Previous>()) {
  ::sigaction(SIGINT, nullptr, &previous_->action);
  reset();
}

InterruptGuard::~InterruptGuard() {
  ::sigaction(SIGINT, &previous_->action, nullptr);
}

bool InterruptGuard::interrupted() const {
  return interrupts != 0;
}

void InterruptGuard::reset() {
  interrupts = 0;
  install();
}

}  // namespace kapitsa
