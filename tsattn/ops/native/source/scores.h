// The logits of a tile: of TILE_KEYS keys and a block of queries.
#pragma once

#include "plan.h"
#include "products.h"

namespace tsattn {

// Where a tile stands.
struct Place {
  const TsattnProblem& p;
  const Plan& plan;
  const QueryBlock& block;
  int number;  // of the tile
  int key() const { return number * TILE_KEYS; }
  int count() const { return std::min(TILE_KEYS, (int)p.keys - key()); }
};

// Lanes of the queries from `query` that lie in [first, end).
INLINE Whole lanes_in(int query, int first, int end) {
  const Whole number = lane_numbers() + query;
  return (number >= first) & (number < end);
}

// Calls f(level, vector, shares) for the vectors of queries of which some share a level that not all pairs share;
// shares(key) gives the lanes that do.
template <int VECTORS, class F>
INLINE void for_finer_levels(const Place& at, const Tile& tile, F f) {
  for (int l = tile.levels; l < (int)at.p.levels; l++) {
    const Extent& extent = at.plan.extent(l, at.number);
    if (!extent.meets(at.block.first, at.block.end)) continue;
    const int64_t row = (int64_t)l * at.p.keys + at.key();
    for (int v = 0; v < VECTORS; v++) {
      const int query = at.block.first + v * LANES;
      if (!extent.meets(query, query + LANES)) continue;
      f(l, v, [&](int j) { return lanes_in(query, at.plan.block_first[row + j], at.plan.block_end[row + j]); });
    }
  }
}

// Multiplies the numbers of a tile by the factors of the levels that its pairs share.
template <int VECTORS>
void multiply_level_factors(const Place& at, const Tile& tile, float* s, int64_t step) {
  const float* factors = at.p.level_factors;
  for (int j = 0; j < at.count(); j++)
    for (int v = 0; v < VECTORS; v++) {
      Vector factor = same(factors[tile.levels]);
      if (tile.kind & SHARES_MORE)
        for (int l = tile.levels; l < (int)at.p.levels; l++) {
          const int64_t row = (int64_t)l * at.p.keys + at.key() + j;
          const Whole shares =
              lanes_in(at.block.first + v * LANES, at.plan.block_first[row], at.plan.block_end[row]);
          factor = shares ? same(factors[l + 1]) : factor;
        }
      store(s + j * step + LANES * v, factor * load(s + j * step + LANES * v));
    }
}

template <class P, int VECTORS>
__attribute__((noinline)) void finish_scores(const Place& at, const Tile& tile, const float* keys, int64_t keys_step,
                                             const float* queries, int width, const float* bias, float* s,
                                             int64_t step, Vector (&peak)[VECTORS]) {
  const int n = at.count();
  if (tile.kind & SHARES_MORE) {
    int begin[256];
    begin[0] = 0;
    for (int l = 0; l < (int)at.p.levels; l++) begin[l + 1] = begin[l] + at.p.ranks[l] / P::PACKED;
    for_finer_levels<VECTORS>(at, tile, [&](int l, int v, auto shares) {
      const auto add = [&](auto rows, int first) {
        constexpr int ROWS = decltype(rows)::value;
        Vector sums[ROWS][1]{};
        add_dots<P, ROWS, 1>(keys + first * keys_step, keys_step, queries + LANES * v, width, begin[l], begin[l + 1],
                             sums);
        if (P::PACKED > 1) UNROLL for (int j = 0; j < ROWS; j++) sums[j][0] *= at.p.scale;
        UNROLL for (int j = 0; j < ROWS; j++) {
          float* place = s + (first + j) * step + LANES * v;
          store(place, load(place) + (shares(first + j) ? sums[j][0] : Vector{}));
        }
      };
      if (n == TILE_KEYS) return add(std::integral_constant<int, TILE_KEYS>{}, 0);
      for (int j = 0; j < n; j++) add(std::integral_constant<int, 1>{}, j);
    });
  }
  if (at.p.level_factors) multiply_level_factors<VECTORS>(at, tile, s, step);
  if (bias)
    for (int j = 0; j < n; j++)
      for (int v = 0; v < VECTORS; v++) {
        float* place = s + j * step + LANES * v;
        const Vector added = load(bias + j * step + LANES * v);
        // a forbidden pair is unseen whatever its logit is; infinity counts as the largest number, as elsewhere
        store(place, added == -INF ? same(-INF) : load(place) + (added > LARGEST ? same(LARGEST) : added));
      }
  if (tile.kind & SEEN_IN_PART) {
    const int64_t row = at.block.section * at.p.keys + at.key();
    for (int j = 0; j < n; j++)
      for (int v = 0; v < VECTORS; v++) {
        const Whole seen =
            lanes_in(at.block.first + v * LANES, at.plan.seen_first[row + j], at.plan.seen_end[row + j]);
        float* place = s + j * step + LANES * v;
        store(place, seen ? load(place) : same(-INF));
      }
  }
  for (int j = 0; j < n; j++)
    for (int v = 0; v < VECTORS; v++) peak[v] = larger(load(s + j * step + LANES * v), peak[v]);
}

template <class P, int ROWS, int VECTORS>
void score_rows(const Place& at, const Tile& tile, const float* keys, int64_t keys_step, const float* queries,
                int width, const float* bias, float* s, int64_t step, Vector (&peak)[VECTORS]) {
  Vector sums[ROWS][VECTORS]{};
  add_dots<P, ROWS, VECTORS>(keys, keys_step, queries, width, 0, tile.prefix / P::PACKED, sums);
  if (P::PACKED > 1)  // a scale in the rounded queries would be rounded with them
    UNROLL for (int j = 0; j < ROWS; j++) UNROLL for (int v = 0; v < VECTORS; v++) sums[j][v] *= at.p.scale;
  UNROLL for (int j = 0; j < ROWS; j++) UNROLL for (int v = 0; v < VECTORS; v++)
    store(s + j * step + LANES * v, sums[j][v]);
  if (__builtin_expect(tile.kind == WHOLE && !bias && !at.p.level_factors, 1)) {
    UNROLL for (int v = 0; v < VECTORS; v++) UNROLL for (int j = 0; j < ROWS; j++)
      peak[v] = larger(sums[j][v], peak[v]);
  } else {
    finish_scores<P, VECTORS>(at, tile, keys, keys_step, queries, width, bias, s, step, peak);
  }
}

// s[j][.] = the logits of key j of the tile; `peak` becomes the largest so far.
//
// `queries` are columns of words, `width` apart, in float32 with the scale of the logits in them; `bias` is laid out as
// s is. Steps are in words.
template <class P, int VECTORS>
INLINE void score_tile(const Place& at, const Tile& tile, const float* keys, int64_t keys_step, const float* queries,
                       int width, const float* bias, float* s, int64_t step, Vector (&peak)[VECTORS]) {
  const auto go = [&](auto rows) {
    score_rows<P, rows, VECTORS>(at, tile, keys, keys_step, queries, width, bias, s, step, peak);
  };
  switch (at.count()) {
    case 1: return go(std::integral_constant<int, 1>{});
    case 2: return go(std::integral_constant<int, 2>{});
    case 3: return go(std::integral_constant<int, 3>{});
    case 4: return go(std::integral_constant<int, 4>{});
    case 5: return go(std::integral_constant<int, 5>{});
    case 6: return go(std::integral_constant<int, 6>{});
    case 7: return go(std::integral_constant<int, std::min(7, TILE_KEYS)>{});
    default: return go(std::integral_constant<int, TILE_KEYS>{});
  }
}

// out[j][i] = the bias of query `first + i` and key `key + j`, for n keys of a block of `width` queries.
inline void pack_bias(const TsattnProblem& p, int64_t row, int64_t head, const QueryBlock& block, int key, int n,
                      int width, int64_t step, float* out) {
  const float* bias = p.bias + row * p.bias_batch + head * p.bias_head;
  for (int first = 0; first < width; first += LANES)
    for (int j = 0; j < n; j += LANES) {
      const int taken = std::min(LANES, n - j);
      Vector x[LANES];
      UNROLL for (int i = 0; i < LANES; i++) {
        x[i] = Vector{};
        const int query = block.first + first + i;
        if (query >= block.end) continue;
        const float* numbers = bias + query * p.bias_query + (key + j) * p.bias_key;
        if (p.bias_key == 1) x[i] = load_first(numbers, taken);
        else for (int c = 0; c < taken; c++) x[i][c] = numbers[c * p.bias_key];
      }
      transpose(x);
      UNROLL for (int i = 0; i < LANES; i++)
        if (i < taken) store(out + (j + i) * step + first, x[i]);
    }
}

// What weights are multiplied by: 0 for those that are dropped. A function of the seed, the head, the query and the key.
struct Dropout {
  float factor = 1;
  int32_t threshold = 0;
  uint32_t head_seed = 0;

  Dropout(const TsattnProblem& p, int64_t head) {
    factor = 1 / (1 - p.dropout);
    threshold = (int32_t)((double)p.dropout * (1 << 24));
    uint64_t x = p.seed + 0x9E3779B97F4A7C15u * (uint64_t)(head + 1);
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    head_seed = (uint32_t)(x ^ (x >> 31));
  }

  INLINE Vector factors(int query, int key) const {
    uint32_t of_key = (uint32_t)key * 0x9E3779B1u + head_seed;
    of_key = (of_key ^ (of_key >> 16)) * 0x85EBCA6Bu;
    Bits x = (Bits)(lane_numbers() + query) * 0xC2B2AE35u ^ of_key;
    x = (x ^ (x >> 16)) * 0x7FEB352Du;
    x = (x ^ (x >> 15)) * 0x846CA68Bu;
    x = x ^ (x >> 16);
    return (Whole)(x >> 8) >= threshold ? same(factor) : Vector{};
  }
};

}  // namespace tsattn
