// Gradients of queries, keys, values and the bias. The weights are computed anew from what the forward pass kept.
#pragma once

#include "forward.h"

namespace tsattn {

struct BackwardRoom {
  Scratch all;
  // of all queries of the blocks that share a chunk: a column of `stride` queries for each component or key
  float *queries, *grad_outs, *grad_queries, *weights, *grad_logits, *bias, *mean_grad, *peaks, *inverse_totals;
  float *part, *ones;
  // in bfloat16: words of two tokens each, of queries, gradients of outputs, keys and gradients of logits, and the
  // rounded weights and gradients of logits, a row for each key
  float *query_pairs, *grad_out_pairs, *key_pairs, *grad_logit_pairs, *rounded_weights, *rounded_grad_logits;
  int64_t stride;
  BackwardRoom(const TsattnProblem& p, int width)
      : all(p.shared_blocks * width * (2 * p.width + p.value_width + 3 * p.chunk_keys + 3) + 3 * TILE_KEYS * LANES +
            width + 512 +
            p.bfloat16 * (p.shared_blocks * width * (p.width + p.value_width + 3 * (p.chunk_keys + 2)) +
                          (p.chunk_keys + 2) * p.width)),
        stride(p.shared_blocks * width) {
    queries = all.take(stride * p.width);
    grad_outs = all.take(stride * p.value_width);
    grad_queries = all.take(stride * p.width);
    weights = all.take(stride * p.chunk_keys);
    grad_logits = all.take(stride * p.chunk_keys);
    bias = p.bias ? all.take(stride * p.chunk_keys) : nullptr;
    mean_grad = all.take(stride), peaks = all.take(stride), inverse_totals = all.take(stride);
    part = all.take(3 * TILE_KEYS * LANES);
    ones = all.take(width);
    query_pairs = all.take(p.bfloat16 * stride / 2 * p.width);
    grad_out_pairs = all.take(p.bfloat16 * stride / 2 * p.value_width);
    key_pairs = all.take(p.bfloat16 * (p.chunk_keys / 2 + 1) * p.width);
    grad_logit_pairs = all.take(p.bfloat16 * stride * (p.chunk_keys / 2 + 1));
    rounded_weights = all.take(p.bfloat16 * stride / 2 * p.chunk_keys);
    rounded_grad_logits = all.take(p.bfloat16 * stride / 2 * p.chunk_keys);
    std::fill_n(ones, width, 1.f);
  }
};

// One row of the batch, one head, some blocks of queries that share chunks of keys, and one part of the keys.
template <class P, int VECTORS>
struct BackwardBlocks {
  static constexpr int W = VECTORS * LANES, PACKED = P::PACKED;
  const TsattnProblem& p;
  const Plan& plan;
  int64_t row, head, key_head;
  const QueryBlock* blocks;
  int count;
  BackwardRoom& room;
  const float *k, *v;  // words
  float *grad_k, *grad_v;

  BackwardBlocks(const TsattnProblem& p, const Plan& plan, int64_t row, int64_t head, int64_t begin, int count,
                 BackwardRoom& room)
      : p(p), plan(plan), row(row), head(head), key_head(head / (p.heads / p.key_heads)),
        blocks(plan.blocks.data() + begin), count(count), room(room) {
    const auto at = [&](const TsattnTensor& t) { return t.at + row * t.batch + key_head * t.head; };
    k = of_keys<P>(p, p.k, row, head), v = of_keys<P>(p, p.v, row, head);
    grad_k = at(p.grad_k), grad_v = at(p.grad_v);
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
    const float *q = of_queries<P>(p.q, row, head, block), *rows = of_queries<P>(p.grad_out, row, head, block);
    constexpr bool SCALES = PACKED == 1;
    pack_columns<SCALES>(q, p.q.token / PACKED, n, (int)p.width / PACKED, W, p.scale, room.queries + u * p.width * W);
    pack_columns<SCALES>(rows, p.grad_out.token / PACKED, n, (int)p.value_width / PACKED, W, p.scale,
                         room.grad_outs + u * p.value_width * W);
#if defined(TSATTN_BFLOAT16)
    if constexpr (PACKED == 2) {
      pair_rows((const uint16_t*)q, p.q.token, n, (int)p.width, room.query_pairs + u * W / 2 * p.width, p.width);
      pair_rows((const uint16_t*)rows, p.grad_out.token, n, (int)p.value_width,
                room.grad_out_pairs + u * W / 2 * p.value_width, p.value_width);
    }
#endif
    std::fill_n(room.grad_queries + u * p.width * W, p.width * W, 0.f);
    const int64_t query = (row * p.heads + head) * p.queries + block.first;
    const float* out = p.out.at + row * p.out.batch + head * p.out.head + block.first * p.out.token;
    for (int i = 0; i < W; i++) {
      Vector products{};
      if (i < n)
        for (int e = 0; e < p.value_width; e += LANES) {
          const int taken = std::min<int>(LANES, (int)p.value_width - e);
          products += numbers(rows, i * p.grad_out.token + e, taken) * load_first(out + i * p.out.token + e, taken);
        }
      room.mean_grad[u * W + i] = sum(products) * (PACKED == 1 ? p.scale : 1);
      room.peaks[u * W + i] = i < n ? p.peak[query + i] : 0.f;
      room.inverse_totals[u * W + i] = i < n ? p.inverse_total[query + i] : 0.f;
    }
  }

