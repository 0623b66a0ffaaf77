// Gradients of queries, keys, values and the bias. The weights are computed anew from what the forward pass kept.
#pragma once

#include "forward.h"

namespace tsattn {

struct BackwardRoom {
  Scratch all;
  // of all queries of the blocks that share a chunk: a column of `stride` queries for each component or key
  float *queries, *grad_outs, *grad_queries, *weights, *grad_logits, *bias, *mean_grad, *peaks, *inverse_totals;
  float *part, *ones;
  int64_t stride;
  std::vector<int> runs;
  BackwardRoom(const TsattnProblem& p, int width)
      : all(p.shared_blocks * width * (2 * p.width + p.value_width + 3 * p.chunk_keys + 3) + TILE_KEYS * LANES + width +
            256),
        stride(p.shared_blocks * width) {
    queries = all.take(stride * p.width);
    grad_outs = all.take(stride * p.value_width);
    grad_queries = all.take(stride * p.width);
    weights = all.take(stride * p.chunk_keys);
    grad_logits = all.take(stride * p.chunk_keys);
    bias = p.bias ? all.take(stride * p.chunk_keys) : nullptr;
    mean_grad = all.take(stride), peaks = all.take(stride), inverse_totals = all.take(stride);
    part = all.take(TILE_KEYS * LANES);
    ones = all.take(width);
    std::fill_n(ones, width, 1.f);
  }
};

// One row of the batch, one head, some blocks of queries that share chunks of keys, and one part of the keys.
template <int VECTORS>
struct BackwardBlocks {
  static constexpr int W = VECTORS * LANES;
  const TsattnProblem& p;
  const Plan& plan;
  int64_t row, head, key_head;
  const QueryBlock* blocks;
  int count;
  BackwardRoom& room;
  const float *q, *k, *v, *grad_out;
  float *grad_k, *grad_v;

  BackwardBlocks(const TsattnProblem& p, const Plan& plan, int64_t row, int64_t head, int64_t begin, int count,
                 BackwardRoom& room)
      : p(p), plan(plan), row(row), head(head), key_head(head / (p.heads / p.key_heads)),
        blocks(plan.blocks.data() + begin), count(count), room(room) {
    const auto at = [&](const TsattnTensor& t, int64_t h) { return t.at + row * t.batch + h * t.head; };
    q = at(p.q, head), k = at(p.k, key_head), v = at(p.v, key_head), grad_out = at(p.grad_out, head);
    grad_k = at(p.grad_k, key_head), grad_v = at(p.grad_v, key_head);
  }

  const Tile* tile(int u, int t) const {
    const QueryBlock& block = blocks[u];
    if (t < block.tile_begin || t >= block.tile_end) return nullptr;
    const Tile* found = plan.tiles_of(block) + t;
    return found->kind == HIDDEN ? nullptr : found;
  }

  void run(int tile_begin, int tile_end, int64_t key_part) {
    int first_tile = tile_end, last_tile = tile_begin;
    for (int u = 0; u < count; u++) {
      load_block(u);
      first_tile = std::min(first_tile, blocks[u].tile_begin), last_tile = std::max(last_tile, blocks[u].tile_end);
    }
    const int chunk = std::max(1, (int)p.chunk_keys / TILE_KEYS);
    tile_begin = std::max(tile_begin, first_tile), tile_end = std::min(tile_end, last_tile);
    for (int t = tile_begin; t < tile_end; t += chunk) run_chunk(t, std::min(tile_end, t + chunk));
    for (int u = 0; u < count; u++) {
      const QueryBlock& block = blocks[u];
      float* out = p.grad_q.at + key_part * p.grad_q_part + row * p.grad_q.batch + head * p.grad_q.head +
                   block.first * p.grad_q.token;
      unpack_columns(room.grad_queries + u * p.width * W, W, block.end - block.first, (int)p.width, room.ones, out,
                     p.grad_q.token);
    }
  }

