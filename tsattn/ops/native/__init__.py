"""A kernel of its own for CPUs: exact attention whose scores stop at the components that a pair shares.

Queries stand side by side in vectors. A tile of scores, of a few keys and the queries of two vectors, is summed over
the prefix of components that all its pairs share, and no further: the work of coarser levels alone is all that far
pairs cost. Blocks, windows, causality and padding are intervals of queries, a first and a last one for each key; tiles
that straddle an interval add or hide pairs by comparing numbers. The sources in `source` are C++ without PyTorch;
`problem` is what passes between them and Python. Dropout is in the same library (`tsattn.ops.dropout`).
"""

from tsattn.ops.native.native_attention import UNREADABLE, is_worth_native, native_attention, why_not_native
from tsattn.ops.native.query_intervals import Intervals, pair_intervals

__all__ = ["UNREADABLE", "Intervals", "is_worth_native", "native_attention", "pair_intervals", "why_not_native"]
