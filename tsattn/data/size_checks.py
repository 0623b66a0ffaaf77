"""The checks of a DataModule's sizes and choices, before anything is read."""

from __future__ import annotations

from tsattn.checks import whole_number
from tsattn.errors import UserError, one_of, shown

__all__ = ["check_choices", "check_sizes"]

_SCALINGS = ("global", "series")


def check_sizes(*, num_workers: int, resident_gb: float, **sizes: int) -> None:
    """Refuse sizes below 1, and a negative number of processes or GB.

    Raises:
        UserError: naming the argument.
    """
    for what, size in sizes.items():
        whole_number(what, size)
    whole_number("num_workers", num_workers, least=0)
    if not resident_gb >= 0:
        raise UserError(f"resident_gb must be at least 0, not {resident_gb}")


def check_choices(scaling: str, val_windows: object) -> None:
    """Refuse a scaling that there is not, and validation windows that are no number, nor ``auto`` or ``all``.

    Raises:
        UserError: naming the argument and what is valid.
    """
    if scaling not in _SCALINGS:
        raise UserError(f"scaling must be one of {one_of(_SCALINGS)}, not {scaling!r}")
    is_number = isinstance(val_windows, int) and not isinstance(val_windows, bool) and val_windows >= 1
    if val_windows not in ("auto", "all") and not is_number:
        raise UserError(f"val_windows must be auto, all or a number of at least 1, not {shown(repr(val_windows))}")
