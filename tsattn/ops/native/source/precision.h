// In what the products of a pass are computed: float32, or bfloat16 with sums in float32.
#pragma once

#include "lanes.h"

namespace tsattn {

struct Float32 {
  static constexpr int PACKED = 1;  // numbers of a word
  static INLINE Vector multiply_add(Vector sum, Vector x, Vector y) { return sum + x * y; }
};

#if defined(__AVX512BF16__)
#define TSATTN_BFLOAT16 1
struct BFloat16 {
  static constexpr int PACKED = 2;
  static INLINE Vector multiply_add(Vector sum, Vector x, Vector y) {
    return (Vector)_mm512_dpbf16_ps((__m512)sum, (__m512bh)x, (__m512bh)y);
  }
};

// what is written as halves is read as words
typedef uint16_t Halves __attribute__((vector_size(2 * LANES), may_alias));
typedef uint16_t LooseHalves __attribute__((vector_size(2 * LANES), aligned(2), may_alias));

INLINE Halves rounded(Vector x) { return (Halves)_mm512_cvtneps_pbh((__m512)x); }

// Words of which the first number is one of `a` and the second one of `b`.
INLINE Vector paired(Halves a, Halves b) {
  return (Vector)(__builtin_convertvector(a, Bits) | (__builtin_convertvector(b, Bits) << 16));
}

INLINE Halves load_halves(const uint16_t* p, int n) {
  return (Halves)_mm256_maskz_loadu_epi16((__mmask16)((1u << n) - 1), p);
}

// Of each two rows the words (rows[2 i][c], rows[2 i + 1][c]); zeros where there is no second row.
inline void pair_rows(const uint16_t* rows, int64_t step, int n, int columns, float* out, int64_t out_step) {
  for (int i = 0; i < n; i += 2)
    for (int c = 0; c < columns; c += LANES) {
      const int taken = columns - c < LANES ? columns - c : LANES;
      const Halves a = load_halves(rows + i * step + c, taken);
      const Halves b = i + 1 < n ? load_halves(rows + (i + 1) * step + c, taken) : Halves{};
      store_first(out + (i / 2) * out_step + c, paired(a, b), taken);
    }
}
#endif

}  // namespace tsattn
