"""What attention keeps of the tokens it has seen, so that the next one is computed without them.

Keys are kept as they are scored (after normalisation and rotation), and no longer than the pattern can score them:
whole, over a window, or level by level over the running block (Kuang et al., section 4).

Shape letters as in `tsattn.attention.base`; G' the heads of a key (1 where all heads share it), W its components, E
those of a value, n new tokens.
"""

from tsattn.attention.caches.cache import Cache, own_cache
from tsattn.attention.caches.kinds import FullCache, MultiLevelCache, SplitCache, WindowCache, places_for
from tsattn.attention.caches.token_rows import NewTokens

__all__ = [
    "Cache",
    "FullCache",
    "MultiLevelCache",
    "NewTokens",
    "SplitCache",
    "WindowCache",
    "own_cache",
    "places_for",
]
