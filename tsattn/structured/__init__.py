"""Structured matrices as linear operators. Imports nothing else of the package except its error."""

from tsattn.structured.level import Level, LevelShape, fit_levels
from tsattn.structured.linear_operators import StructuredMatrix
from tsattn.structured.matrices import BTT, MLBTC, MLR, LowRank, MultiLevel, block_sizes

__all__ = ["BTT", "MLBTC", "MLR", "Level", "LevelShape", "LowRank", "MultiLevel", "StructuredMatrix"]
__all__ += ["block_sizes", "fit_levels"]
