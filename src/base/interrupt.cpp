#include "base/interrupt.h"

#include <signal.h>

#include <memory>

namespace kapitsa {
namespace {

volatile sig_atomic_t interrupts = 0;

extern "C" void count_interrupt(int) {
  interrupts = interrupts + 1;
  // The next one finds the default action. signal() may be called here (POSIX 2.4.3).
  ::signal(SIGINT, SIG_DFL);
}

// Without SA_RESTART, so that a read from the terminal ends.
void install() {
  struct sigaction action{};
  action.sa_handler = count_interrupt;
  sigemptyset(&action.sa_mask);
  ::sigaction(SIGINT, &action, nullptr);
}

}  // namespace

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
