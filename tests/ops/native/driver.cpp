// Runs the kernels at odd sizes and compares them with plain loops in double precision; the tests compile this with
// sanitizers, and for other machines. Every tensor is an allocation of its own, no larger than it must be.
#include "attention.cpp"

#include <cstdio>
#include <string>

namespace {

struct Random {
  uint64_t state;
  uint32_t next() {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33);
  }
  int below(int n) { return (int)(next() % (uint32_t)n); }
  template <class T, size_t N>
  T one_of(const T (&choices)[N]) { return choices[below((int)N)]; }
  float number() { return (float)next() / 1073741824.f - 1; }  // in [-1, 1)
};

struct Case {
  int queries, keys, width, value_width, levels, batch, heads, key_heads, layouts, globals, bias, key_parts, threads;
  int chunk_keys, shared_blocks;
  bool causal, factors, dropout, tokens_first, gap, bfloat16;
  std::string text() const {
    char out[400];
    std::snprintf(out, sizeof out,
                  "queries %d keys %d width %d value_width %d levels %d batch %d heads %d key_heads %d layouts %d "
                  "globals %d bias %d key_parts %d threads %d chunk_keys %d shared_blocks %d causal %d factors %d "
                  "dropout %d tokens_first %d gap %d bfloat16 %d",
                  queries, keys, width, value_width, levels, batch, heads, key_heads, layouts, globals, bias, key_parts,
                  threads, chunk_keys, shared_blocks, causal, factors, dropout, tokens_first, gap, bfloat16);
    return out;
  }
};

// (batch, heads, tokens, width), laid out as said or as (batch, tokens, heads, width)
struct Held {
  std::vector<float> numbers;
  std::vector<uint16_t> halves;  // the numbers in bfloat16, where that is asked for
  TsattnTensor tensor;
  int heads, tokens, width;
  Held(int batch, int heads, int tokens, int width, bool tokens_first, float value)
      : numbers((size_t)batch * heads * tokens * width, value), heads(heads), tokens(tokens), width(width) {
    tensor.at = numbers.data();
    tensor.batch = (int64_t)heads * tokens * width;
    tensor.head = tokens_first ? width : (int64_t)tokens * width;
    tensor.token = tokens_first ? (int64_t)heads * width : width;
  }
  float& at(int b, int h, int t, int c) { return numbers[b * tensor.batch + h * tensor.head + t * tensor.token + c]; }
  void fill(Random& random, bool bfloat16) {
    for (float& x : numbers) x = random.number();
    if (!bfloat16) return;
    for (float& x : numbers) {
      uint32_t bits;
      std::memcpy(&bits, &x, 4);
      bits &= 0xFFFF0000u;
      std::memcpy(&x, &bits, 4);
      halves.push_back((uint16_t)(bits >> 16));
    }
    halves.shrink_to_fit();
    tensor.at = (float*)halves.data();
  }
};

bool differ(const Case& c, float found, double wanted) {
  // weights and their slopes are rounded to 8 bits in bfloat16
  return !(std::fabs(found - wanted) <= (c.bfloat16 ? 5e-2 : 1e-4) * (1 + std::fabs(wanted)));  // also what is not a number
}

int wrong(const Case& c, const char* what, float found, double wanted) {
  std::printf("%s is %g, not %g: %s\n", what, found, wanted, c.text().c_str());
  return 1;
}