  // The first n numbers at a place among words.
  static INLINE Vector numbers(const float* words, int64_t place, int n) {
#if defined(TSATTN_BFLOAT16)
    if constexpr (PACKED == 2)
      return (Vector)(__builtin_convertvector(load_halves((const uint16_t*)words + place, n), Bits) << 16);
#endif
    return load_first(words + place, n);
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
#if defined(TSATTN_BFLOAT16)
      if constexpr (PACKED == 2)
        for (int t = tile_begin; t < tile_end; t++)
          if (tile(u, t)) round_tile(u, t, t * TILE_KEYS - first);
#endif
    }
#if defined(TSATTN_BFLOAT16)
    if constexpr (PACKED == 2)
      pair_rows((const uint16_t*)k + first * p.k.token, p.k.token, n, (int)p.width, room.key_pairs, p.width);
#endif
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
    const int64_t key_step = p.k.token / PACKED, value_step = p.v.token / PACKED;
    score_tile<P, VECTORS>(at, tile, k + at.key() * key_step, key_step, room.queries + u * p.width * W, W,
                           p.bias ? room.bias + offset + u * W : nullptr, s, stride, peak);
    const float* values = v + at.key() * value_step;
    const float scale = PACKED == 1 ? 1 : p.scale;  // else it is in the gradients of the outputs
    const float* grad_outs = room.grad_outs + u * p.value_width * W;
    const Dropout dropout(p, row * p.heads + head);
    const auto go = [&](auto rows, int j0) {
      constexpr int ROWS = decltype(rows)::value;
      Vector sums[ROWS][VECTORS]{};
      add_dots<P, ROWS, VECTORS>(values + j0 * value_step, value_step, grad_outs, W, 0, (int)p.value_width / PACKED,
                                 sums);
      UNROLL for (int vec = 0; vec < VECTORS; vec++) {
        const Vector top = load(room.peaks + u * W + LANES * vec), mean = load(room.mean_grad + u * W + LANES * vec);
        const Vector inverse = load(room.inverse_totals + u * W + LANES * vec);
        UNROLL for (int j = 0; j < ROWS; j++) {
          const int64_t place = (j0 + j) * stride + LANES * vec;
          Vector weight = exp2_of((load(s + place) - top) * LOG2_E) * inverse;
          if (p.dropout > 0) {
            const Vector kept = dropout.factors(blocks[u].first + LANES * vec, at.key() + j0 + j);
            store(ds + place, scale * weight * (kept * sums[j][vec] - mean));
            store(s + place, weight * kept);
          } else {
            store(ds + place, (PACKED == 1 ? weight : scale * weight) * (sums[j][vec] - mean));
            store(s + place, weight);
          }
        }
      }
    };
    if (at.count() == TILE_KEYS) return go(std::integral_constant<int, TILE_KEYS>{}, 0);
    for (int j = 0; j < at.count(); j++) go(std::integral_constant<int, 1>{}, j);
  }

#if defined(TSATTN_BFLOAT16)
  // The weights and gradients of a tile as the products take them.
  void round_tile(int u, int t, int offset) {
    const int n = std::min((int)p.keys - t * TILE_KEYS, TILE_KEYS);
    auto *weights = (uint16_t*)room.rounded_weights, *grads = (uint16_t*)room.rounded_grad_logits;
    for (int j = offset; j < offset + n; j += 2)
      for (int v = 0; v < VECTORS; v++) {
        const int64_t place = j * room.stride + u * W + LANES * v;
        Halves pair[2]{};
        for (int i = 0; i < std::min(2, offset + n - j); i++) {
          const int64_t at = place + i * room.stride;
          pair[i] = rounded(load(room.grad_logits + at));
          *(LooseHalves*)(grads + at) = pair[i];
          *(LooseHalves*)(weights + at) = rounded(load(room.weights + at));
        }
        store(room.grad_logit_pairs + j / 2 * room.stride + u * W + LANES * v, paired(pair[0], pair[1]));
      }
  }
#endif

