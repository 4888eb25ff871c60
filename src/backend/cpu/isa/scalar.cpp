// The kernels of any machine, compiled with the build's own flags.
#include "backend/cpu/isa/kernels.h"
#include "base/half.h"

#include <cstddef>

namespace kapitsa::backend::cpu {
namespace {

#include "backend/cpu/isa/vec_scalar.h"

// Rows of one register block, of the f32 kernels and of the integer kernels.
constexpr int kRowBlock = 2;

constexpr int kPackedRows = 2;

// Queries of one register block: of scores, and of weighted sums of values.
constexpr int kScoreQueries = 4;
constexpr int kValueQueries = 2;

#include "backend/cpu/isa/kernels.inl"

constexpr Kernels kTable = table("scalar");

}  // namespace

const Kernels* scalar_kernels() {
  return &kTable;
}

}  // namespace kapitsa::backend::cpu
