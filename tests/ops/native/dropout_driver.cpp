// Runs dropout at odd sizes and compares it with one number after the other; the tests compile this with sanitizers,
// and for other machines. Every array is an allocation of its own, no larger than it must be.
#include "dropout.cpp"

#include <cstdio>

namespace {

// Word 0 to 3 of a counter, as section 3.3 of the source has them.
uint32_t word_of(uint64_t seed, uint64_t counter, int word) {
  uint32_t x[4] = {(uint32_t)counter, (uint32_t)(counter >> 32), 0, 0};
  uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
  for (int round = 0; round < 10; round++) {
    const uint64_t a = (uint64_t)0xD2511F53u * x[0], b = (uint64_t)0xCD9E8D57u * x[2];
    const uint32_t next[4] = {(uint32_t)(b >> 32) ^ x[1] ^ key[0], (uint32_t)b, (uint32_t)(a >> 32) ^ x[3] ^ key[1],
                              (uint32_t)a};
    std::memcpy(x, next, sizeof x);
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return x[word];
}

bool is_kept(uint64_t seed, int64_t i, uint32_t threshold) {
  const int64_t within = i % 32;
  return word_of(seed, (uint64_t)(i / 32 * 8 + within % 16 / 2), (int)(within / 16 * 2 + within % 2)) >= threshold;
}

float as_float(float x) { return x; }
float as_float(uint16_t x) {
  const uint32_t bits = (uint32_t)x << 16;
  float out;
  std::memcpy(&out, &bits, 4);
  return out;
}
void assign(float& out, float x) { out = x; }
void assign(uint16_t& out, float x) {  // of numbers that bfloat16 holds
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  out = (uint16_t)(bits >> 16);
}

template <class In, class Out>
bool is_right(int64_t count, int64_t threads, bool with_residual, uint64_t seed) {
  std::vector<In> x((size_t)count);
  std::vector<Out> residual(with_residual ? (size_t)count : 0), out((size_t)count);
  for (int64_t i = 0; i < count; i++) {
    assign(x[i], (float)(i % 61 - 30));
    if (with_residual) assign(residual[i], (float)(i % 7));
  }
  TsattnDropout p{};
  p.x = x.data(), p.residual = with_residual ? residual.data() : nullptr, p.out = out.data(), p.count = count;
  p.x_bfloat16 = sizeof(In) == 2, p.out_bfloat16 = sizeof(Out) == 2;
  p.threshold = 0x60000000u, p.factor = 2, p.seed = seed, p.threads = threads;
  if (tsattn_dropout(&p)) return false;
  for (int64_t i = 0; i < count; i++) {
    const float dropped = is_kept(seed, i, p.threshold) ? 2 * as_float(x[i]) : 0;
    if (as_float(out[i]) != dropped + (with_residual ? as_float(residual[i]) : 0)) return false;
  }
  return true;
}

}  // namespace

int main() {
  int cases = 0, failed = 0;
  for (int64_t count : {0, 1, 2, 15, 31, 32, 33, 64, 100, 32767, 32768, 32769, 98309})
    for (int64_t threads : {1, 3})
      for (bool with_residual : {false, true}) {
        const uint64_t seed = 0x9E3779B97F4A7C15u * (uint64_t)(cases + 1);
        for (bool right : {is_right<float, float>(count, threads, with_residual, seed),
                           is_right<float, uint16_t>(count, threads, with_residual, seed),
                           is_right<uint16_t, float>(count, threads, with_residual, seed),
                           is_right<uint16_t, uint16_t>(count, threads, with_residual, seed)}) {
          cases++;
          if (!right) failed++, std::printf("wrong: %lld numbers, %lld threads\n", (long long)count, (long long)threads);
        }
      }
  std::printf("%d lanes, %d cases, %d failed\n", tsattn::LANES, cases, failed);
  return failed != 0;
}
