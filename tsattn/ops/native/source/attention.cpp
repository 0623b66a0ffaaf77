// Exact attention with prefixes of components, in float32: the plain C interface.
#include "backward.h"

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

}  // namespace

extern "C" {

// 0, or 1 where the memory did not suffice.
int tsattn_forward(const TsattnProblem* p) {
  return guarded([&] { p->queries <= tsattn::LANES ? tsattn::forward<1>(*p) : tsattn::forward<2>(*p); });
}

int tsattn_backward(const TsattnProblem* p) {
  return guarded([&] { p->queries <= tsattn::LANES ? tsattn::backward<1>(*p) : tsattn::backward<2>(*p); });
}

int tsattn_lanes() { return tsattn::LANES; }

int tsattn_tile_keys() { return tsattn::TILE_KEYS; }

}  // extern "C"