 private:
  void load_block(int u) {
    const QueryBlock& block = blocks[u];
    const int n = block.end - block.first;
    const float* rows = grad_out + block.first * p.grad_out.token;
    pack_columns(q + block.first * p.q.token, p.q.token, n, (int)p.width, W, p.scale, room.queries + u * p.width * W);
    pack_columns(rows, p.grad_out.token, n, (int)p.value_width, W, p.scale, room.grad_outs + u * p.value_width * W);
    std::fill_n(room.grad_queries + u * p.width * W, p.width * W, 0.f);
    const int64_t query = (row * p.heads + head) * p.queries + block.first;
    const float* out = p.out.at + row * p.out.batch + head * p.out.head + block.first * p.out.token;
    for (int i = 0; i < W; i++) {
      Vector products{};
      if (i < n)
        for (int e = 0; e < p.value_width; e += LANES) {
          const int taken = std::min<int>(LANES, (int)p.value_width - e);
          products += load_first(rows + i * p.grad_out.token + e, taken) * load_first(out + i * p.out.token + e, taken);
        }
      room.mean_grad[u * W + i] = sum(products) * p.scale;
      room.peaks[u * W + i] = i < n ? p.peak[query + i] : 0.f;
      room.inverse_totals[u * W + i] = i < n ? p.inverse_total[query + i] : 0.f;
    }
  }

  void run_chunk(int tile_begin, int tile_end) {
    const int first = tile_begin * TILE_KEYS, n = std::min((int)p.keys, tile_end * TILE_KEYS) - first;
    const int64_t stride = room.stride;
    for (int u = 0; u < count; u++) {
      if (p.bias) pack_bias(p, row, head, blocks[u], first, n, W, stride, room.bias + u * W);
      for (int t = tile_begin; t < tile_end; t++)
        if (const Tile* found = tile(u, t)) find_grad_logits(u, t, *found, (int64_t)(t * TILE_KEYS - first) * stride);
      if (p.grad_bias) add_grad_bias(u, tile_begin, tile_end);
      if (p.level_factors)
        for (int t = tile_begin; t < tile_end; t++)
          if (const Tile* found = tile(u, t))
            multiply_level_factors<VECTORS>(Place{p, plan, blocks[u], t}, *found,
                                            room.grad_logits + (int64_t)(t * TILE_KEYS - first) * stride + u * W,
                                            stride);
    }
    for (int t = tile_begin; t < tile_end; t++) add_grad_keys(t, (int64_t)(t * TILE_KEYS - first) * stride);
    for (int u = 0; u < count; u++) {
      add_grad_queries(u, tile_begin, tile_end);
      for (int t = tile_begin; t < tile_end; t++)
        if (const Tile* found = tile(u, t))
          if (found->kind & SHARES_MORE) add_finer_levels(u, t, *found, (int64_t)(t * TILE_KEYS - first) * stride);
    }
  }

