"""The pattern slot: which pairs of tokens are scored, and with how many of the components."""

from tsattn.attention.patterns.base import Pattern, Tokens
from tsattn.attention.patterns.full import FullPattern
from tsattn.attention.patterns.multi_level import MultiLevelPattern
from tsattn.attention.patterns.windows import GlobalSlidingWindowPattern, SlidingWindowPattern

__all__ = [
    "FullPattern",
    "GlobalSlidingWindowPattern",
    "MultiLevelPattern",
    "Pattern",
    "SlidingWindowPattern",
    "Tokens",
]
