// The GGUF block types of 1 to 3.4 bits ("IQ" types): 256 values that are taken, 8 or 4 at a time,
// from the points of a grid. All of them come to one form, which the decoder (codec.h) and the
// backends' own layouts share: w = (d * factor) * scale * table[code], exact in f32, where the
// scale of 16 values is a small odd number and a code has four bits.
//
// Indices, signs and scales are as in ggml-quants.c of the ggml repository; its grids are in
// gen/iq_grids.h. "Eight signs" is a byte whose bit i is set where value i is negative; "seven
// signs" are its low bits, the top one makes their number even.
#pragma once

#include "base/dtype.h"

#include <cstdint>

namespace kapitsa::weights {

// Eight runs of 32 values: four grid indices, then 32 bits: four seven signs, above them the scale.
struct BlockIq2Xxs {
  uint16_t d;  // f16
  uint8_t qs[64];
};

// For each 8 values a grid index of 9 bits with seven signs above it. Scales are nibbles for each
// 16 values.
struct BlockIq2Xs {
  uint16_t d;  // f16
  uint16_t qs[32];
  uint8_t scales[8];
};

// Low bytes of the grid indices, eight signs for each, two upper bits of each index; scales as
// above.
struct BlockIq2S {
  uint16_t d;  // f16
  uint8_t qs[32];
  uint8_t signs[32];
  uint8_t qh[8];
  uint8_t scales[8];
};

// A grid index for each 4 values; then, for each 32, four seven signs with the scale above them.
struct BlockIq3Xxs {
  uint16_t d;  // f16
  uint8_t qs[64];
  uint8_t signs_scales[32];
};

// Low bytes of the grid indices, their ninth bits, eight signs for each 8 values; scales are
// nibbles for each 32.
struct BlockIq3S {
  uint16_t d;  // f16
  uint8_t qs[64];
  uint8_t qh[8];
  uint8_t signs[32];
  uint8_t scales[4];
};

// Low bytes of the grid indices. qh of each 32 values: four times three upper bits, a scale of
// three bits, and the sign of the shift by 1/8 that all values get.
struct BlockIq1S {
  uint16_t d;  // f16
  uint8_t qs[32];
  uint16_t qh[8];
};

// As IQ1_S with nibbles of three upper bits and the sign of the shift for each 8 values. scales:
// for each 64 values, four scales of three bits and a nibble of d.
struct BlockIq1M {
  uint8_t qs[32];
  uint8_t qh[16];
  uint16_t scales[4];
};

static_assert(sizeof(BlockIq2Xxs) == 66 && sizeof(BlockIq2Xs) == 74 && sizeof(BlockIq2S) == 82);
static_assert(sizeof(BlockIq3Xxs) == 98 && sizeof(BlockIq3S) == 110);
static_assert(sizeof(BlockIq1S) == 50 && sizeof(BlockIq1M) == 56);

// The values of a grid's digits, below negative ones (codes 8 to 15).
inline constexpr int8_t kIq1Values[16] = {-7, 1, 9, 0, 0, 0, 0, 0, -9, -1, 7};
inline constexpr int8_t kIq2Values[16] = {8, 25, 43, 0, 0, 0, 0, 0, -8, -25, -43};
inline constexpr int8_t kIq3XxsValues[16] = {4,  12,  20,  28,  36,  44,  52,  62,
                                             -4, -12, -20, -28, -36, -44, -52, -62};
inline constexpr int8_t kIq3SValues[16] = {1,  3,  5,  7,  9,  11,  13,  15,
                                           -1, -3, -5, -7, -9, -11, -13, -15};
inline constexpr float kIq1Factor = 0.125F;
inline constexpr float kIq2Factor = 0.125F;
inline constexpr float kIq3XxsFactor = 0.25F;
inline constexpr float kIq3SFactor = 1.0F;

struct IqValues {
  uint16_t d;  // f16
  uint8_t codes[256];
  uint8_t scales[16];
};

void unpack(const BlockIq2Xxs& b, IqValues& v);
void unpack(const BlockIq2Xs& b, IqValues& v);
void unpack(const BlockIq2S& b, IqValues& v);
void unpack(const BlockIq3Xxs& b, IqValues& v);
void unpack(const BlockIq3S& b, IqValues& v);
void unpack(const BlockIq1S& b, IqValues& v);
void unpack(const BlockIq1M& b, IqValues& v);

}  // namespace kapitsa::weights
