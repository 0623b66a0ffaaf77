// Dropout in one pass, whose mask is a function of the seed and the place of a number, and is never stored.
#pragma once

#include "philox.h"
#include "problem.h"
#include "workers.h"

namespace tsattn {

constexpr int64_t SHARE = 1 << 15;  // numbers that a thread computes at a time: whole groups

typedef uint16_t HalfWords __attribute__((vector_size(2 * LANES), aligned(2), may_alias));

INLINE Vector load_as_float(const float* p) { return load_loose(p); }
INLINE Vector load_as_float(const uint16_t* p) {
  return (Vector)(__builtin_convertvector(*(const HalfWords*)p, Bits) << 16);
}

INLINE void store_as(float* p, Vector x) { store_loose(p, x); }
// To the nearest of bfloat16, the even one of two.
INLINE void store_as(uint16_t* p, Vector x) {
  const Bits bits = (Bits)x;
  const Bits nearest = (bits + (0x7FFFu + ((bits >> 16) & 1u))) >> 16;
  *(HalfWords*)p = __builtin_convertvector((Bits)(x == x ? (Whole)nearest : Whole{} + 0x7FC0), HalfWords);
}

// A whole group: numbers 32 g to 32 g + 31 are those of counters 8 g to 8 g + 7. First come words 0 and 1 of each
// counter, then words 2 and 3, whatever the width of vectors.
template <class In, class Out>
INLINE void drop_group(const TsattnDropout& p, uint64_t group, const In* x, const Out* residual, Out* out) {
  UNROLL for (int part = 0; part < 8 / COUNTERS; part++) {
    Bits bits[2];
    random_bits(p.seed, group * 8 + part * COUNTERS, bits);
    UNROLL for (int half = 0; half < 2; half++) {
      const int at = half * GROUP / 2 + part * LANES;
      // a product, so that what is infinite or no number stays in sight, as in PyTorch
      Vector y = load_as_float(x + at) * (bits[half] >= p.threshold ? same(p.factor) : Vector{});
      if (residual) y += load_as_float(residual + at);
      store_as(out + at, y);
    }
  }
}

template <class In, class Out>
void drop_numbers(const TsattnDropout& p) {
  auto work = [&](int64_t share, int) {
    const int64_t end = std::min(p.count, (share + 1) * SHARE);
    const In* x = (const In*)p.x;
    const Out* residual = (const Out*)p.residual;
    Out* out = (Out*)p.out;
    int64_t i = share * SHARE;
    for (; i + GROUP <= end; i += GROUP)
      drop_group(p, (uint64_t)i / GROUP, x + i, residual ? residual + i : nullptr, out + i);
    if (i == end) return;
    In last_x[GROUP] = {};
    Out last_residual[GROUP] = {}, last_out[GROUP];
    std::copy(x + i, x + end, last_x);
    if (residual) std::copy(residual + i, residual + end, last_residual);
    drop_group(p, (uint64_t)i / GROUP, last_x, residual ? last_residual : nullptr, last_out);
    std::copy(last_out, last_out + (end - i), out + i);
  };
  static int nothing;
  share_out(p, (p.count + SHARE - 1) / SHARE, [] { return &nothing; }, work);
}

}  // namespace tsattn
