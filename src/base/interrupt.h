// Ctrl-C as a flag. While an InterruptGuard lives, the first Ctrl-C raises the flag, and ends a
// system call that waits, instead of ending the program; a second one before reset() ends it.
#pragma once

#include <memory>

namespace kapitsa {

// One at a time: the flag belongs to the process.
class InterruptGuard {
public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  bool interrupted() const;
  // Lowers the flag and waits for the next Ctrl-C as at first.
  void reset();

private:
  struct Previous;
  std::unique_ptr<Previous> previous_;
};

}  // namespace kapitsa
