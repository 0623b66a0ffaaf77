"""Structured matrices as linear operators. Imports nothing else of the package except its error."""

from tsattn.structured.level import Level, LevelShape, fit_levels
from tsattn.structured.linear_operators import StructuredMatrix
from tsattn.structured.matrices import BTT, MLBTC, MLR, MultiLevel, block_sizes

__all__ = ["BTT", "MLBTC", "MLR", "Level", "LevelShape", "MultiLevel", "StructuredMatrix", "block_sizes", "fit_levels"]
