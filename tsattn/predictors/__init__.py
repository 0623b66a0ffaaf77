"""Everything that forecasts: trained networks, closed forms, averages.

The kind of a backbone is a kind of predictor, too: its trained network. To add another, write one file with a
subclass of `Predictor` that takes keyword arguments, and name it in `PREDICTORS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, get_type_hints

from tsattn import descriptions
from tsattn.backbones import BACKBONES, backbone_class
from tsattn.descriptions import DEFAULT_BACKBONE, Description

if TYPE_CHECKING:
    from tsattn.predictors.base import Predictor

__all__ = ["PREDICTORS", "Predictor", "build_predictor", "complete_predictor", "named_predictor"]
__all__ += ["predictor_arguments", "predictor_kinds"]

PREDICTORS = {
    "auto": "tsattn.predictors.auto.Auto",
    "ridge": "tsattn.predictors.ridge.Ridge",
    "seasonal_naive": "tsattn.predictors.naive.SeasonalNaive",
    "persistence": "tsattn.predictors.naive.Persistence",
    "window_mean": "tsattn.predictors.naive.WindowMean",
    "theta": "tsattn.predictors.local_models.Theta",
    "ets": "tsattn.predictors.local_models.ETS",
    "ensemble": "tsattn.predictors.ensemble.Ensemble",
    "tiny": "tsattn.pretrained.tiny.Tiny",
    "chronos": "tsattn.chronos.chronos_predictor.ChronosPredictor",
    "neuralforecast": "tsattn.peers.predictors.NeuralForecast",
    "statsforecast": "tsattn.peers.predictors.StatsForecast",
}
"""The import path of each kind, imported when it is first made; its class is a name of this package, too."""
DEFAULT = "auto"
"""Kind of the default predictor."""


def network_for(description: Any) -> Any:
    """Return the default network in place of the default predictor, for options that only a network takes."""
    given = description if isinstance(description, Mapping) else {"kind": description}
    return dict(DEFAULT_BACKBONE) if given.get("kind") == DEFAULT and not given.get("members") else description


def predictor_kinds() -> list[str]:
    """Return all kinds that a description may name, backbones first."""
    return [*BACKBONES, *PREDICTORS]


def build_predictor(description: Description) -> Predictor:
    """Build a predictor from a kind's name, or ``{kind: ..., argument: value, ...}``.

    Raises:
        UserError: for a wrong kind, argument or value, with a message that lists the valid ones.
    """
    from tsattn.predictors.network import NetworkPredictor

    kind, cls, chosen = named_predictor(description)
    if issubclass(cls, NetworkPredictor):  # whose backbone checks its arguments
        return cls({"kind": kind, **chosen})
    descriptions.check_names(chosen, predictor_arguments(kind), f"predictor {kind}")
    descriptions.check_types(chosen, get_type_hints(cls.__init__), f"predictor {kind}")
    return cls(**chosen)


def complete_predictor(description: Description) -> dict[str, Any]:
    """Return the description with all defaults, also of its attention and its members."""
    return build_predictor(description).description


def named_predictor(description: object, what: str = "predictor") -> tuple[str, type[Predictor], dict[str, Any]]:
    """Return the kind and class that a description names (`NetworkPredictor` for a backbone), and its arguments."""
    from tsattn.backbones.base import Backbone
    from tsattn.predictors.base import Predictor
    from tsattn.predictors.network import NetworkPredictor

    table = {**BACKBONES, **PREDICTORS}
    kind, chosen = descriptions.named(description, what=what, table=table)
    cls = descriptions.class_of(kind, Predictor, Backbone, what=what, table=table)
    return kind, NetworkPredictor if issubclass(cls, Backbone) else cls, chosen


def predictor_arguments(kind: str) -> list[str]:
    """Return the arguments that a description of this kind may name; a network takes its backbone's."""
    from tsattn.predictors.network import NetworkPredictor

    _, cls, _ = named_predictor(kind)
    return descriptions.keyword_arguments(backbone_class(kind) if issubclass(cls, NetworkPredictor) else cls)


__getattr__ = descriptions.late(__name__, (*PREDICTORS.values(), "tsattn.predictors.base.Predictor"))
