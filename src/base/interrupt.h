// Ctrl-C as one line and an exit code, or as a flag. While an InterruptGuard lives, the first
// Ctrl-C raises the flag, and ends a system call that waits, instead of ending the program; a
// second one before reset() ends it, unless the guard is there to clean up.
#pragma once

#include <memory>

namespace kapitsa {

inline constexpr int kInterruptedExit = 130;  // 128 + SIGINT, as shells report it

// From now on Ctrl-C ends the program with one line on stderr and kInterruptedExit, except while an
// InterruptGuard lives.
void end_on_interrupt();

// One at a time: the flag belongs to the process.
class InterruptGuard {
public:
  enum class Kind {
    answer,   // as above
    cleanup,  // SIGTERM raises the flag too, and no signal ends the program: the holder does soon
  };
  explicit InterruptGuard(Kind kind = Kind::answer);
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  bool interrupted() const;
  // Lowers the flag and waits for the next Ctrl-C as at first.
  void reset();

private:
  Kind kind_;
  struct Previous;
  std::unique_ptr<Previous> previous_;
};

}  // namespace kapitsa
