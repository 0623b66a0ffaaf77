"""A Chronos model with swapped attention, beside the one that it was made from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, NoReturn

import pandas as pd
from torch import nn

from tsattn.chronos.models.families import IMPLEMENTATIONS, AttentionSite, ChronosFamily
from tsattn.chronos.swapped.building import Surroundings, build_swapped
from tsattn.chronos.swapped.swapped_attention import SwappedAttention
from tsattn.descriptions import Description
from tsattn.errors import UserError, one_of

__all__ = ["AdaptedChronos", "Swap"]


@dataclass(frozen=True)
class Swap:
    """What stands at a site: plain data, from which it is built again.

    Attributes:
        attention: its description.
        convert: how its weights came from the original's.
    """

    attention: Description
    convert: str


class AdaptedChronos:
    """A Chronos pipeline with swapped attention. Made by `adapt` and `load_adapted`.

    Args:
        pipeline: becomes the adapted one when `swap` is called.
        original: the one that it was made from, None where that was not opened.
        family: of both.
        swaps: by the name of a site, ``encoder.0``.

    Attributes:
        pipeline: forecasts as every pipeline of chronos-forecasting does, `predict_quantiles` and the others.
        swapped: the attention at each site, by its name.
        score_errors: of each site and head, how far the conversion took scores from the original's, as a share of
            these: of all scores for `project`, of those of the farthest pairs for `mlr`.
    """

    def __init__(self, pipeline: Any, original: Any | None, family: ChronosFamily, swaps: Mapping[str, Swap]) -> None:
        implementation = pipeline.inner_model.config._attn_implementation
        if implementation not in IMPLEMENTATIONS:
            raise UserError(
                f"models that attend by {implementation} cannot be adapted: open it with attn_implementation "
                f"{one_of(IMPLEMENTATIONS)}"
            )
        self.pipeline = pipeline
        self.original = original
        self.family = family
        self.swaps = dict(swaps)
        self.swapped: dict[str, SwappedAttention] = {}
        self.score_errors: dict[str, list[float]] = {}

    @property
    def model(self) -> nn.Module:
        """The network of the adapted pipeline."""
        network: nn.Module = self.pipeline.inner_model
        return network

    @property
    def sites(self) -> list[AttentionSite]:
        """Where attention is swapped."""
        every = [*self.family.sites(self.model), *self.family.sites_between(self.model)]
        return [site for site in every if site.name in self.swaps]

    def swap(self) -> Iterator[Surroundings]:
        """Put the attentions in their places, one after the other, and give what stood around each."""
        from tsattn.chronos.swapped.adapted_models import mark_adapted  # which needs the extra

        layout = self.family.layout(self.model)
        mark_adapted(self.model, layout)
        self.pipeline.fit = refuse_fit
        for site in self.sites:
            swap = self.swaps[site.name]
            around = Surroundings.of(self.family, self.model, site, layout)
            module = build_swapped(
                swap.attention, around, fresh=swap.convert == "fresh", position_free=swap.convert.startswith("project")
            )
            module.train(around.original.training)
            parent, _, name = site.path.rpartition(".")
            setattr(self.model.get_submodule(parent), name, module)
            self.swapped[site.name] = module
            yield around

    def calibrate(self, data: Any, **options: Any) -> pd.DataFrame:
        """See `tsattn.chronos.calibration.calibrate`.

        Raises:
            UserError: where attention among series is swapped, too.
        """
        from tsattn.chronos.calibration import calibrate

        if any(site.stack == "group" for site in self.sites):
            raise UserError(
                "calibration shows a model each series by itself: attention among series cannot learn from it"
            )
        return calibrate(self, data, **options)

    def cost(self) -> pd.DataFrame:
        """See `tsattn.chronos.swap_cost.swap_cost`."""
        from tsattn.chronos.swap_cost import swap_cost

        return swap_cost(self)

    def save(self, folder: str | PathLike[str], *, overwrite: bool = False) -> Path:
        """See `tsattn.chronos.saving.save_adapted`; `load_adapted` opens the folder."""
        from tsattn.chronos.saving import save_adapted

        return save_adapted(self, folder, overwrite=overwrite)

    def restore(self) -> Any:
        """The original pipeline, as it was given: its own modules and weights.

        Raises:
            UserError: if this was loaded from a folder, which does not hold the original.
        """
        if self.original is None:
            raise UserError("a folder of an adapted model does not hold the original: open that with open_pipeline")
        return self.original


def refuse_fit(*args: Any, **kwargs: Any) -> NoReturn:
    """In the place of `Chronos2Pipeline.fit`, which would train a model without the swap."""
    raise UserError("an adapted model is not trained by its pipeline's own fit, which knows nothing of its attention")
