"""What to know of a table before a model is trained on it."""

from tsattn.diagnosis.table_diagnosis import KINDS, diagnose

__all__ = ["KINDS", "diagnose"]
