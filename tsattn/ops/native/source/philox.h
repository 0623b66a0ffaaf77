// Random bits that are a function of a seed and a place: Philox4x32-10.
//
// Source: Salmon, Moraes, Dror and Shaw, Parallel Random Numbers: As Easy as 1, 2, 3 (SC 2011), section 3.3.
#pragma once

#include "lanes.h"

#if defined(__ARM_NEON)
#include <arm_neon.h>
#elif defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace tsattn {

typedef uint64_t WideBits __attribute__((vector_size(4 * LANES)));

constexpr int COUNTERS = LANES / 2;  // that a vector holds, in the lower halves of its lanes
constexpr int GROUP = 32;            // numbers that 8 counters give

INLINE WideBits same_bits(uint64_t x) { return x - WideBits{}; }

// Products of the lower halves of lanes.
INLINE WideBits multiply_low(WideBits a, WideBits b) {
#if defined(__AVX512F__)
  return (WideBits)_mm512_mul_epu32((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
  return (WideBits)_mm256_mul_epu32((__m256i)a, (__m256i)b);
#elif defined(__ARM_NEON)
  return (WideBits)vmull_u32(vmovn_u64((uint64x2_t)a), vmovn_u64((uint64x2_t)b));
#elif defined(__SSE2__)
  return (WideBits)_mm_mul_epu32((__m128i)a, (__m128i)b);
#else
  return (a & 0xFFFFFFFFu) * (b & 0xFFFFFFFFu);
#endif
}

// Two vectors of 32 random bits a lane: (word 0, word 1) of each counter side by side, and (word 2, word 3).
//
// Counters are `first` and those that follow it. What upper halves of lanes hold in between means nothing.
INLINE void random_bits(uint64_t seed, uint64_t first, Bits (&out)[2]) {
  WideBits x0;
  UNROLL for (int i = 0; i < COUNTERS; i++) x0[i] = i;
  x0 += first;
  WideBits x1 = x0 >> 32, x2{}, x3{};
  uint32_t key0 = (uint32_t)seed, key1 = (uint32_t)(seed >> 32);
  UNROLL for (int round = 0; round < 10; round++) {
    const WideBits p0 = multiply_low(x0, same_bits(0xD2511F53u)), p1 = multiply_low(x2, same_bits(0xCD9E8D57u));
    x0 = (p1 >> 32) ^ x1 ^ same_bits(key0);
    x2 = (p0 >> 32) ^ x3 ^ same_bits(key1);
    x1 = p1;
    x3 = p0;
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  const WideBits low = same_bits(0xFFFFFFFFu);
  out[0] = (Bits)((x0 & low) | (x1 << 32));
  out[1] = (Bits)((x2 & low) | (x3 << 32));
}

}  // namespace tsattn
