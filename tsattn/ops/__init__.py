"""Pure tensor functions of attention: a plain reference next to each faster path.

Shape letters: B batch, N query tokens, S key tokens, H heads, G key heads (1, or a divisor of H), L levels. A query or
key has r components, a value has E components.
"""

from tsattn.ops.data_blocks import CALENDAR_UNITS, calendar_block_ids, change_point_block_ids
from tsattn.ops.flops import executed_flops
from tsattn.ops.full import full_attention
from tsattn.ops.masks import allowed_pairs, level_block_ids, window_pairs
from tsattn.ops.multilevel import multilevel_attention
from tsattn.ops.sliding_window import sliding_window_attention

__all__ = ["CALENDAR_UNITS", "allowed_pairs", "calendar_block_ids", "change_point_block_ids", "executed_flops"]
__all__ += ["full_attention", "level_block_ids", "multilevel_attention", "sliding_window_attention", "window_pairs"]
