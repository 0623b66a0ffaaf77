"""Report problems of a table before you train on it."""

from tsattn.diagnosis.table_diagnosis import KINDS, diagnose

__all__ = ["KINDS", "diagnose"]
