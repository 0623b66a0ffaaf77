"""The scores of the forecasts that any model must beat, to compare trained models with."""

from tsattn.data import ForecastDataModule
from tsattn.experiments.measuring import fitted_baselines, measured
from tsattn.training import Execution, Training
from tsattn.training.trainer_options import TrainerOptions

_CPU = {"accelerator": "cpu", "precision": None, "plugins": None, "deterministic": None, "benchmark": None}


def baseline_scores(data: ForecastDataModule, part: str = "test", only: str = "") -> dict[str, dict[str, float]]:
    """All scores of ridge, seasonal naive and persistence, or of `only` one, over the windows of a part of the data."""
    trainer = TrainerOptions(_CPU, chooses_steps=False, chooses_validation=False)
    found = fitted_baselines(data, part, Training(trainer, {}))
    baselines = ((name, one) for name, one in found if name.startswith(only))
    return {name: measured(one, data, part, Execution(trainer)).scores() for name, one in baselines}
