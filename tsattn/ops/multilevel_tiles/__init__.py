"""Multi-level attention without the T x T matrix: disjoint tiles, each attention over a prefix of the components.

Where every level's blocks refine those of the level before, two tokens share levels 1 .. l and no finer one, so their
score is a product of the first `r_1 + .. + r_l` components. The pairs fall into rectangles: in each block, the pairs of
different child blocks; at the finest level, the square blocks of the diagonal. Each rectangle goes through PyTorch's
flash kernel, which returns the log-sum-exp of its rows, and the results are merged by it; backward, the kernel's own
backward, given the merged output and log-sum-exp, yields exactly the tile's share of every gradient (as in ring
attention, Liu et al. 2023). Queries are zeroed after the prefix, level by level in one buffer; keys and values stay
where they are. The finest levels, whose tiles would be too small for the kernel, are computed in one square block with
their components spread over one slot a sub-block.

Kuang et al. (ICML 2025), section 4, leave open whether multi-level scores go together with FlashAttention: they do.
"""

from tsattn.ops.multilevel_tiles.attention import multilevel_attention_tiles
from tsattn.ops.multilevel_tiles.operator import multilevel_attention_traced

__all__ = ["multilevel_attention_tiles", "multilevel_attention_traced"]
