# INPUT as the bytes of a C++ array in OUTPUT; see embed.cmake.
file(READ ${INPUT} bytes HEX)
string(REGEX REPLACE "(..)" "'\\\\x\\1'," bytes "${bytes}")
file(WRITE ${OUTPUT} "#include <string_view>
namespace kapitsa::server {
std::string_view ${FUNCTION}();
std::string_view ${FUNCTION}() {
  static constexpr char kBytes[] = {${bytes}};
  return {kBytes, sizeof kBytes};
}
}  // namespace kapitsa::server
")
