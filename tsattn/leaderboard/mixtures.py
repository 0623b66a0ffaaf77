"""The experiment of a mix: an ensemble whose trained members are, bit for bit, experiments that are run anyway."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tsattn.errors import UserError
from tsattn.experiments import Experiment
from tsattn.experiments.dotted import get_at, paths
from tsattn.experiments.members import member_experiments
from tsattn.leaderboard.suite import Mix
from tsattn.predictors import build_predictor, predictor_arguments
from tsattn.predictors.ensemble import TRAINING_OPTIONS, member_name

__all__ = ["mixed"]


def mixed(name: str, mix: Mix, parts: Mapping[str, Experiment]) -> Experiment:
    """The ensemble of some experiments. What it does not say of a member is as in the first trained one.

    Args:
        name: of the mix, for messages.
        mix: of what it is.
        parts: the experiments, by the names in the mix.

    Raises:
        UserError: if two that are trained differ in what the members of an ensemble share.
    """
    trained = [part for part in mix.of if _is_trained(parts[part])]
    first = (trained or mix.of)[0]
    base = parts[first]
    description: dict[str, Any] = {
        "kind": "ensemble",
        "members": [_member(parts[part], base) for part in mix.of],
        "weights": None if mix.weights is None else list(mix.weights),
        "seeds": mix.seeds,
    }
    whole = base.with_values({"model.backbone": description})
    alone = member_experiments(whole)
    for number, part in enumerate(mix.of):
        if part in trained:
            path = _difference(alone[member_name(number, 0)].to_dict(), parts[part].to_dict())
            if path is not None:
                raise UserError(
                    f"the mix {name} cannot be made of {first} and {part}: they differ in {path}, which the members of "
                    "an ensemble share"
                )
    return whole


def _is_trained(experiment: Experiment) -> bool:
    return build_predictor(experiment.model["backbone"]).is_trained


def _member(part: Experiment, base: Experiment) -> dict[str, Any]:
    """The description of a member, with what differs from the experiment that the ensemble is made of."""
    member: dict[str, Any] = dict(part.model["backbone"])
    arguments = predictor_arguments(member["kind"])
    context, shared = (get_at(one.to_dict(), "data.init_args.context_length") for one in (part, base))
    if not _is_trained(part):
        if "context_length" in arguments and member.get("context_length") is None and context != shared:
            member["context_length"] = context
        return member
    for option in TRAINING_OPTIONS:
        if option in arguments:
            continue
        if option == "context_length":
            own, common = context, shared
        elif option == "max_steps":
            own, common = part.trainer[option], base.trainer[option]
        else:
            own, common = part.model[option], base.model[option]
        if own != common:
            member[option] = own
    return member


def _difference(one: Mapping[str, Any], other: Mapping[str, Any]) -> str | None:
    """The first path at which two experiments differ."""
    for path in dict.fromkeys([*paths(one), *paths(other)]):
        values = []
        for content in (one, other):
            try:
                values.append(get_at(content, path))
            except KeyError:
                values.append(None)
        if values[0] != values[1] and not all(isinstance(value, Mapping) for value in values):
            return path
    return None