  // The weights of a tile, and the gradients of its logits times the scale.
  void find_grad_logits(int u, int t, const Tile& tile, int64_t offset) {
    const Place at{p, plan, blocks[u], t};
    const int64_t stride = room.stride;
    float *s = room.weights + offset + u * W, *ds = room.grad_logits + offset + u * W;
    Vector peak[VECTORS]{};
    score_tile<VECTORS>(at, tile, k + at.key() * p.k.token, p.k.token, room.queries + u * p.width * W, W,
                        p.bias ? room.bias + offset + u * W : nullptr, s, stride, peak);
    const float* values = v + at.key() * p.v.token;
    const float* grad_outs = room.grad_outs + u * p.value_width * W;
    const Dropout dropout(p, row * p.heads + head);
    const auto go = [&](auto rows, int j0) {
      constexpr int ROWS = decltype(rows)::value;
      Vector sums[ROWS][VECTORS]{};
      add_dots<ROWS, VECTORS>(values + j0 * p.v.token, p.v.token, grad_outs, W, 0, (int)p.value_width, sums);
      UNROLL for (int vec = 0; vec < VECTORS; vec++) {
        const Vector top = load(room.peaks + u * W + LANES * vec), mean = load(room.mean_grad + u * W + LANES * vec);
        const Vector inverse = load(room.inverse_totals + u * W + LANES * vec);
        UNROLL for (int j = 0; j < ROWS; j++) {
          const int64_t place = (j0 + j) * stride + LANES * vec;
          Vector weight = exp2_of((load(s + place) - top) * LOG2_E) * inverse;
          if (p.dropout > 0) {
            const Vector kept = dropout.factors(blocks[u].first + LANES * vec, at.key() + j0 + j);
            store(ds + place, weight * (kept * sums[j][vec] - mean));
            store(s + place, weight * kept);
          } else {
            store(ds + place, weight * (sums[j][vec] - mean));
            store(s + place, weight);
          }
        }
      }
    };
    if (at.count() == TILE_KEYS) return go(std::integral_constant<int, TILE_KEYS>{}, 0);
    for (int j = 0; j < at.count(); j++) go(std::integral_constant<int, 1>{}, j);
  }

  // Queries of several blocks whose rows follow each other are taken at once.
  void add_grad_keys(int t, int64_t offset) {
    const int key = t * TILE_KEYS, n = std::min((int)p.keys - key, TILE_KEYS);
    const auto for_runs = [&](auto alike, auto f) {
      for (int u = 0; u < count;) {
        const Tile* found = tile(u, t);
        int end = u + 1;
        if (found) {
          for (; end < count; end++) {
            const Tile* next = tile(end, t);
            const bool follows = blocks[end - 1].end == blocks[end].first && blocks[end].first == blocks[u].first + (end - u) * W;
            if (!next || !follows || !alike(*found, *next)) break;
          }
          f(u, blocks[end - 1].end - blocks[u].first, *found);
        }
        u = end;
      }
    };
    for_runs([](const Tile&, const Tile&) { return true; },
             [&](int u, int queries, const Tile&) {
               add_outer(n, room.weights + offset + u * W, room.stride, grad_out + blocks[u].first * p.grad_out.token,
                         p.grad_out.token, queries, (int)p.value_width, grad_v + key * p.grad_v.token, p.grad_v.token);
             });
    for_runs([](const Tile& a, const Tile& b) { return a.prefix == b.prefix; },
             [&](int u, int queries, const Tile& found) {
               if (found.prefix)
                 add_outer(n, room.grad_logits + offset + u * W, room.stride, q + blocks[u].first * p.q.token,
                           p.q.token, queries, found.prefix, grad_k + key * p.grad_k.token, p.grad_k.token);
             });
  }

  // Level by level, over the runs of tiles that share it.
  void add_grad_queries(int u, int tile_begin, int tile_end) {
    int begin = 0;
    for (int l = 0; l < (int)p.levels; begin += p.ranks[l++]) {
      for (int t = tile_begin; t < tile_end;) {
        int end = t;
        for (const Tile* found; end < tile_end && (found = tile(u, end)) && found->levels > l;) end++;
        if (end > t) {
          const int key = t * TILE_KEYS, n = std::min((int)p.keys, end * TILE_KEYS) - key;
          mix<VECTORS, false>(p.ranks[l], k + key * p.k.token + begin, p.k.token,
                              room.grad_logits + (int64_t)(key - tile_begin * TILE_KEYS) * room.stride + u * W,
                              room.stride, n, nullptr, room.grad_queries + u * p.width * W + (int64_t)begin * W, W);
        }
        t = std::max(end, t + 1);
      }
    }
  }

