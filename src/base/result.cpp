#include "base/result.h"

namespace kapitsa {

const char* to_string(ErrorCode code) {
  switch (code) {
  case ErrorCode::invalid_argument: return "invalid_argument";
  case ErrorCode::not_found: return "not_found";
  case ErrorCode::io: return "io";
  case ErrorCode::corrupt_file: return "corrupt_file";
  case ErrorCode::unsupported: return "unsupported";
  case ErrorCode::out_of_memory: return "out_of_memory";
  case ErrorCode::context_overflow: return "context_overflow";
  case ErrorCode::cancelled: return "cancelled";
  case ErrorCode::device_failed: return "device_failed";
  }
  return "unknown";
}

}  // namespace kapitsa
