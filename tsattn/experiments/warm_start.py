"""Starting a training from the weights of an earlier one, on its scale."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from tsattn.data import ForecastDataModule
from tsattn.data.scaling import fit_scaler, with_new_series
from tsattn.errors import UserError
from tsattn.predictors.fitted import FittedPredictor
from tsattn.predictors.network import NetworkPredictor
from tsattn.task import Output

__all__ = ["WarmStart"]


@dataclass(frozen=True)
class WarmStart:
    """A fitted network, whose weights another training starts from; its optimizer is new.

    Attributes:
        fitted: the network and its scaler.
        rescale: whether to scale series and covariates by the rows that are trained on now; else the scales of the
            network stay, and those of new series are added.

    Raises:
        UserError: for a predictor that is no network, or of which nothing is trained.
    """

    fitted: FittedPredictor
    rescale: bool = False

    def __post_init__(self) -> None:
        predictor = self.fitted.predictor
        if not isinstance(predictor, NetworkPredictor):
            raise UserError(
                f"only a network starts from weights that it has, and {predictor.name} is none: fit it anew"
            )
        if not predictor.is_trained:
            raise UserError(
                f"nothing of {predictor.name} is trained, so that no training goes on from it: fit it anew, or give "
                "trained (all, attention or lora)"
            )

    @property
    def description(self) -> Mapping[str, Any]:
        """Of the network."""
        return self.fitted.predictor.description

    @property
    def output(self) -> Output:
        """What is asked of it."""
        return self.fitted.predictor.output

    @property
    def state(self) -> dict[str, Tensor]:
        """Its weights."""
        return self.fitted.predictor.state_dict()

    def set_up(self, data: ForecastDataModule) -> None:
        """Read data as the network needs them, and scale them.

        Raises:
            UserError: for data that lack what it was trained with.
        """
        data.task, data.scaler = self.fitted.predictor.task, self.fitted.scaler
        data.prepare_data()
        data.setup("predict")  # read and split, not scaled
        assert data.panel is not None
        if self.rescale:
            data.scaler = fit_scaler(data.panel, data.splits, data.scaling, data.transform)
        else:
            trained = np.array([split.train_end for split in data.splits])
            data.scaler = with_new_series(self.fitted.scaler, data.panel, trained)
        data.setup("fit")

    def key_after(self, key: str) -> str:
        """The key of a result that started so, given that of one that did not."""
        found = hashlib.sha256(f"{key} {self.rescale} {self.fitted.scaler.to_dict()}".encode())
        for name, weight in sorted(self.state.items()):
            found.update(name.encode())
            found.update(weight.detach().cpu().contiguous().numpy().tobytes())
        return found.hexdigest()
