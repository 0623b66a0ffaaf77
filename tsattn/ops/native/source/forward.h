// Outputs, and what the backward pass needs of each query: its largest logit and the sum of its weights.
#pragma once

#include <memory>

#include "scores.h"
#include "workers.h"

namespace tsattn {

constexpr float LOG2_E = 1.4426950408889634f;

// Where the keys or values of a query head begin: strides are in numbers, of which a word may hold several.
template <class P>
INLINE const float* of_keys(const TsattnProblem& p, const TsattnTensor& t, int64_t row, int64_t head) {
  return t.at + (row * t.batch + head / (p.heads / p.key_heads) * t.head) / P::PACKED;
}

template <class P>
INLINE const float* of_queries(const TsattnTensor& t, int64_t row, int64_t head, const QueryBlock& block) {
  return t.at + (row * t.batch + head * t.head + block.first * t.token) / P::PACKED;
}

struct ForwardRoom {
  Scratch all;
  float *queries, *outs, *peaks, *totals, *factor, *scores, *bias, *values;
  ForwardRoom(const TsattnProblem& p, int width)
      : all(p.shared_blocks * (Scratch::room(p.width * width) + Scratch::room(p.value_width * width) + 2 * width) +
            width + (p.bias ? 2 : 1) * Scratch::room(p.chunk_keys * width) +
            Scratch::room(p.bfloat16 * (p.chunk_keys / 2 + 1) * p.value_width) + 128) {
    queries = all.take(p.shared_blocks * p.width * width);
    outs = all.take(p.shared_blocks * p.value_width * width);
    peaks = all.take(p.shared_blocks * width);
    totals = all.take(p.shared_blocks * width);
    factor = all.take(width);
    scores = all.take(p.chunk_keys * width);
    bias = p.bias ? all.take(p.chunk_keys * width) : nullptr;
    values = all.take(p.bfloat16 * (p.chunk_keys / 2 + 1) * p.value_width);
  }
};

// One chunk of keys and one block of queries: the running softmax of each query, and its running mixture of values.
template <class P, int VECTORS>
void forward_chunk(const TsattnProblem& p, const Plan& plan, const QueryBlock& block, int64_t row, int64_t head,
                   int tile_begin, int tile_end, const ForwardRoom& room, float* queries, float* outs, float* peaks,
                   float* totals) {
  constexpr int W = VECTORS * LANES;
  const int chunk_begin = tile_begin;
  const float* keys = of_keys<P>(p, p.k, row, head);
  tile_begin = std::max(tile_begin, block.tile_begin), tile_end = std::min(tile_end, block.tile_end);
  if (tile_begin >= tile_end) return;
  const int first = tile_begin * TILE_KEYS, n = std::min((int)p.keys, tile_end * TILE_KEYS) - first;
  float* s = room.scores;
  if (p.bias) pack_bias(p, row, head, block, first, n, W, W, room.bias);
  Vector peak[VECTORS], before[VECTORS], total[VECTORS];
  UNROLL for (int v = 0; v < VECTORS; v++) peak[v] = before[v] = load(peaks + LANES * v);
  const Tile* tiles = plan.tiles_of(block);
  const int64_t step = p.k.token / P::PACKED;
  for (int t = tile_begin; t < tile_end; t++) {
    const Place at{p, plan, block, t};
    float* place = s + (int64_t)(at.key() - first) * W;
    if (tiles[t].kind == HIDDEN) {
      for (int j = 0; j < at.count(); j++) UNROLL for (int v = 0; v < VECTORS; v++)
        store(place + j * W + LANES * v, same(-INF));
      continue;
    }
    score_tile<P, VECTORS>(at, tiles[t], keys + at.key() * step, step, queries, W, p.bias ? room.bias + (place - s) : nullptr, place, W,
                           peak);
  }
  Vector reference[VECTORS];
  UNROLL for (int v = 0; v < VECTORS; v++) {
    // a query that has seen no key so far: any finite number will do, its weights are 0
    reference[v] = peak[v] == -INF ? Vector{} : peak[v];
    const Vector factor = exp2_of((before[v] - reference[v]) * LOG2_E);
    store(room.factor + LANES * v, factor);
    total[v] = load(totals + LANES * v) * factor;
    store(peaks + LANES * v, peak[v]);
  }
  const Dropout dropout(p, row * p.heads + head);
  const auto weigh = [&](int j, int v) {
    Vector weight = exp2_of((load(s + (int64_t)j * W + LANES * v) - reference[v]) * LOG2_E);
    total[v] += weight;
    return p.dropout > 0 ? weight * dropout.factors(block.first + LANES * v, first + j) : weight;
  };
  if constexpr (P::PACKED == 1) {
    for (int j = 0; j < n; j++) UNROLL for (int v = 0; v < VECTORS; v++)
      store(s + (int64_t)j * W + LANES * v, weigh(j, v));
    mix<P, VECTORS, true>((int)p.value_width, of_keys<P>(p, p.v, row, head) + first * p.v.token, p.v.token, s, W, n,
                          room.factor, outs, W);
  }
#if defined(TSATTN_BFLOAT16)
  else {
    for (int j = 0; j < n; j += 2) UNROLL for (int v = 0; v < VECTORS; v++) {
      const Halves one = rounded(weigh(j, v)), other = j + 1 < n ? rounded(weigh(j + 1, v)) : Halves{};
      store(s + (int64_t)(j / 2) * W + LANES * v, paired(one, other));
    }
    const int pairs_before = (first - chunk_begin * TILE_KEYS) / 2;
    mix<P, VECTORS, true>((int)p.value_width, room.values + pairs_before * p.value_width, p.value_width, s, W,
                          (n + 1) / 2, room.factor, outs, W);
  }
#endif
  UNROLL for (int v = 0; v < VECTORS; v++) store(totals + LANES * v, total[v]);
}

// Whether a query sees any key: if all its logits are minus infinity, it differs in this from one without keys.
inline bool sees_a_key(const TsattnProblem& p, const Plan& plan, const QueryBlock& block, int64_t row, int64_t head,
                       int query) {
  const int32_t *first = plan.seen_first + block.section * p.keys, *end = plan.seen_end + block.section * p.keys;
  const int64_t bias = row * p.bias_batch + head * p.bias_head + query * p.bias_query;
  const int stop = std::min((int)p.keys, block.tile_end * TILE_KEYS);
  for (int key = block.tile_begin * TILE_KEYS; key < stop; key++)
    if (first[key] <= query && query < end[key] && (!p.bias || p.bias[bias + key * p.bias_key] != -INF)) return true;
  return false;
}

template <class P, int VECTORS>
void forward(const TsattnProblem& p) {
  constexpr int W = VECTORS * LANES;
  const std::vector<Plan> plans = make_plans(p, W);
  const int64_t most_blocks = [&] {
    size_t most = 0;
    for (const Plan& plan : plans) most = std::max(most, plan.blocks.size());
    return (int64_t)most;
  }();
  const int64_t groups = (most_blocks + p.shared_blocks - 1) / p.shared_blocks;
  const int chunk = std::max(1, (int)p.chunk_keys / TILE_KEYS);
  const auto work = [&](int64_t number, const ForwardRoom& room) {
    const int64_t row = number / groups / p.heads, head = number / groups % p.heads;
    const Plan& plan = plans[p.layout_of_row[row]];
    const int64_t begin = number % groups * p.shared_blocks;
    const int count = (int)(std::min<int64_t>(begin + p.shared_blocks, plan.blocks.size()) - begin);
    int tile_begin = plan.num_tiles, tile_end = 0;
    for (int u = 0; u < count; u++) {
      const QueryBlock& block = plan.blocks[begin + u];
      const float* q = of_queries<P>(p.q, row, head, block);
      pack_columns<P::PACKED == 1>(q, p.q.token / P::PACKED, block.end - block.first, (int)p.width / P::PACKED, W,
                                   p.scale, room.queries + u * p.width * W);
      std::fill_n(room.outs + u * p.value_width * W, p.value_width * W, 0.f);
      std::fill_n(room.peaks + u * W, W, -INF);
      std::fill_n(room.totals + u * W, W, 0.f);
      tile_begin = std::min(tile_begin, block.tile_begin), tile_end = std::max(tile_end, block.tile_end);
    }
    for (int t = tile_begin; t < tile_end; t += chunk) {
#if defined(TSATTN_BFLOAT16)
      if constexpr (P::PACKED == 2) {
        const int first = t * TILE_KEYS, stop = std::min((int)p.keys, std::min(tile_end, t + chunk) * TILE_KEYS);
        pair_rows((const uint16_t*)of_keys<P>(p, p.v, row, head) + first * p.v.token, p.v.token, stop - first,
                  (int)p.value_width, room.values, p.value_width);
      }
#endif
      for (int u = 0; u < count; u++)
        forward_chunk<P, VECTORS>(p, plan, plan.blocks[begin + u], row, head, t, t + chunk, room,
                                  room.queries + u * p.width * W, room.outs + u * p.value_width * W,
                                  room.peaks + u * W, room.totals + u * W);
    }
    for (int u = 0; u < count; u++) {
      const QueryBlock& block = plan.blocks[begin + u];
      const int64_t query = (row * p.heads + head) * p.queries + block.first;
      for (int i = 0; i < W; i++) {
        const float peak = room.peaks[u * W + i], total = room.totals[u * W + i];
        room.factor[i] = peak == -INF ? 0.f : 1 / total;
        if (i >= block.end - block.first) continue;
        if (peak == -INF && sees_a_key(p, plan, block, row, head, block.first + i)) room.factor[i] = NOT_A_NUMBER;
        p.peak[query + i] = peak == -INF ? 0.f : peak;
        p.inverse_total[query + i] = room.factor[i];
      }
      float* out = p.out.at + row * p.out.batch + head * p.out.head + block.first * p.out.token;
      unpack_columns(room.outs + u * p.value_width * W, W, block.end - block.first, (int)p.value_width, room.factor,
                     out, p.out.token);
    }
  };
  share_out(p, p.batch * p.heads * groups, [&] { return std::make_unique<ForwardRoom>(p, W); }, work);
}

}  // namespace tsattn
