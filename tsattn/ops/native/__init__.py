"""A kernel of this package for CPUs: exact attention whose scores stop at the components that a pair shares.

Queries lie side by side in vectors. A tile holds the scores of a few keys with the queries of two vectors. It is summed
only over the prefix of components that all its pairs share, so far pairs cost only the work of coarser levels. Blocks,
windows, causality and padding are intervals of queries, from a first to a last query for each key. Tiles that straddle
an interval add or hide pairs by comparing numbers. The sources in `source` are C++ without PyTorch; `kernel_problem`
has their arguments. The library includes dropout (`tsattn.ops.dropout`).
"""

from tsattn.ops.native.native_attention import UNREADABLE, is_worth_native, native_attention, why_not_native
from tsattn.ops.native.query_intervals import Intervals, pair_intervals

__all__ = ["UNREADABLE", "Intervals", "is_worth_native", "native_attention", "pair_intervals", "why_not_native"]
