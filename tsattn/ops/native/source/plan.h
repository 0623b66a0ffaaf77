// Which tiles of keys a block of queries sees, and how many components all pairs of a tile share.
#pragma once

#include <algorithm>
#include <vector>

#include "lanes.h"
#include "problem.h"

namespace tsattn {

struct Tile {
  uint16_t prefix;  // components that all its pairs share
  uint8_t levels;   // levels that all its pairs share
  uint8_t kind;
};
enum : uint8_t {
  WHOLE = 0,
  SHARES_MORE = 1,   // some pairs share finer levels
  SEEN_IN_PART = 2,  // some pairs are not seen
  HIDDEN = 4,        // none is
};

// Up to `width` queries of one section: those of blocks, or the global ones.
struct QueryBlock {
  int first, end, section;
  int tile_begin, tile_end;  // the tiles of keys that it may see
  int64_t tiles;             // where they stand in Plan::tiles
};

// The extremes of an interval over the keys of a tile.
struct Extent {
  int first_min, first_max, end_min, end_max;
  bool holds(int first, int end) const { return first_max <= first && end_min >= end; }
  bool meets(int first, int end) const { return first_min < end && end_max > first; }
};

// How one layout is cut.
struct Plan {
  std::vector<QueryBlock> blocks;
  std::vector<Tile> tiles;
  std::vector<Extent> extents;  // (levels, tiles of keys)
  int num_tiles = 0;
  const int32_t *block_first, *block_end, *seen_first, *seen_end;

  const Extent& extent(int level, int tile) const { return extents[(int64_t)level * num_tiles + tile]; }
  const Tile* tiles_of(const QueryBlock& block) const { return tiles.data() + block.tiles - block.tile_begin; }
};

inline Extent extent_of(const int32_t* first, const int32_t* end, int begin, int stop) {
  Extent e{INT32_MAX, INT32_MIN, INT32_MAX, INT32_MIN};
  for (int j = begin; j < stop; j++) {
    e.first_min = std::min(e.first_min, first[j]), e.first_max = std::max(e.first_max, first[j]);
    e.end_min = std::min(e.end_min, end[j]), e.end_max = std::max(e.end_max, end[j]);
  }
  return e;
}

// Cuts the queries of a layout into blocks, for which `take(block)` is called as soon as their tiles end `plan.tiles`.
template <class Take>
inline void cut_queries(const TsattnProblem& p, int64_t layout, int width, Plan& plan, const Take& take) {
  const int keys = (int)p.keys, levels = (int)p.levels, ordinary = (int)p.queries - p.global_queries[layout];
  plan.num_tiles = (keys + TILE_KEYS - 1) / TILE_KEYS;
  plan.block_first = p.block_first + layout * levels * keys;
  plan.block_end = p.block_end + layout * levels * keys;
  plan.seen_first = p.seen_first + layout * 2 * keys;
  plan.seen_end = p.seen_end + layout * 2 * keys;
  const auto stop_of = [&](int t) { return std::min(keys, (t + 1) * TILE_KEYS); };
  plan.extents.resize((int64_t)levels * plan.num_tiles);
  for (int l = 0; l < levels; l++)
    for (int t = 0; t < plan.num_tiles; t++)
      plan.extents[(int64_t)l * plan.num_tiles + t] =
          extent_of(plan.block_first + (int64_t)l * keys, plan.block_end + (int64_t)l * keys, t * TILE_KEYS, stop_of(t));
  std::vector<Extent> seen(plan.num_tiles);
  for (int section = 0; section < 2; section++) {
    for (int t = 0; t < plan.num_tiles; t++)
      seen[t] = extent_of(plan.seen_first + section * keys, plan.seen_end + section * keys, t * TILE_KEYS, stop_of(t));
    const int stop = section ? (int)p.queries : ordinary;
    for (int first = section ? ordinary : 0; first < stop; first += width) {
      QueryBlock block{first, std::min(stop, first + width), section, 0, plan.num_tiles, (int64_t)plan.tiles.size()};
      while (block.tile_end > 0 && !seen[block.tile_end - 1].meets(first, block.end)) block.tile_end--;
      while (block.tile_begin < block.tile_end && !seen[block.tile_begin].meets(first, block.end)) block.tile_begin++;
      for (int t = block.tile_begin; t < block.tile_end; t++) {
        Tile tile{0, 0, WHOLE};
        if (!seen[t].meets(first, block.end)) {
          tile.kind = HIDDEN;
        } else {
          int l = 0;
          for (; l < levels && (section || plan.extent(l, t).holds(first, block.end)); l++) tile.prefix += p.ranks[l];
          tile.levels = (uint8_t)l;
          for (; l < levels; l++)
            if (plan.extent(l, t).meets(first, block.end)) tile.kind |= SHARES_MORE;
          if (!seen[t].holds(first, block.end)) tile.kind |= SEEN_IN_PART;
        }
        plan.tiles.push_back(tile);
      }
      take(block);
    }
  }
}

inline std::vector<Plan> make_plans(const TsattnProblem& p, int width) {
  std::vector<Plan> plans(p.layouts);
  for (int64_t layout = 0; layout < p.layouts; layout++) {
    Plan& plan = plans[layout];
    cut_queries(p, layout, width, plan, [&](const QueryBlock& block) { plan.blocks.push_back(block); });
  }
  return plans;
}

}  // namespace tsattn
