"""What a run came to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from tsattn.evaluation import ErrorTable
from tsattn.experiments.experiment import Experiment
from tsattn.predictors.fitted import FittedPredictor

if TYPE_CHECKING:
    from tsattn.data import ForecastDataModule

__all__ = ["Result"]


@dataclass(frozen=True)
class Result:
    """Result of a run.

    Attributes:
        experiment: what was run.
        key: tells results apart, see `Experiment.key`.
        fitted: the predictor and its scaler; of a network, the weights of the lowest validation error.
        data: the DataModule that it was fitted to, set up.
        fit: what is known of the fit as plain data: ``validation_error``, ``selected_by`` (its name), ``parameters``,
            and of a network ``best_step`` and ``training``.
        tables: for the test part, by the name of the predictor and of each baseline, its table of errors; empty for a
            run that was not tested.
        folder: of the run; None for one that was not written.
        refitted: fitted once more to all rows; None where that was not asked for.
    """

    experiment: Experiment
    key: str
    fitted: FittedPredictor
    data: ForecastDataModule
    fit: Mapping[str, Any]
    tables: Mapping[str, ErrorTable] = field(default_factory=dict)
    folder: Path | None = None
    refitted: FittedPredictor | None = None

    @property
    def errors(self) -> ErrorTable | None:
        """The test errors of the predictor, a row for each series, origin and channel; None if it was not tested."""
        return self.tables.get(self.fitted.predictor.name)

    @property
    def scores(self) -> pd.DataFrame:
        """The test scores: a row for the predictor and each baseline, a column for each score."""
        return pd.DataFrame.from_dict({name: table.scores() for name, table in self.tables.items()}, orient="index")

    def __repr__(self) -> str:
        scores = self.scores[["mse_scaled", "mae_scaled"]] if self.tables else "not tested"
        return f"Result of {self.fitted.predictor.name} in {self.folder}:\n{scores}"
