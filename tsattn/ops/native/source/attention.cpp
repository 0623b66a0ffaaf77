// Exact attention with prefixes of components, in float32: the plain C interface.
#include "backward.h"
#include "work.h"

namespace {

template <class F>
int guarded(F f) {
  try {
    f();
    return 0;
  } catch (const std::bad_alloc&) {
    return 1;
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

// 0, or 1 where the memory did not suffice.
int tsattn_forward(const TsattnProblem* p) {
  return guarded([&] {
    in_precision(*p, [&](auto precision) {
      using P = decltype(precision);
      is_narrow(p) ? tsattn::forward<P, 1>(*p) : tsattn::forward<P, 2>(*p);
    });
  });
}

int tsattn_backward(const TsattnProblem* p) {
  return guarded([&] {
    in_precision(*p, [&](auto precision) {
      using P = decltype(precision);
      is_narrow(p) ? tsattn::backward<P, 1>(*p) : tsattn::backward<P, 2>(*p);
    });
  });
}

// Whether it computes in bfloat16.
int tsattn_takes_bfloat16() {
#if defined(TSATTN_BFLOAT16)
  return 1;
#else
  return 0;
#endif
}

// Floating-point operations of the products of the one (0) or the other (1); of the problem, sizes and intervals count.
double tsattn_work(const TsattnProblem* p, int backward) {
  return tsattn::count_work(*p, is_narrow(p) ? 1 : 2, backward != 0);
}

int tsattn_lanes() { return tsattn::LANES; }

int tsattn_tile_keys() { return tsattn::TILE_KEYS; }

}  // extern "C"
