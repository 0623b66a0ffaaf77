// Dropout: the plain C interface.
#include "dropout.h"

// 0; 1 where threads did not suffice.
extern "C" int tsattn_dropout(const TsattnDropout* p) {
  try {
    using tsattn::drop_numbers;
    if (p->x_bfloat16) p->out_bfloat16 ? drop_numbers<uint16_t, uint16_t>(*p) : drop_numbers<uint16_t, float>(*p);
    else p->out_bfloat16 ? drop_numbers<float, uint16_t>(*p) : drop_numbers<float, float>(*p);
    return 0;
  } catch (...) {
    return 1;
  }
}
