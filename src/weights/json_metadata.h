// Nested JSON as the flat metadata of a Checkpoint.
#pragma once

#include "weights/checkpoint.h"

#include <string>
#include <string_view>

namespace kapitsa::weights {

// Adds the keys of a JSON object, joined with '.' (text_config.hidden_size), below `prefix` unless
// that is empty. An array of one kind of scalar is one value; the items of any other array have
// keys of their own (experts.0.name). null is left out. Infinity, which Python writes although it
// is not JSON, is read as 1.79e308. `file` is for errors only.
Status add_json_metadata(std::string_view text, const std::string& file, std::string_view prefix,
                         Checkpoint& checkpoint);

}  // namespace kapitsa::weights
