"""Lightning's loggers by name: which there are, which package each needs, and where they write."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import CSVLogger, Logger, MLFlowLogger, TensorBoardLogger, WandbLogger

from tsattn.errors import UserError, one_of, shown
from tsattn.training.curve import curve_loggers

__all__ = ["LOGGERS", "attached_loggers", "check_logger_names", "check_packages"]

# by name: the package, and what makes the logger for a folder
LOGGERS: dict[str, tuple[str | None, Callable[[Path], Logger]]] = {
    "csv": (None, lambda folder: CSVLogger(folder)),
    "tensorboard": ("tensorboard", lambda folder: TensorBoardLogger(folder)),
    "wandb": ("wandb", lambda folder: WandbLogger(save_dir=folder)),
    "mlflow": ("mlflow", lambda folder: MLFlowLogger(save_dir=str(folder / "mlruns"))),
}
_OF_A_RUN = ("csv", "tensorboard")  # a run folder has these curves anyway


def check_logger_names(given: Iterable[Any]) -> None:
    """Refuse names that are none.

    Raises:
        UserError: listing those that are.
    """
    for one in given:
        if isinstance(one, str) and one not in LOGGERS:
            raise UserError(f"logger must be one of {one_of(LOGGERS)}, or a Lightning logger, not {shown(repr(one))}")


def check_packages(given: Iterable[Any]) -> None:
    """Refuse loggers that are named and whose package is not installed.

    Raises:
        UserError: saying what to install.
    """
    for name in given:
        package = LOGGERS[name][0] if isinstance(name, str) else None
        if package is not None and importlib.util.find_spec(package) is None:
            raise UserError(f"logger {name} needs a package that is not installed: pip install {package}")


def attached_loggers(given: Iterable[Any], run: Path | None, root: str | Path | None) -> list[Logger]:
    """The loggers of a training.

    Args:
        given: names and loggers.
        run: the folder of the run, which has its curve as CSV, and for TensorBoard where that is installed; None for a
            training without a folder.
        root: the folder that those without a folder of their own write into; the current one by default.
    """
    named = [one for one in given if isinstance(one, str) and (run is None or one not in _OF_A_RUN)]
    where = run if run is not None else Path(root or Path.cwd())
    made = [LOGGERS[name][1](where) for name in dict.fromkeys(named)]
    curves = [] if run is None else curve_loggers(run)
    return [*curves, *made, *(one for one in given if not isinstance(one, str))]
