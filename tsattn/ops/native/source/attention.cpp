// Exact attention with prefixes of components: the plain C interface.
#include "backward.h"
#include "work.h"

// Whether it computes in bfloat16.
extern "C" int tsattn_takes_bfloat16() {
#if defined(TSATTN_BFLOAT16)
  return 1;
#else
  return 0;
#endif
}

namespace {

enum { DONE = 0, NO_MEMORY = 1, NOT_TAKEN = 2 };

// What the passes take for granted.
bool is_taken(const TsattnProblem& p) {
  int64_t width = 0;
  bool even = p.width % 2 == 0 && p.value_width % 2 == 0;
  for (int64_t l = 0; l < p.levels; l++) width += p.ranks[l], even = even && p.ranks[l] % 2 == 0;
  return p.levels >= 1 && p.levels <= 255 && width == p.width && width <= UINT16_MAX &&
         p.chunk_keys >= tsattn::TILE_KEYS && p.shared_blocks >= 1 && p.key_heads >= 1 && p.heads % p.key_heads == 0 &&
         (!p.bfloat16 || (even && tsattn_takes_bfloat16()));
}

template <class F>
int guarded(const TsattnProblem& p, F f) {
  if (!is_taken(p)) return NOT_TAKEN;
  try {
    f();
    return DONE;
  } catch (...) {  // no memory, or no thread
    return NO_MEMORY;
  }
}

// Whether the queries fit into one vector; two of them share what is read of keys and values.
bool is_narrow(const TsattnProblem* p) { return p->queries <= tsattn::LANES; }

template <class F>
void in_precision(const TsattnProblem& p, F f) {
#if defined(TSATTN_BFLOAT16)
  if (p.bfloat16) return f(tsattn::BFloat16{});
#endif
  (void)p;
  f(tsattn::Float32{});
}

}  // namespace

extern "C" {

// 0; 1 where memory or threads did not suffice; 2 for a problem that it does not take.
int tsattn_forward(const TsattnProblem* p) {
  return guarded(*p, [&] {
    in_precision(*p, [&](auto precision) {
      using P = decltype(precision);
      is_narrow(p) ? tsattn::forward<P, 1>(*p) : tsattn::forward<P, 2>(*p);
    });
  });
}

int tsattn_backward(const TsattnProblem* p) {
  return guarded(*p, [&] {
    in_precision(*p, [&](auto precision) {
      using P = decltype(precision);
      is_narrow(p) ? tsattn::backward<P, 1>(*p) : tsattn::backward<P, 2>(*p);
    });
  });
}

// Floating-point operations of the products of the one (0) or the other (1); of the problem, sizes and intervals count.
double tsattn_work(const TsattnProblem* p, int backward) {
  return tsattn::count_work(*p, is_narrow(p) ? 1 : 2, backward != 0);
}

int tsattn_lanes() { return tsattn::LANES; }

int tsattn_tile_keys() { return tsattn::TILE_KEYS; }

}  // extern "C"
