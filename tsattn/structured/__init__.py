"""Structured matrices as linear operators. Imports nothing else of the package but its error."""

from tsattn.structured.base import StructuredMatrix, Transposed
from tsattn.structured.block_tensor_contraction import MLBTC, MultiLevel
from tsattn.structured.block_tensor_train import BTT, DIVISORS, block_sizes
from tsattn.structured.butterfly import Butterfly, prime_factors
from tsattn.structured.dense import Dense
from tsattn.structured.kronecker import Kronecker
from tsattn.structured.level import Level, LevelShape, fit_levels
from tsattn.structured.low_rank import LowRank
from tsattn.structured.monarch import Monarch
from tsattn.structured.multi_level_low_rank import MLR

__all__ = [
    "BTT",
    "DIVISORS",
    "MLBTC",
    "MLR",
    "Butterfly",
    "Dense",
    "Kronecker",
    "Level",
    "LevelShape",
    "LowRank",
    "Monarch",
    "MultiLevel",
    "StructuredMatrix",
    "Transposed",
    "block_sizes",
    "fit_levels",
    "prime_factors",
]
