// The grids as lists of points, made once from their sets, and what each block type means by its
// bits.
#include "weights/iq_blocks.h"

#include "weights/gen/iq_grids.h"

#include <array>
#include <bit>
#include <cstddef>
#include <cstring>
#include <span>

namespace kapitsa::weights {
namespace {

// kPoints points of kDigits digits below kBase, in the order of their numbers.
template <int kPoints, int kDigits, int kBase>
class Grid {
public:
  explicit Grid(std::span<const uint32_t> set) {
    size_t n = 0;
    for (size_t word = 0; word < set.size(); ++word) {
      for (uint32_t bits = set[word]; bits != 0; bits &= bits - 1) {
        size_t number = 32 * word + static_cast<size_t>(std::countr_zero(bits));
        for (uint8_t& digit : points_[n]) {
          digit = static_cast<uint8_t>(number % kBase);
          number /= kBase;
        }
        ++n;
      }
    }
  }
  // The point at `index`, below kPoints, with bit 3 of each digit set where that bit of signs is.
  void put(size_t index, unsigned signs, uint8_t* codes) const {
    const auto& point = points_[index % kPoints];
    for (size_t i = 0; i < kDigits; ++i)
      codes[i] = static_cast<uint8_t>(point[i] | (((signs >> i) & 1U) << 3));
  }

private:
  std::array<std::array<uint8_t, kDigits>, kPoints> points_{};
};

const Grid<2048, 8, 3>& iq1_grid() {
  static const Grid<2048, 8, 3> grid(kIq1SGrid);
  return grid;
}

// "Seven signs" to eight: their number is even.
unsigned eight_signs(unsigned seven) {
  seven &= 127U;
  return seven | ((static_cast<unsigned>(std::popcount(seven)) & 1U) << 7);
}

uint32_t word_at(const uint8_t* bytes) {
  uint32_t word = 0;
  std::memcpy(&word, bytes, sizeof word);
  return word;
}

// Nibble i of the bytes, low ones first.
unsigned nibble(const uint8_t* bytes, int i) {
  return (bytes[i / 2] >> (4 * (i % 2))) & 15U;
}

// A stored scale s counts as s + 1/2: twice that, the halves being in the type's factor.
uint8_t odd(unsigned scale) {
  return static_cast<uint8_t>(2 * scale + 1);
}

}  // namespace

void unpack(const BlockIq2Xxs& b, IqValues& v) {
  static const Grid<256, 8, 3> grid(kIq2XxsGrid);
  v.d = b.d;
  for (int run = 0; run < 8; ++run) {
    const uint8_t* q = b.qs + 8 * run;
    const uint32_t signs = word_at(q + 4);
    for (int i = 0; i < 4; ++i)
      grid.put(q[i], eight_signs(signs >> (7 * i)), v.codes + 32 * run + 8 * i);
    v.scales[2 * run] = v.scales[2 * run + 1] = odd(signs >> 28);
  }
}

void unpack(const BlockIq2Xs& b, IqValues& v) {
  static const Grid<512, 8, 3> grid(kIq2XsGrid);
  v.d = b.d;
  for (int i = 0; i < 32; ++i)
    grid.put(b.qs[i] & 511U, eight_signs(b.qs[i] >> 9), v.codes + 8 * i);
  for (int i = 0; i < 16; ++i)
    v.scales[i] = odd(nibble(b.scales, i));
}

void unpack(const BlockIq2S& b, IqValues& v) {
  static const Grid<1024, 8, 3> grid(kIq2SGrid);
  v.d = b.d;
  for (int i = 0; i < 32; ++i) {
    const unsigned high = (b.qh[i / 4] >> (2 * (i % 4))) & 3U;
    grid.put(b.qs[i] | (high << 8), b.signs[i], v.codes + 8 * i);
  }
  for (int i = 0; i < 16; ++i)
    v.scales[i] = odd(nibble(b.scales, i));
}

void unpack(const BlockIq3Xxs& b, IqValues& v) {
  static const Grid<256, 4, 8> grid(kIq3XxsGrid);
  v.d = b.d;
  for (int run = 0; run < 8; ++run) {
    const uint32_t signs = word_at(b.signs_scales + 4 * run);
    for (int i = 0; i < 8; ++i) {
      const unsigned eight = eight_signs(signs >> (7 * (i / 2)));
      grid.put(b.qs[8 * run + i], eight >> (4 * (i % 2)), v.codes + 32 * run + 4 * i);
    }
    v.scales[2 * run] = v.scales[2 * run + 1] = odd(signs >> 28);
  }
}

void unpack(const BlockIq3S& b, IqValues& v) {
  static const Grid<512, 4, 8> grid(kIq3SGrid);
  v.d = b.d;
  for (int i = 0; i < 64; ++i) {
    const unsigned high = (b.qh[i / 8] >> (i % 8)) & 1U;
    grid.put(b.qs[i] | (high << 8), nibble(b.signs, i), v.codes + 4 * i);
  }
  for (int run = 0; run < 8; ++run)
    v.scales[2 * run] = v.scales[2 * run + 1] = odd(nibble(b.scales, run));
}

void unpack(const BlockIq1S& b, IqValues& v) {
  v.d = b.d;
  for (int run = 0; run < 8; ++run) {
    const unsigned qh = b.qh[run];
    const unsigned signs = (qh & 0x8000U) != 0 ? 255U : 0U;
    for (int i = 0; i < 4; ++i) {
      const unsigned high = (qh >> (3 * i)) & 7U;
      iq1_grid().put(b.qs[4 * run + i] | (high << 8), signs, v.codes + 32 * run + 8 * i);
    }
    v.scales[2 * run] = v.scales[2 * run + 1] = odd((qh >> 12) & 7U);
  }
}

void unpack(const BlockIq1M& b, IqValues& v) {
  unsigned d = 0;
  for (int i = 0; i < 4; ++i)
    d |= static_cast<unsigned>(b.scales[i] >> 12) << (4 * i);
  v.d = static_cast<uint16_t>(d);
  for (int i = 0; i < 32; ++i) {
    const unsigned high = nibble(b.qh, i);
    iq1_grid().put(b.qs[i] | ((high & 7U) << 8), (high & 8U) != 0 ? 255U : 0U, v.codes + 8 * i);
  }
  for (int i = 0; i < 16; ++i)
    v.scales[i] = odd((b.scales[i / 4] >> (3 * (i % 4))) & 7U);
}

}  // namespace kapitsa::weights
