"""What a description of the predictor `chronos` may say, checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tsattn.attention import complete_attention
from tsattn.chronos.adapting import CONVERSIONS
from tsattn.descriptions import Description
from tsattn.errors import UserError, one_of, whole_number

__all__ = ["EVERY", "TRAINED", "ChronosOptions", "plain_attention"]

TRAINED = ("all", "attention", "lora")

EVERY = "encoder"  # what `where` is by default


@dataclass(frozen=True)
class ChronosOptions:
    """The arguments of `ChronosNetwork`, which describes them.

    Raises:
        UserError: for one out of its range, or several that do not go together.
    """

    weights: str
    revision: str | None
    context_length: int | None
    attention: Any
    where: str | Sequence[int | str]
    convert: str
    calibrate: int
    trained: str | None
    lora_rank: int
    num_samples: int | None
    sampling_seed: int

    def __post_init__(self) -> None:
        for name, least in (("context_length", 1), ("num_samples", 1)):
            if getattr(self, name) is not None:
                whole_number(name, getattr(self, name), least=least)
        for name, least in (("calibrate", 0), ("lora_rank", 1), ("sampling_seed", 0)):
            whole_number(name, getattr(self, name), least=least)
        if self.convert not in CONVERSIONS:
            raise UserError(f"convert must be one of {one_of(CONVERSIONS)}, not {self.convert!r}")
        if self.trained is not None and self.trained not in TRAINED:
            raise UserError(f"trained must be null or one of {one_of(TRAINED)}, not {self.trained!r}")
        if self.attention is None and (self.calibrate or self.convert != "copy"):
            name = "calibrate" if self.calibrate else "convert"
            raise UserError(f"{name} is of a swapped attention: give attention, or leave {name} out")
        if not self.names_layers and self.where != EVERY:
            raise UserError(
                "where is of a swapped attention, or of trained: attention or lora; give one of these, or leave it out"
            )
        if self.attention is not None and self.convert == "fresh" and not self.is_fitted:
            raise UserError("attention that starts afresh forecasts nothing of use: give trained or calibrate")
        if self.is_fitted and self.context_length is not None:
            raise UserError(
                "context_length is of a model that is used as it is: one that is fitted has that of the data"
            )

    @property
    def names_layers(self) -> bool:
        """Whether `where` means something: the layers that are swapped, or those whose attention is trained."""
        return self.attention is not None or self.trained in ("attention", "lora")

    @property
    def unfitted(self) -> dict[str, Any]:
        """The arguments of the model before anything is fitted, with its own attention where another starts afresh."""
        alone = {**vars(self), "trained": None, "calibrate": 0}
        if self.convert == "fresh":
            alone |= {"attention": None, "convert": "copy"}
        return alone if alone["attention"] is not None else {**alone, "where": EVERY}

    @property
    def is_fitted(self) -> bool:
        """Whether a fit changes weights, so that there is a state to keep."""
        return self.trained is not None or self.calibrate > 0


def plain_attention(attention: Description | Sequence[Description] | None) -> Any:
    """Attention as it is written, each with its ``kind``; a model decides more of it than the defaults would.

    Raises:
        UserError: for a wrong kind or argument.
    """
    if attention is None:
        return None
    if isinstance(attention, Sequence) and not isinstance(attention, str):
        return [plain_attention(one) for one in attention]
    complete_attention(attention)
    return dict(attention) if isinstance(attention, Mapping) else {"kind": attention}
