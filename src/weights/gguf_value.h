// One metadata value of a GGUF file: type number, then a scalar, a string or an array of either.
#pragma once

#include "weights/byte_cursor.h"
#include "weights/checkpoint.h"

#include <string_view>

namespace kapitsa::weights {

// The cursor stands before the type number. `key` is for errors only. Arrays of arrays are refused.
Result<Value> read_gguf_value(ByteCursor& cursor, std::string_view key);

}  // namespace kapitsa::weights
