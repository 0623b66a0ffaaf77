"""Structured matrices as linear operators. Imports nothing else of the package."""

from tsattn.structured.btt import BTT, block_sizes

__all__ = ["BTT", "block_sizes"]
