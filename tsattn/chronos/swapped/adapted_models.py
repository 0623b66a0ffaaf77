"""The models of chronos-forecasting with swapped attention: they know their tokens, and are not saved as plain ones."""

from __future__ import annotations

import inspect
from typing import Any

from chronos.chronos2 import Chronos2Model
from chronos.chronos_bolt import ChronosBoltModelForForecasting
from transformers import T5ForConditionalGeneration

from tsattn.chronos.models.token_layout import TokenLayout
from tsattn.errors import UserError

__all__ = ["AdaptedBoltModel", "AdaptedChronos2Model", "AdaptedT5Model", "mark_adapted"]


_ENCODE = inspect.signature(Chronos2Model.encode)


class _Adapted:
    """A model whose weights mean nothing to the plain class, which would load what fits and draw the rest at random.

    Attributes:
        token_layout: shared with the swapped attentions.
    """

    token_layout: TokenLayout

    def get_input_embeddings(self) -> Any:
        """Those of the few tokens that are no values, which peft asks for."""
        return self.shared  # type: ignore[attr-defined]

    def save_pretrained(self, *args: Any, **kwargs: Any) -> None:
        """Refused: the plain format cannot hold the swap."""
        raise UserError("an adapted model is saved by AdaptedChronos.save(folder), which records its attention")


class AdaptedT5Model(_Adapted, T5ForConditionalGeneration):  # type: ignore[no-untyped-call]
    """Chronos-T5 with swapped attention."""


class AdaptedBoltModel(_Adapted, ChronosBoltModelForForecasting):  # type: ignore[misc]
    """Chronos-Bolt with swapped attention."""


class AdaptedChronos2Model(_Adapted, Chronos2Model):  # type: ignore[misc]
    """Chronos-2 with swapped attention, which is told how many tokens of the future follow the context."""

    def encode(self, *args: Any, **kwargs: Any) -> Any:
        """What `Chronos2Model.encode` gives."""
        given = _ENCODE.bind(self, *args, **kwargs)
        given.apply_defaults()
        reg = int(self.chronos_config.use_reg_token)
        self.token_layout.special_tokens = reg + given.arguments["num_output_patches"]
        return super().encode(*args, **kwargs)


_CLASSES: dict[type[Any], type[Any]] = {
    T5ForConditionalGeneration: AdaptedT5Model,
    ChronosBoltModelForForecasting: AdaptedBoltModel,
    Chronos2Model: AdaptedChronos2Model,
}


def mark_adapted(model: Any, layout: TokenLayout) -> None:
    """Make a model one of the classes above; its weights stay.

    Raises:
        UserError: for another class of model.
    """
    if isinstance(model, _Adapted):
        raise UserError("this model is adapted already: adapt its original, which restore() gives")
    if type(model) not in _CLASSES:
        raise UserError(
            f"a model of class {type(model).__name__} cannot be adapted; those of Chronos-T5, Chronos-Bolt and "
            "Chronos-2 can"
        )
    model.__class__ = _CLASSES[type(model)]
    model.token_layout = layout
