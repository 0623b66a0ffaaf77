// Vectors of floats, as wide as the instruction set that this is compiled for.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>
#include <algorithm>

#if defined(__AVX512F__)
#include <immintrin.h>
#define TSATTN_LANES 16
#define TSATTN_TILE_KEYS 8  // 8 keys x 2 vectors of queries are 16 of the 32 registers
#elif defined(__AVX2__)
#include <immintrin.h>
#define TSATTN_LANES 8
#define TSATTN_TILE_KEYS 6  // 6 x 2 are 12 of the 16 registers
#else
#define TSATTN_LANES 4
#define TSATTN_TILE_KEYS 8  // NEON has 32 registers
#endif

#define INLINE __attribute__((always_inline)) inline
#define UNROLL _Pragma("GCC unroll 32")

namespace tsattn {

constexpr int LANES = TSATTN_LANES;
constexpr int TILE_KEYS = TSATTN_TILE_KEYS;
constexpr float INF = std::numeric_limits<float>::infinity();
constexpr float LARGEST = std::numeric_limits<float>::max();
constexpr float NOT_A_NUMBER = std::numeric_limits<float>::quiet_NaN();

typedef float Vector __attribute__((vector_size(4 * LANES)));
typedef int32_t Whole __attribute__((vector_size(4 * LANES)));
typedef uint32_t Bits __attribute__((vector_size(4 * LANES)));
typedef float LooseVector __attribute__((vector_size(4 * LANES), aligned(4)));

INLINE Vector same(float x) { return x - Vector{}; }
INLINE Vector load(const float* p) { return *(const Vector*)p; }
INLINE void store(float* p, Vector x) { *(Vector*)p = x; }
INLINE Vector load_loose(const float* p) { return *(const LooseVector*)p; }
INLINE void store_loose(float* p, Vector x) { *(LooseVector*)p = x; }

// The first n numbers, zeros after them.
INLINE Vector load_first(const float* p, int n) {
#if defined(__AVX512F__)
  return (Vector)_mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p);
#else
  if (n == LANES) return load_loose(p);
  Vector x{};
  for (int i = 0; i < n; i++) x[i] = p[i];
  return x;
#endif
}

INLINE void store_first(float* p, Vector x, int n) {
#if defined(__AVX512F__)
  _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), (__m512)x);
#else
  if (n == LANES) return store_loose(p, x);
  for (int i = 0; i < n; i++) p[i] = x[i];
#endif
}

// The larger of two, the second where one is not a number.
INLINE Vector larger(Vector a, Vector b) {
#if defined(__AVX512F__)
  return (Vector)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__)
  return (Vector)_mm256_max_ps((__m256)a, (__m256)b);
#else
  return a > b ? a : b;
#endif
}

INLINE float sum(Vector x) {
  float total = 0;
  UNROLL for (int i = 0; i < LANES; i++) total += x[i];
  return total;
}

INLINE Whole lane_numbers() {
  Whole x;
  UNROLL for (int i = 0; i < LANES; i++) x[i] = i;
  return x;
}

// 2^x to 2e-7 of itself for x <= 127; 0 below -126; not a number where x is none.
INLINE Vector exp2_of(Vector x) {
#if defined(__AVX512F__)
  const Vector n = (Vector)_mm512_roundscale_ps((__m512)x, 0);
#else
  x = x < -127.f ? same(-127.f) : x;
  const Vector shifted = x + 12582912.f;  // 1.5 x 2^23: the fraction is rounded away
  const Vector n = shifted - 12582912.f;
#endif
  const Vector f = x - n;
  Vector p = same(0.001327647012f);
  p = p * f + 0.00967554132f;
  p = p * f + 0.05550713279f;
  p = p * f + 0.2402211972f;
  p = p * f + 0.6931469671f;
  p = p * f + 1.000000072f;
#if defined(__AVX512F__)
  return (Vector)_mm512_scalef_ps((__m512)p, (__m512)n);  // 0 at -inf, although p is not a number there
#else
  return p * (Vector)(((Bits)shifted + 127u) << 23);  // the exponent 0 is the number 0
#endif
}

template <int... I>
INLINE Vector zip_first(Vector a, Vector b, std::integer_sequence<int, I...>) {
#if defined(__clang__) || __GNUC__ >= 12
  return __builtin_shufflevector(a, b, (I / 2 + (I % 2) * LANES)...);
#else
  return __builtin_shuffle(a, b, Whole{(I / 2 + (I % 2) * LANES)...});
#endif
}
template <int... I>
INLINE Vector zip_last(Vector a, Vector b, std::integer_sequence<int, I...>) {
#if defined(__clang__) || __GNUC__ >= 12
  return __builtin_shufflevector(a, b, (LANES / 2 + I / 2 + (I % 2) * LANES)...);
#else
  return __builtin_shuffle(a, b, Whole{(LANES / 2 + I / 2 + (I % 2) * LANES)...});
#endif
}

// Rows become columns: as many rounds of zipping each row with the one half the rows after it as LANES halves.
INLINE void transpose(Vector (&rows)[LANES]) {
  constexpr auto order = std::make_integer_sequence<int, LANES>{};
  Vector next[LANES];
  UNROLL for (int round = 1; round < LANES; round *= 2) {
    UNROLL for (int i = 0; i < LANES / 2; i++) {
      next[2 * i] = zip_first(rows[i], rows[i + LANES / 2], order);
      next[2 * i + 1] = zip_last(rows[i], rows[i + LANES / 2], order);
    }
    UNROLL for (int i = 0; i < LANES; i++) rows[i] = next[i];
  }
}

}  // namespace tsattn
