"""The pattern slot: which pairs of tokens are scored, and with how many of the components."""

from tsattn.attention.patterns.fixed_mixing_pattern import FixedMixingPattern
from tsattn.attention.patterns.full_pattern import FullPattern
from tsattn.attention.patterns.multi_level_pattern import MultiLevelPattern
from tsattn.attention.patterns.pattern import Pattern, TokenOrigin, Tokens
from tsattn.attention.patterns.unscored_patterns import IdentityPattern, UniformPattern
from tsattn.attention.patterns.window_patterns import GlobalSlidingWindowPattern, SlidingWindowPattern

__all__ = [
    "FixedMixingPattern",
    "FullPattern",
    "GlobalSlidingWindowPattern",
    "IdentityPattern",
    "MultiLevelPattern",
    "Pattern",
    "SlidingWindowPattern",
    "TokenOrigin",
    "Tokens",
    "UniformPattern",
]
