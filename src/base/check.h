// Programmer errors: KAPITSA_CHECK aborts with the place and a message in every build;
// KAPITSA_DCHECK only in debug builds, for hot loops. Faults of the caller, a file or the network
// are `Result`s (base/result.h), never checks.
#pragma once

namespace kapitsa {

[[noreturn]] void check_failed(const char* file, int line, const char* condition,
                               const char* message);

}  // namespace kapitsa

#define KAPITSA_CHECK(condition, message)                                                          \
  do {                                                                                             \
    if (!(condition)) [[unlikely]]                                                                 \
      ::kapitsa::check_failed(__FILE__, __LINE__, #condition, message);                            \
  } while (false)

#ifdef NDEBUG
#define KAPITSA_DCHECK(condition, message)                                                         \
  do {                                                                                             \
  } while (false)
#else
#define KAPITSA_DCHECK(condition, message) KAPITSA_CHECK(condition, message)
#endif
