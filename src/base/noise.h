// The random numbers of sampling: pure functions of (seed, choice, position, token, stream), with
// the same bits on every backend. This file also compiles as CUDA and Metal device code, so it uses
// only f32, u32 and fma, no division and no other math function. Each sum of a product is an
// explicit fma in Horner order and no other product feeds an addition, so a compiler that contracts
// changes nothing; fast-math must stay off. tests/unit/base/data/noise_vectors.txt pins the bits.
#pragma once

#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <cmath>
#include <cstdint>
#endif

#ifndef KAPITSA_HOST_DEVICE
#define KAPITSA_HOST_DEVICE  // a CUDA build defines it as __host__ __device__
#endif

namespace kapitsa {

// Independent sequences for different uses of randomness at the same position.
enum NoiseStream : uint32_t {
  kStreamDraw = 0,  // Gumbel noise of the token draw
  kStreamCoin = 1,  // coin flips of sampler stages
  // Block diffusion draws a position more than once: step s has the stream s above these.
  kStreamDenoise = 0x10000,  // Gumbel noise of the token draw of a step
  kStreamCanvas = 0x20000,   // random tokens that a step leaves on the canvas
};

namespace noise_detail {

#ifdef __METAL_VERSION__
inline float fma32(float a, float b, float c) {
  return metal::fma(a, b, c);
}
inline uint32_t float_bits(float x) {
  return as_type<uint32_t>(x);
}
inline float bits_float(uint32_t x) {
  return as_type<float>(x);
}
inline uint32_t mul_high(uint32_t a, uint32_t b) {
  return metal::mulhi(a, b);
}
#else
KAPITSA_HOST_DEVICE inline float fma32(float a, float b, float c) {
  return ::fmaf(a, b, c);
}
KAPITSA_HOST_DEVICE inline uint32_t float_bits(float x) {
  return __builtin_bit_cast(uint32_t, x);
}
KAPITSA_HOST_DEVICE inline float bits_float(uint32_t x) {
  return __builtin_bit_cast(float, x);
}
KAPITSA_HOST_DEVICE inline uint32_t mul_high(uint32_t a, uint32_t b) {
  return static_cast<uint32_t>((static_cast<uint64_t>(a) * b) >> 32);
}
#endif

}  // namespace noise_detail

struct PhiloxWords {
  uint32_t x, y, z, w;
};

// Philox4x32-10: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC11),
// section 3.3. The key is (key_low, key_high).
KAPITSA_HOST_DEVICE inline PhiloxWords philox4x32(PhiloxWords counter, uint32_t key_low,
                                                  uint32_t key_high) {
  for (int round = 0; round < 10; ++round) {
    const uint32_t high_x = noise_detail::mul_high(0xD2511F53u, counter.x);
    const uint32_t low_x = 0xD2511F53u * counter.x;
    const uint32_t high_z = noise_detail::mul_high(0xCD9E8D57u, counter.z);
    const uint32_t low_z = 0xCD9E8D57u * counter.z;
    counter.x = high_z ^ counter.y ^ key_low;
    counter.y = low_z;
    counter.z = high_x ^ counter.w ^ key_high;
    counter.w = low_x;
    key_low += 0x9E3779B9u;
    key_high += 0xBB67AE85u;
  }
  return counter;
}

// The words of tokens 4 * token_group .. 4 * token_group + 3. `position` is the index in the
// sequence of the token being produced.
KAPITSA_HOST_DEVICE inline PhiloxWords noise_words(uint64_t seed, uint32_t choice,
                                                   uint32_t position, uint32_t token_group,
                                                   uint32_t stream) {
  const PhiloxWords counter = {position, token_group, stream, choice};
  return philox4x32(counter, static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
}

// Uniform in [2^-33, 1 - 2^-24]. The conversion of r rounds to nearest even; the half keeps r = 0
// away from zero, the clamp keeps the largest r away from one.
KAPITSA_HOST_DEVICE inline float uniform_from_bits(uint32_t r) {
  const float w = (static_cast<float>(r) + 0.5f) * 2.3283064365386963e-10f;  // 2^-32
  return w < 0.99999994f ? w : 0.99999994f;                                  // 1 - 2^-24
}

// Natural logarithm of a positive normal x. x = 2^e * (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)),
// log x = e * log 2 + f + f^2 * R(f). R is fitted by tools/fit_noise.py.
KAPITSA_HOST_DEVICE inline float log_poly(float x) {
  const uint32_t shifted = noise_detail::float_bits(x) - 0x3F3504F3u;  // minus sqrt(1/2)
  const float exponent = static_cast<float>(static_cast<int32_t>(shifted) >> 23);
  const float f = noise_detail::bits_float((shifted & 0x007FFFFFu) + 0x3F3504F3u) - 1.0f;
  float r = -0.0762486681f;
  r = noise_detail::fma32(r, f, 0.129145682f);
  r = noise_detail::fma32(r, f, -0.132470533f);
  r = noise_detail::fma32(r, f, 0.141806036f);
  r = noise_detail::fma32(r, f, -0.166084543f);
  r = noise_detail::fma32(r, f, 0.200020134f);
  r = noise_detail::fma32(r, f, -0.250016093f);
  r = noise_detail::fma32(r, f, 0.333333254f);
  r = noise_detail::fma32(r, f, -0.499999881f);
  const float log_mantissa = noise_detail::fma32(f * f, r, f);
  return noise_detail::fma32(exponent, 0.693147182f, log_mantissa);
}

// Standard exponential E = -log(1 - w). Small E is what wins a Gumbel-max draw, and 1 - w would
// round it away; below w = 1/4 it is w * P(w) instead, exact to the last bits down to 2^-33.
KAPITSA_HOST_DEVICE inline float exponential_from_bits(uint32_t r) {
  const float w = uniform_from_bits(r);
  if (w > 0.25f) return -log_poly(1.0f - w);
  float p = 0.330920875f;
  p = noise_detail::fma32(p, w, 0.0920116231f);
  p = noise_detail::fma32(p, w, 0.213456497f);
  p = noise_detail::fma32(p, w, 0.248811647f);
  p = noise_detail::fma32(p, w, 0.333380818f);
  p = noise_detail::fma32(p, w, 0.499999374f);
  p = noise_detail::fma32(p, w, 1.0f);
  return w * p;
}

// Standard Gumbel noise -log(E), between -2.82 and 22.88: always finite, and with full resolution
// at the upper, winning end because E is small there. It falls as r grows.
KAPITSA_HOST_DEVICE inline float gumbel_from_bits(uint32_t r) {
  return -log_poly(exponential_from_bits(r));
}

// An upper bound of gumbel_from_bits(r) for an r with this many leading zero bits (0 to 32):
// E >= w >= 2^-(zeros + 1) gives g <= (zeros + 1) * log 2. The margin covers rounding.
KAPITSA_HOST_DEVICE inline float gumbel_bound(int leading_zeros) {
  return static_cast<float>(leading_zeros + 1) * 0.6932f;
}

KAPITSA_HOST_DEVICE inline uint32_t noise_bits(uint64_t seed, uint32_t choice, uint32_t position,
                                               uint32_t token, uint32_t stream) {
  const PhiloxWords words = noise_words(seed, choice, position, token >> 2, stream);
  const uint32_t low = (token & 1u) != 0 ? words.y : words.x;
  const uint32_t high = (token & 1u) != 0 ? words.w : words.z;
  return (token & 2u) != 0 ? high : low;
}

KAPITSA_HOST_DEVICE inline float gumbel(uint64_t seed, uint32_t choice, uint32_t position,
                                        uint32_t token, uint32_t stream) {
  return gumbel_from_bits(noise_bits(seed, choice, position, token, stream));
}

// What a draw maximises. One rounding, so that no backend can differ in how it fuses the two steps.
KAPITSA_HOST_DEVICE inline float gumbel_score(float logit, float inverse_temperature, float noise) {
  return noise_detail::fma32(logit, inverse_temperature, noise);
}

// Uniform in (0, 1), one for each position and stream.
KAPITSA_HOST_DEVICE inline float coin(uint64_t seed, uint32_t choice, uint32_t position,
                                      uint32_t stream) {
  return uniform_from_bits(noise_bits(seed, choice, position, 0, stream));
}

}  // namespace kapitsa