int run(const Case& c, Random random) {
  const int B = c.batch, H = c.heads, G = c.key_heads, N = c.queries, S = c.keys, R = c.width, E = c.value_width;
  const int L = c.levels;
  const float NONE = std::numeric_limits<float>::quiet_NaN();  // what is read without being written is seen
  Held q(B, H, N, R, c.tokens_first, 0), k(B, G, S, R, c.tokens_first, 0), v(B, G, S, E, c.tokens_first, 0);
  Held out(B, H, N, E, c.tokens_first, NONE), grad_out(B, H, N, E, c.tokens_first, 0);
  Held grad_k(B, G, S, R, c.tokens_first, NONE), grad_v(B, G, S, E, c.tokens_first, NONE);
  Held grad_q(c.key_parts * B, H, N, R, c.tokens_first, c.key_parts > 1 ? 0 : NONE);
  for (Held* held : {&q, &k, &v, &grad_out}) held->fill(random, c.bfloat16);
  std::vector<float> peak((size_t)B * H * N, NONE), inverse_total((size_t)B * H * N, NONE);

  std::vector<int32_t> ranks(L, c.bfloat16 ? 2 : 1), layout_of_row(B), global_queries(c.layouts);
  for (int step = ranks[0], left = R - step * L; left > 0; left -= step) ranks[random.below(L)] += step;
  for (int b = 0; b < B; b++) layout_of_row[b] = b % c.layouts;
  std::vector<int32_t> block_first((size_t)c.layouts * L * S), block_end(block_first), seen_first((size_t)c.layouts * 2 * S),
      seen_end(seen_first);
  for (int layout = 0; layout < c.layouts; layout++) {
    global_queries[layout] = layout ? c.globals / 2 : c.globals;
    const int ordinary = N - global_queries[layout];
    for (int l = 0; l < L; l++) {
      // the first level is shared by all pairs, of a second layout by those of halves; blocks of finer ones are nested
      const int size = std::max(1, (layout || L == 1 ? (N + 1) / 2 : N) >> (2 * l));
      for (int j = 0; j < S; j++) {
        const int64_t place = ((int64_t)layout * L + l) * S + j;
        const int first = (int)((int64_t)j * N / S) / size * size;
        block_first[place] = std::min(ordinary, first), block_end[place] = std::min(ordinary, first + size);
        if (!l) continue;
        block_first[place] = std::max(block_first[place], block_first[place - S]);
        block_end[place] = std::min(block_end[place], block_end[place - S]);
      }
    }
    for (int j = 0; j < S; j++) {
      const int64_t place = (int64_t)layout * 2 * S + j;
      const int position = std::max(0, j - std::max(0, S - N));  // the last query stands where the last key stands
      seen_first[place] = c.causal ? std::min(ordinary, position) : 0;
      seen_end[place] = c.gap ? std::min(ordinary, position + 3) : ordinary;
      if (c.gap && seen_first[place] < 2) seen_first[place] = std::min(2, seen_end[place]);  // the first see no key
      seen_first[place + S] = c.causal ? std::min(N, ordinary + j % 2) : ordinary;
      seen_end[place + S] = N;
    }
  }
  std::vector<float> factors(L + 1);
  for (int l = 0; l <= L; l++) factors[l] = l ? 1.f / l : 1.f;
  // 0: none, 1: of every pair, 2: the same for all rows and heads, 3: the same for all queries, laid out by columns
  std::vector<float> bias;
  int64_t bias_strides[4] = {0, 0, 0, 0};
  if (c.bias == 1) {
    bias.resize((size_t)B * H * N * S);
    bias_strides[0] = (int64_t)H * N * S, bias_strides[1] = (int64_t)N * S, bias_strides[2] = S, bias_strides[3] = 1;
  } else if (c.bias == 2) {
    bias.resize((size_t)N * S);
    bias_strides[2] = S, bias_strides[3] = 1;
  } else if (c.bias == 3) {
    bias.resize((size_t)S * H);
    bias_strides[1] = 1, bias_strides[3] = H;
  }
  for (float& x : bias) x = random.number();
  if (c.bias == 1) bias[0] = -std::numeric_limits<float>::infinity();
  const int bias_rows = c.bias == 1 ? B : 1;
  std::vector<float> grad_bias(c.bias ? (size_t)bias_rows * H * N * S : 0, 0.f);

  TsattnProblem p{};
  p.batch = B, p.heads = H, p.key_heads = G, p.queries = N, p.keys = S, p.width = R, p.value_width = E, p.levels = L;
  p.scale = 1 / std::sqrt((float)R), p.bfloat16 = c.bfloat16;
  p.q = q.tensor, p.k = k.tensor, p.v = v.tensor, p.out = out.tensor;
  p.peak = peak.data(), p.inverse_total = inverse_total.data();
  p.ranks = ranks.data(), p.level_factors = c.factors ? factors.data() : nullptr;
  p.layouts = c.layouts, p.global_queries = global_queries.data(), p.layout_of_row = layout_of_row.data();
  p.block_first = block_first.data(), p.block_end = block_end.data();
  p.seen_first = seen_first.data(), p.seen_end = seen_end.data();
  p.bias = c.bias ? bias.data() : nullptr;
  p.bias_batch = bias_strides[0], p.bias_head = bias_strides[1], p.bias_query = bias_strides[2];
  p.bias_key = bias_strides[3];
  p.dropout = c.dropout ? 0.25f : 0.f, p.seed = 11;
  p.chunk_keys = c.chunk_keys, p.shared_blocks = c.shared_blocks, p.threads = c.threads, p.parallel = nullptr;
  for (int backward : {0, 1})
    if (!(tsattn_work(&p, backward) >= 0)) return wrong(c, "the work", (float)tsattn_work(&p, backward), 0);
  if (tsattn_forward(&p)) return wrong(c, "the forward pass", 1, 0);
  p.grad_out = grad_out.tensor, p.grad_q = grad_q.tensor, p.grad_k = grad_k.tensor, p.grad_v = grad_v.tensor;
  p.grad_bias = c.bias ? grad_bias.data() : nullptr;
  p.grad_bias_batch = bias_rows > 1 ? (int64_t)H * N * S : 0;
  p.key_parts = c.key_parts, p.grad_q_part = (int64_t)B * H * N * R;
  if (tsattn_backward(&p)) return wrong(c, "the backward pass", 1, 0);

  std::vector<double> dq((size_t)B * H * N * R), dk((size_t)B * G * S * R), dv((size_t)B * G * S * E);
  std::vector<double> dbias(grad_bias.size());
  std::vector<double> weight(S), kept(S), into(S), factor(S);
  std::vector<int> shared((size_t)S * L);
  for (int b = 0; b < B; b++)
    for (int h = 0; h < H; h++)
      for (int i = 0; i < N; i++) {
        const int g = h / (H / G), layout = layout_of_row[b], section = i >= N - global_queries[layout];
        const tsattn::Dropout dropout(p, (int64_t)b * H + h);
        double largest = -INFINITY, total = 0;
        for (int j = 0; j < S; j++) {
          double dot = 0;
          int begin = 0, count = 0;
          for (int l = 0; l < L; begin += ranks[l++]) {
            const int64_t place = ((int64_t)layout * L + l) * S + j;
            shared[(size_t)j * L + l] = section || (block_first[place] <= i && i < block_end[place]);
            count += shared[(size_t)j * L + l];
            if (shared[(size_t)j * L + l])
              for (int d = begin; d < begin + ranks[l]; d++) dot += (double)q.at(b, h, i, d) * k.at(b, g, j, d);
          }
          factor[j] = p.scale * (c.factors ? factors[count] : 1.);
          const int64_t place = ((int64_t)layout * 2 + section) * S + j;
          weight[j] = factor[j] * dot;
          if (c.bias) weight[j] += bias[b * p.bias_batch + h * p.bias_head + i * p.bias_query + j * p.bias_key];
          if (!(seen_first[place] <= i && i < seen_end[place])) weight[j] = -INFINITY;
          kept[j] = c.dropout ? dropout.factors(i, j)[0] : 1;
          largest = std::max(largest, weight[j]);
        }
        for (int j = 0; j < S; j++) total += weight[j] = largest == -INFINITY ? 0 : std::exp(weight[j] - largest);
        const int64_t query = ((int64_t)b * H + h) * N + i;
        if (differ(c, peak[query], largest == -INFINITY ? 0 : largest)) return wrong(c, "a peak", peak[query], largest);
        const double inverse = total > 0 ? 1 / total : 0;
        if (differ(c, inverse_total[query], inverse)) return wrong(c, "a total", inverse_total[query], inverse);
        double mean = 0;
        for (int e = 0; e < E; e++) {
          double sum = 0;
          for (int j = 0; j < S; j++) sum += weight[j] * inverse * kept[j] * v.at(b, g, j, e);
          if (differ(c, out.at(b, h, i, e), sum)) return wrong(c, "an output", out.at(b, h, i, e), sum);
          mean += sum * grad_out.at(b, h, i, e);
        }
        for (int j = 0; j < S; j++) {
          const double share = weight[j] * inverse;
          double dot = 0;
          for (int e = 0; e < E; e++) {
            dot += (double)grad_out.at(b, h, i, e) * v.at(b, g, j, e);
            dv[(((size_t)b * G + g) * S + j) * E + e] += share * kept[j] * grad_out.at(b, h, i, e);
          }
          const double slope = share * (kept[j] * dot - mean);
          if (c.bias) dbias[((size_t)(bias_rows > 1 ? b : 0) * H + h) * N * S + (size_t)i * S + j] += slope;
          for (int l = 0, begin = 0; l < L; begin += ranks[l++])
            if (shared[(size_t)j * L + l])
              for (int d = begin; d < begin + ranks[l]; d++) {
                dq[(((size_t)b * H + h) * N + i) * R + d] += slope * factor[j] * k.at(b, g, j, d);
                dk[(((size_t)b * G + g) * S + j) * R + d] += slope * factor[j] * q.at(b, h, i, d);
              }
        }
      }
  const auto all = [&](const char* what, int heads, int tokens, int width, const std::vector<double>& wanted, auto found) {
    size_t place = 0;
    for (int b = 0; b < B; b++)
      for (int h = 0; h < heads; h++)
        for (int t = 0; t < tokens; t++)
          for (int d = 0; d < width; d++, place++)
            if (differ(c, found(b, h, t, d), wanted[place])) return wrong(c, what, found(b, h, t, d), wanted[place]);
    return 0;
  };
  const auto query_slope = [&](int b, int h, int t, int d) {
    float sum = 0;
    for (int part = 0; part < c.key_parts; part++) sum += grad_q.at(part * B + b, h, t, d);
    return sum;
  };
  for (size_t place = 0; place < dbias.size(); place++)
    if (differ(c, grad_bias[place], dbias[place])) return wrong(c, "a slope of the bias", grad_bias[place], dbias[place]);
  return all("a slope of the queries", H, N, R, dq, query_slope) ||
         all("a slope of the keys", G, S, R, dk, [&](int b, int h, int t, int d) { return grad_k.at(b, h, t, d); }) ||
         all("a slope of the values", G, S, E, dv, [&](int b, int h, int t, int d) { return grad_v.at(b, h, t, d); });
}

}  // namespace

