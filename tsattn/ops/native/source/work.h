// How much the passes compute.
#pragma once

#include "plan.h"

namespace tsattn {

// Floating-point operations of the matrix products of a forward or a backward pass, a multiply-add being 2.
//
// Those of idle lanes are counted: they are executed. Of the backward pass, the products whose vectors hold components
// are counted for the components that there are.
inline double count_work(const TsattnProblem& p, int vectors, bool backward) {
  const int width = vectors * LANES;
  std::vector<double> of_layout;
  for (int64_t layout = 0; layout < p.layouts; layout++) {
    double total = 0;
    Plan plan;
    cut_queries(p, layout, width, plan, [&](const QueryBlock& block) {
      const double queries = block.end - block.first;
      for (int t = block.tile_begin; t < block.tile_end; t++) {
        const Tile& tile = plan.tiles_of(block)[t];
        const double keys = std::min(TILE_KEYS, (int)p.keys - t * TILE_KEYS);
        if (tile.kind == HIDDEN) {
          if (!backward) total += keys * width * p.value_width;
          continue;
        }
        double scored = (double)width * tile.prefix, part = 0;
        if (tile.kind & SHARES_MORE)
          for (int l = tile.levels; l < (int)p.levels; l++)
            for (int v = 0; v < vectors; v++)
              if (plan.extent(l, t).meets(block.first, block.end) &&
                  plan.extent(l, t).meets(block.first + v * LANES, block.first + (v + 1) * LANES))
                part += (double)LANES * p.ranks[l];
        scored += part;
        total += keys * (scored + width * p.value_width);
        if (backward) total += keys * (scored + queries * (tile.prefix + p.value_width) + part);
      }
      plan.tiles.clear();  // those of all blocks together would be as many as the pairs
    });
    of_layout.push_back(2 * total);
  }
  double all = 0;
  for (int64_t row = 0; row < p.batch; row++) all += p.heads * of_layout[p.layout_of_row[row]];
  return all;
}

}  // namespace tsattn
