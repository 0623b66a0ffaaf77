"""Patterns: they decide which pairs of tokens are scored, and with how many components."""

from tsattn.attention.patterns.multi_level_pattern import MultiLevelPattern
from tsattn.attention.patterns.pattern import (
    DecodingStep,
    FullPattern,
    Pattern,
    PatternCall,
    PatternCost,
    TokenOrigin,
    Tokens,
)
from tsattn.attention.patterns.unscored_patterns import FixedMixingPattern, IdentityPattern, UniformPattern
from tsattn.attention.patterns.window_patterns import GlobalSlidingWindowPattern, SlidingWindowPattern

__all__ = [
    "DecodingStep",
    "FixedMixingPattern",
    "FullPattern",
    "GlobalSlidingWindowPattern",
    "IdentityPattern",
    "MultiLevelPattern",
    "Pattern",
    "PatternCall",
    "PatternCost",
    "SlidingWindowPattern",
    "TokenOrigin",
    "Tokens",
    "UniformPattern",
]
