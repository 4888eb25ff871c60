// Takes one member out of a ZIP archive (APPNOTE 6.3: stored and deflated members, ZIP64), as
// wheels are. Every offset and size of the archive is checked before it is used, and the member's
// CRC and size at the end. The only file that names zlib.
#pragma once

#include "base/result.h"

#include <cstddef>
#include <filesystem>
#include <functional>
#include <span>
#include <string_view>

namespace kapitsa::hub {

struct ZipMember {
  int64_t packed_bytes = 0;
  int64_t bytes = 0;
};

// The member whose name is `name`, or ends with "/" + name when no other does. `start` is told its
// size first; `piece` then gets its bytes in order. An error from either ends it.
Status unzip_member(const std::filesystem::path& archive, std::string_view name,
                    const std::function<Status(const ZipMember&)>& start,
                    const std::function<Status(std::span<const std::byte>)>& piece);

}  // namespace kapitsa::hub
