#include "base/dtype.h"

#include "base/check.h"

#include <iterator>

namespace kapitsa {
namespace {

constexpr DTypeInfo kInfo[] = {
    {"f32", 1, 4},        {"f16", 1, 2},        {"bf16", 1, 2},       {"f64", 1, 8},
    {"i8", 1, 1},         {"i16", 1, 2},        {"i32", 1, 4},        {"i64", 1, 8},
    {"u8", 1, 1},         {"u32", 1, 4},        {"q4_0", 32, 18},     {"q4_1", 32, 20},
    {"q5_0", 32, 22},     {"q5_1", 32, 24},     {"q8_0", 32, 34},     {"q2_k", 256, 84},
    {"q3_k", 256, 110},   {"q4_k", 256, 144},   {"q5_k", 256, 176},   {"q6_k", 256, 210},
    {"iq1_s", 256, 50},   {"iq1_m", 256, 56},   {"iq2_xxs", 256, 66}, {"iq2_xs", 256, 74},
    {"iq2_s", 256, 82},   {"iq3_xxs", 256, 98}, {"iq3_s", 256, 110},  {"iq4_nl", 32, 18},
    {"iq4_xs", 256, 136}, {"mxfp4", 32, 17},    {"nvfp4", 64, 36},    {"grouped", 1, 0},
};
static_assert(std::size(kInfo) == static_cast<size_t>(DType::grouped) + 1,
              "one row for every DType, in order");

}  // namespace

const DTypeInfo& dtype_info(DType dtype) {
  const auto index = static_cast<size_t>(dtype);
  KAPITSA_CHECK(index < std::size(kInfo), "a DType outside the enumeration");
  return kInfo[index];
}

std::optional<int64_t> dtype_bytes(DType dtype, int64_t n) {
  const DTypeInfo& info = dtype_info(dtype);
  if (n < 0 || n % info.block_elements != 0 || info.block_bytes == 0) return std::nullopt;
  int64_t bytes = 0;
  if (__builtin_mul_overflow(n / info.block_elements, static_cast<int64_t>(info.block_bytes),
                             &bytes))
    return std::nullopt;
  return bytes;
}

}  // namespace kapitsa
