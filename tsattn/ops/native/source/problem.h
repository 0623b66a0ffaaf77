// What is to be computed, as plain C: tsattn/ops/native/kernel_problem.py has the same fields in the same order.
#pragma once

#include <stdint.h>

// Strides are in numbers, by row of the batch, head and token; components lie side by side.
typedef struct {
  float* at;
  int64_t batch, head, token;
} TsattnTensor;

typedef struct {
  int64_t batch, heads, key_heads, queries, keys, width, value_width, levels;
  float scale;
  int64_t bfloat16;  // 1: q, k, v and grad_out are in bfloat16, in even numbers of components and even strides; else 0

  TsattnTensor q, k, v;
  TsattnTensor out;           // (batch, heads, queries, value_width)
  float* peak;                // (batch, heads, queries): the largest logit, 0 where a query sees no key
  float* inverse_total;       // (batch, heads, queries): 1 / sum of exp(logit - peak), 0 where a query sees no key

  // levels: at most 255, each of which refines the one before; components: at most 65535
  const int32_t* ranks;       // (levels): components of each level, coarse to fine
  const float* level_factors; // (levels + 1): the logits of pairs that share 0, 1, ... levels are multiplied by it; or null

  // Rows that are cut alike have one number of a layout. The last queries of a layout may be global: they share every
  // level. An interval is of the queries that a key shares something with: first, and one after the last.
  int64_t layouts;
  const int32_t* layout_of_row;   // (batch)
  const int32_t* global_queries;  // (layouts)
  const int32_t* block_first;    // (layouts, levels, keys): queries in the block of a key
  const int32_t* block_end;
  const int32_t* seen_first;     // (layouts, 2, keys): queries that see a key, of those of blocks and of the global ones
  const int32_t* seen_end;

  const float* bias;  // added to the logits, or null
  int64_t bias_batch, bias_head, bias_query, bias_key;

  float dropout;  // probability
  uint64_t seed;

  int64_t chunk_keys;      // keys whose scores are held at once: at least tsattn_tile_keys()
  int64_t shared_blocks;   // blocks of queries that use a chunk of keys while it is in the cache

  TsattnTensor grad_out, grad_q, grad_k, grad_v;
  float* grad_bias;  // (batch or 1, heads, queries, keys), or null
  int64_t grad_bias_batch;
  int64_t key_parts;  // the backward pass cuts the keys into so many parts, each with gradients of the queries of its own:
                      // grad_q is (key_parts, batch, heads, queries, width)
  int64_t grad_q_part;

  int64_t threads;
  // GOMP_parallel of the OpenMP that the caller uses, or null: then threads are started
  void (*parallel)(void (*)(void*), void*, unsigned, unsigned);
} TsattnProblem;

// out = residual + x times 0 or `factor`, number by number; all of them lie end to end.
typedef struct {
  const void* x;         // float, or bfloat16 where `x_bfloat16` is 1
  const void* residual;  // of the type of out; or null for zeros
  void* out;             // float, or bfloat16 where `out_bfloat16` is 1
  int64_t count;
  int64_t x_bfloat16, out_bfloat16;
  uint32_t threshold;    // numbers whose 32 random bits are below it are dropped
  float factor;          // of the others
  uint64_t seed;
  int64_t threads;
  void (*parallel)(void (*)(void*), void*, unsigned, unsigned);  // as above
} TsattnDropout;