  void add_finer_levels(int u, int t, const Tile& found, int64_t offset) {
    const Place at{p, plan, blocks[u], t};
    int begin[256];
    begin[0] = 0;
    for (int l = 0; l < (int)p.levels; l++) begin[l + 1] = begin[l] + p.ranks[l];
    for_finer_levels<VECTORS>(at, found, [&](int l, int vec, auto shares) {
      const int n = at.count(), width = begin[l + 1] - begin[l];
      const float* ds = room.grad_logits + offset + u * W + LANES * vec;
      for (int j = 0; j < n; j++)
        store(room.part + j * LANES, shares(j) ? load(ds + j * room.stride) : Vector{});
      const int query = blocks[u].first + vec * LANES, queries = std::min(LANES, blocks[u].end - query);
      if (queries <= 0) return;
      mix_part(width, k + at.key() * p.k.token + begin[l], n,
               room.grad_queries + u * p.width * W + (int64_t)begin[l] * W + LANES * vec);
      add_outer(n, room.part, LANES, q + query * p.q.token + begin[l], p.q.token, queries, width,
                grad_k + at.key() * p.grad_k.token + begin[l], p.grad_k.token);
    });
  }

  void mix_part(int width, const float* keys, int n, float* out) {
    mix<1, false>(width, keys, p.k.token, room.part, LANES, n, nullptr, out, W);
  }

  void add_grad_bias(int u, int tile_begin, int tile_end) {
    const QueryBlock& block = blocks[u];
    float* out = p.grad_bias + row * p.grad_bias_batch + head * p.queries * p.keys;
    const float factor = 1 / p.scale;
    for (int t = tile_begin; t < tile_end; t++) {
      if (!tile(u, t)) continue;
      const int key = t * TILE_KEYS, n = std::min((int)p.keys - key, TILE_KEYS);
      const float* ds = room.grad_logits + (int64_t)(key - tile_begin * TILE_KEYS) * room.stride + u * W;
      for (int i = 0; i < block.end - block.first; i++)
        for (int j = 0; j < n; j++)
          out[(int64_t)(block.first + i) * p.keys + key + j] += factor * ds[j * room.stride + i];
    }
  }
};

template <int VECTORS>
void backward(const TsattnProblem& p) {
  constexpr int W = VECTORS * LANES;
  const std::vector<Plan> plans = make_plans(p, W);
  // rows that add to one gradient of the bias are one piece of work, so that its sum has one order
  const bool rows_together = p.grad_bias && !p.grad_bias_batch;
  const int64_t rows = rows_together ? p.batch : 1, group = p.heads / p.key_heads;
  const auto work = [&](int64_t number, BackwardRoom& room) {
    const int64_t part = number % p.key_parts, key_head = number / p.key_parts % p.key_heads;
    const int64_t first_row = number / p.key_parts / p.key_heads;
    for (int64_t row = first_row; row < first_row + rows; row++) {
      const Plan& plan = plans[p.layout_of_row[row]];
      const int tile_begin = (int)(plan.num_tiles * part / p.key_parts);
      const int tile_end = (int)(plan.num_tiles * (part + 1) / p.key_parts);
      const int key = tile_begin * TILE_KEYS, stop = std::min((int)p.keys, tile_end * TILE_KEYS);
      for (int j = key; j < stop; j++) {
        std::fill_n(p.grad_k.at + row * p.grad_k.batch + key_head * p.grad_k.head + j * p.grad_k.token, p.width, 0.f);
        std::fill_n(p.grad_v.at + row * p.grad_v.batch + key_head * p.grad_v.head + j * p.grad_v.token, p.value_width, 0.f);
      }
      for (int64_t head = key_head * group; head < (key_head + 1) * group; head++)
        for (int64_t begin = 0; begin < (int64_t)plan.blocks.size(); begin += p.shared_blocks) {
          const int count = (int)std::min<int64_t>(p.shared_blocks, (int64_t)plan.blocks.size() - begin);
          BackwardBlocks<VECTORS>(p, plan, row, head, begin, count, room).run(tile_begin, tile_end, part);
        }
    }
  };
  share_out(p, (rows_together ? 1 : p.batch) * p.key_heads * p.key_parts,
            [&] { return std::make_unique<BackwardRoom>(p, W); }, work);
}

}  // namespace tsattn
