// Small matrix products, whose results stay in registers.
//
// Of the operands, one is read as vectors and the other word by word, in place. A word is a number in float32, or a
// pair of them in bfloat16 (see precision.h), side by side in the direction that is summed over.
#pragma once

#include "precision.h"

namespace tsattn {

constexpr int OUTER_VECTORS = LANES == 16 ? 3 : 2;

// sums[j][v] += sum over d in [begin, end) of rows[j][d] * columns[d][v]
template <class P, int ROWS, int VECTORS>
INLINE void add_dots(const float* rows, int64_t step, const float* columns, int width, int begin, int end,
                     Vector (&sums)[ROWS][VECTORS]) {
  _Pragma("GCC unroll 4") for (int d = begin; d < end; d++) {
    Vector column[VECTORS];
    UNROLL for (int v = 0; v < VECTORS; v++) column[v] = load(columns + (int64_t)d * width + LANES * v);
    UNROLL for (int j = 0; j < ROWS; j++) {
      const Vector x = same(rows[j * step + d]);
      UNROLL for (int v = 0; v < VECTORS; v++) sums[j][v] = P::multiply_add(sums[j][v], x, column[v]);
    }
  }
}

// out[e][.] = out[e][.] * factor[.] + sum over j < n of rows[j][e] * weights[j][.], for COLUMNS columns e.
template <class P, int COLUMNS, int VECTORS, bool SCALES>
INLINE void mix_columns(const float* rows, int64_t step, const float* weights, int64_t weights_step, int n,
                        const float* factor, float* out, int width) {
  Vector sums[COLUMNS][VECTORS];
  UNROLL for (int e = 0; e < COLUMNS; e++) UNROLL for (int v = 0; v < VECTORS; v++) {
    sums[e][v] = load(out + (int64_t)e * width + LANES * v);
    if (SCALES) sums[e][v] *= load(factor + LANES * v);
  }
  _Pragma("GCC unroll 4") for (int j = 0; j < n; j++) {
    Vector weight[VECTORS];
    UNROLL for (int v = 0; v < VECTORS; v++) weight[v] = load(weights + j * weights_step + LANES * v);
    UNROLL for (int e = 0; e < COLUMNS; e++) {
      const Vector x = same(rows[j * step + e]);
      UNROLL for (int v = 0; v < VECTORS; v++) sums[e][v] = P::multiply_add(sums[e][v], x, weight[v]);
    }
  }
  UNROLL for (int e = 0; e < COLUMNS; e++) UNROLL for (int v = 0; v < VECTORS; v++)
    store(out + (int64_t)e * width + LANES * v, sums[e][v]);
}

// The same for any number of columns.
template <class P, int VECTORS, bool SCALES>
void mix(int columns, const float* rows, int64_t step, const float* weights, int64_t weights_step, int n,
         const float* factor, float* out, int width) {
  const auto go = [&](auto count) {
    mix_columns<P, count, VECTORS, SCALES>(rows, step, weights, weights_step, n, factor, out, width);
    rows += count, out += (int64_t)count * width, columns -= count;
  };
  while (columns >= TILE_KEYS) go(std::integral_constant<int, TILE_KEYS>{});
  if (columns & 4) go(std::integral_constant<int, 4>{});
  if (columns & 2) go(std::integral_constant<int, 2>{});
  if (columns & 1) go(std::integral_constant<int, 1>{});
}

// out[j][.] += sum over i < n of weights[j][i] * rows[i][.]; of the last vector only `last` numbers are there.
template <class P, int ROWS, int VECTORS>
INLINE void outer_columns(const float* weights, int64_t weights_step, const float* rows, int64_t step, int n, int last,
                          float* out, int64_t out_step) {
  Vector sums[ROWS][VECTORS];
  UNROLL for (int j = 0; j < ROWS; j++) UNROLL for (int v = 0; v < VECTORS; v++)
    sums[j][v] = load_first(out + j * out_step + LANES * v, v == VECTORS - 1 ? last : LANES);
  _Pragma("GCC unroll 4") for (int i = 0; i < n; i++) {
    Vector row[VECTORS];
    UNROLL for (int v = 0; v < VECTORS; v++)
      row[v] = load_first(rows + i * step + LANES * v, v == VECTORS - 1 ? last : LANES);
    UNROLL for (int j = 0; j < ROWS; j++) {
      const Vector x = same(weights[j * weights_step + i]);
      UNROLL for (int v = 0; v < VECTORS; v++) sums[j][v] = P::multiply_add(sums[j][v], x, row[v]);
    }
  }
  UNROLL for (int j = 0; j < ROWS; j++) UNROLL for (int v = 0; v < VECTORS; v++)
    store_first(out + j * out_step + LANES * v, sums[j][v], v == VECTORS - 1 ? last : LANES);
}

template <class P, int ROWS>
void outer_rows(const float* weights, int64_t weights_step, const float* rows, int64_t step, int n, int columns,
                float* out, int64_t out_step) {
  while (columns > 0) {
    const int needed = (columns + LANES - 1) / LANES;
    const int vectors = std::min(needed, needed == OUTER_VECTORS + 1 ? OUTER_VECTORS - 1 : OUTER_VECTORS);
    const int taken = std::min(columns, vectors * LANES), last = taken - (vectors - 1) * LANES;
    if (vectors == 1) outer_columns<P, ROWS, 1>(weights, weights_step, rows, step, n, last, out, out_step);
    else if (vectors == 2) outer_columns<P, ROWS, 2>(weights, weights_step, rows, step, n, last, out, out_step);
    else outer_columns<P, ROWS, OUTER_VECTORS>(weights, weights_step, rows, step, n, last, out, out_step);
    rows += taken, out += taken, columns -= taken;
  }
}

// out[j][c] += sum over i < n of weights[j][i] * rows[i][c], for j < count and c < columns.
template <class P>
void add_outer(int count, const float* weights, int64_t weights_step, const float* rows, int64_t step, int n,
                      int columns, float* out, int64_t out_step) {
  const auto go = [&](auto taken) {
    outer_rows<P, taken>(weights, weights_step, rows, step, n, columns, out, out_step);
    weights += taken * weights_step, out += taken * out_step, count -= taken;
  };
  while (count >= TILE_KEYS) go(std::integral_constant<int, TILE_KEYS>{});
  if (count & 4) go(std::integral_constant<int, 4>{});
  if (count & 2) go(std::integral_constant<int, 2>{});
  if (count & 1) go(std::integral_constant<int, 1>{});
}

// columns[c][i] = rows[i][c] for i < n, times the factor if it SCALES, and 0 for n <= i < width
template <bool SCALES>
void pack_columns(const float* rows, int64_t step, int n, int columns, int width, float factor, float* out) {
  for (int first = 0; first < width; first += LANES)
    for (int c = 0; c < columns; c += LANES) {
      const int taken = std::min(LANES, columns - c);
      Vector x[LANES];
      UNROLL for (int i = 0; i < LANES; i++)
        x[i] = first + i < n ? load_first(rows + (first + i) * step + c, taken) : Vector{};
      if (SCALES) UNROLL for (int i = 0; i < LANES; i++) x[i] *= factor;
      transpose(x);
      UNROLL for (int i = 0; i < LANES; i++)
        if (i < taken) store(out + (int64_t)(c + i) * width + first, x[i]);
    }
}

// rows[i][c] = columns[c][i] * factor[i] for i < n
inline void unpack_columns(const float* in, int width, int n, int columns, const float* factor, float* rows,
                           int64_t step) {
  for (int first = 0; first < n; first += LANES) {
    const Vector f = load(factor + first);
    for (int c = 0; c < columns; c += LANES) {
      const int taken = std::min(LANES, columns - c);
      Vector x[LANES];
      UNROLL for (int i = 0; i < LANES; i++)
        x[i] = i < taken ? f * load(in + (int64_t)(c + i) * width + first) : Vector{};
      transpose(x);
      UNROLL for (int i = 0; i < LANES; i++)
        if (first + i < n) store_first(rows + (first + i) * step + c, x[i], taken);
    }
  }
}

}  // namespace tsattn
