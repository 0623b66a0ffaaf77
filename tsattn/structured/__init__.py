"""Structured matrices as linear operators. Imports nothing else of the package except its error."""

from tsattn.structured.level import Level, LevelShape, fit_levels
from tsattn.structured.linear_operators import StructuredMatrix
from tsattn.structured.matrices import (
    BTT,
    MLBTC,
    MLR,
    Butterfly,
    Kronecker,
    LowRank,
    Monarch,
    MultiLevel,
    block_sizes,
    prime_factors,
)

__all__ = [
    "BTT",
    "MLBTC",
    "MLR",
    "Butterfly",
    "Kronecker",
    "Level",
    "LevelShape",
    "LowRank",
    "Monarch",
    "MultiLevel",
    "StructuredMatrix",
    "block_sizes",
    "fit_levels",
    "prime_factors",
]