  // The operands of the products, in words, with the tokens that are summed over side by side.
  struct Operand {
    const float* at;
    int64_t step;
  };
  Operand weights(int64_t offset, int u) const {
    return {(PACKED == 1 ? room.weights : room.rounded_weights) + (offset + u * W) / PACKED, room.stride / PACKED};
  }
  Operand grad_logits(int64_t offset, int u) const {
    return {(PACKED == 1 ? room.grad_logits : room.rounded_grad_logits) + (offset + u * W) / PACKED,
            room.stride / PACKED};
  }
  Operand query_rows(int u, int i) const {
    if (PACKED == 2) return {room.query_pairs + (u * W + i) / 2 * p.width, p.width};
    return {of_queries<P>(p.q, row, head, blocks[u]) + i * p.q.token, p.q.token};
  }
  Operand grad_out_rows(int u) const {
    if (PACKED == 2) return {room.grad_out_pairs + u * W / 2 * p.value_width, p.value_width};
    return {of_queries<P>(p.grad_out, row, head, blocks[u]), p.grad_out.token};
  }
  // `offset` counts the keys of the chunk.
  Operand key_rows(int key, int offset) const {
    if (PACKED == 2) return {room.key_pairs + offset / 2 * p.width, p.width};
    return {k + key * p.k.token, p.k.token};
  }
  static int words(int n) { return (n + PACKED - 1) / PACKED; }

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
               const Operand a = weights(offset, u), b = grad_out_rows(u);
               add_outer<P>(n, a.at, a.step, b.at, b.step, words(queries), (int)p.value_width,
                            grad_v + key * p.grad_v.token, p.grad_v.token);
             });
    for_runs([](const Tile& a, const Tile& b) { return a.prefix == b.prefix; },
             [&](int u, int queries, const Tile& found) {
               const Operand a = grad_logits(offset, u), b = query_rows(u, 0);
               if (found.prefix)
                 add_outer<P>(n, a.at, a.step, b.at, b.step, words(queries), found.prefix,
                              grad_k + key * p.grad_k.token, p.grad_k.token);
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
          const int offset = key - tile_begin * TILE_KEYS;
          const Operand rows = key_rows(key, offset);
          const float* grads = PACKED == 1 ? room.grad_logits + offset * room.stride
                                           : room.grad_logit_pairs + offset / 2 * room.stride;
          mix<P, VECTORS, false>(p.ranks[l], rows.at + begin, rows.step, grads + u * W, room.stride, words(n), nullptr,
                                 room.grad_queries + u * p.width * W + (int64_t)begin * W, W);
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
      const int query = blocks[u].first + vec * LANES, queries = std::min(LANES, blocks[u].end - query);
      if (queries <= 0) return;
      for (int j = 0; j < n; j++)
        store(room.part + j * LANES, shares(j) ? load(ds + j * room.stride) : Vector{});
      const float *for_keys = room.part, *for_queries = room.part;
#if defined(TSATTN_BFLOAT16)
      if constexpr (PACKED == 2) {
        auto* halves = (uint16_t*)(room.part + TILE_KEYS * LANES);
        float* pairs = room.part + 2 * TILE_KEYS * LANES;
        for (int j = 0; j < n; j += 2) {
          Halves pair[2]{};
          for (int i = 0; i < std::min(2, n - j); i++) {
            pair[i] = rounded(load(room.part + (j + i) * LANES));
            *(LooseHalves*)(halves + (j + i) * LANES) = pair[i];
          }
          store(pairs + j / 2 * LANES, paired(pair[0], pair[1]));
        }
        for_keys = (const float*)halves, for_queries = pairs;
      }
#endif
      const Operand keys = key_rows(at.key(), (int)(offset / room.stride)), rows = query_rows(u, vec * LANES);
      mix<P, 1, false>(width, keys.at + begin[l], keys.step, for_queries, LANES, words(n), nullptr,
                       room.grad_queries + u * p.width * W + (int64_t)begin[l] * W + LANES * vec, W);
      add_outer<P>(n, for_keys, LANES / PACKED, rows.at + begin[l], rows.step, words(queries), width,
                   grad_k + at.key() * p.grad_k.token + begin[l], p.grad_k.token);
    });
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

template <class P, int VECTORS>
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
          BackwardBlocks<P, VECTORS>(p, plan, row, head, begin, count, room).run(tile_begin, tile_end, part);
        }
    }
  };
  share_out(p, (rows_together ? 1 : p.batch) * p.key_heads * p.key_parts,
            [&] { return std::make_unique<BackwardRoom>(p, W); }, work);
}

}  // namespace tsattn
