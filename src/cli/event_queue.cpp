#include "cli/event_queue.h"

#include <csignal>

namespace kapitsa::cli {
namespace {

volatile std::sig_atomic_t interrupts = 0;

extern "C" void count_interrupt(int signal) {
  interrupts = interrupts + 1;
  // The second one finds the default action and ends the program.
  std::signal(signal, SIG_DFL);
}

}  // namespace

InterruptGuard::InterruptGuard() {
  interrupts = 0;
  previous_ = std::signal(SIGINT, count_interrupt);
}

InterruptGuard::~InterruptGuard() {
  std::signal(SIGINT, previous_ == SIG_ERR ? SIG_DFL : previous_);
}

bool InterruptGuard::interrupted() const {
  return interrupts != 0;
}

}  // namespace kapitsa::cli