int main() {
  Random random{1};
  int cases = 0, failed = 0;
  for (int queries : {1, 7, 33, 63})
    for (int width : {1, 5, 8, 64, 65})
      for (int value_width : {3, 64})
        for (int repeat = 0; repeat < 4; repeat++, cases++) {
          Case c{};
          c.queries = queries, c.width = width, c.value_width = value_width;
          c.bfloat16 = tsattn_takes_bfloat16() && repeat >= 2;
          if (c.bfloat16) c.width += width % 2, c.value_width += value_width % 2;  // two by two
          c.keys = random.one_of({queries, 1, 5, 29, 70});
          c.levels = std::min(c.width / (c.bfloat16 ? 2 : 1), random.one_of({1, 2, 3, 4}));
          c.batch = 1 + random.below(3), c.layouts = std::min(c.batch, 1 + random.below(2));
          c.key_heads = 1 + random.below(2), c.heads = c.key_heads * (1 + random.below(2));
          c.globals = random.below(2) ? random.below(std::min(queries, 4) + 1) : 0;
          c.bias = random.below(4), c.key_parts = 1 + repeat % 2, c.threads = 1 + random.below(2);
          c.chunk_keys = random.one_of({tsattn::TILE_KEYS, 20, 128}), c.shared_blocks = random.one_of({1, 2, 4});
          c.causal = random.below(2), c.factors = random.below(3) == 0, c.dropout = random.below(3) == 0;
          c.tokens_first = random.below(2), c.gap = random.below(4) == 0;
          failed += run(c, Random{(uint64_t)cases});
        }
  std::printf("%d lanes, %d cases, %d failed\n", tsattn_lanes(), cases, failed);
  return failed != 0;
}
