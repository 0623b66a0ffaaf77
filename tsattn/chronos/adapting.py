"""Swapping the self-attention of a pretrained Chronos model."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from os import PathLike
from typing import Any

import torch
from torch import Tensor

from tsattn.attention import attention_per_layer
from tsattn.chronos.adapted_chronos import AdaptedChronos, Swap
from tsattn.chronos.converting.activations import InputMoments, input_moments
from tsattn.chronos.converting.copying import copy_scores, copy_values
from tsattn.chronos.converting.projecting import project_scores
from tsattn.chronos.converting.rotating import far_errors, rotate_scores
from tsattn.chronos.converting.special_cases import SPECIAL_CASES
from tsattn.chronos.models.families import chosen_sites, family_of
from tsattn.chronos.models.pipelines import check_extra, open_pipeline
from tsattn.chronos.swapped.building import Surroundings
from tsattn.descriptions import Description
from tsattn.errors import UserError, one_of

__all__ = ["CONVERSIONS", "adapt"]

CONVERSIONS = ("copy", "rotate", "project", *(f"project:{name}" for name in SPECIAL_CASES), "fresh")


def adapt(
    pipeline_or_path: Any,
    attention: Description | Sequence[Description],
    where: str | Sequence[int | str] = "encoder",
    convert: str = "copy",
    *,
    data: Any = None,
    revision: str | None = None,
    seed: int = 0,
) -> AdaptedChronos:
    """A copy of a Chronos model in which self-attention over time is of another kind.

    Cross-attention, and the attention of Chronos-2 among the series of a group, stay as they are unless `where` names
    them. There tokens have no positions, or keys others than queries, so that only attention that scores every pair
    makes sense: `standard`, `btt`, `bilinear_mlr` and `mlbtc`, within the original's mask.

    Scores keep the original's scale, relative bias and rotary positions, missing and padded values are seen by nothing,
    and the tokens that end a context (end of sequence, REG, patches of the future) see and are seen by everything.
    Windows and blocks count tokens: values for Chronos-T5, patches for the others.

    Args:
        pipeline_or_path: a pipeline, which stays as it is, or what `open_pipeline` takes.
        attention: a kind or description, ``{kind: swa, window_size: 16}``, or a list of one for each layer, in the
            order of `where`.
        where: ``encoder``, ``decoder``, ``all`` of both, ``group`` (of Chronos-2), ``cross`` (of the others), or a list
            of layers: numbers of the encoder's, ``decoder.0``, ``group.0``, ``cross.0``.
        convert: what becomes of the trained weights. All but ``fresh`` keep values and outputs; of queries and keys,

            - ``copy`` keeps them, for `standard`, `swa`, `mlr` and `global_swa`. Where these score every pair with all
              components, as with an unlimited window or one level, outputs are the original's.
            - ``rotate``, for `mlr`, keeps all scores, in a basis in which far pairs lose least of theirs (see
              `tsattn.chronos.converting.rotating`).
            - ``project``, for `btt`, `bilinear_mlr` and `mlbtc`, takes the nearest form of that structure, without
              rotary positions (see `tsattn.chronos.converting.projecting`). `btt` has more components than a head of
              the original, by default as many as the model is wide: `AdaptedChronos.cost` counts what they cost.
            - ``project:kronecker``, ``project:butterfly``, ``project:monarch`` and ``project:low_rank`` take one of
              these special cases that is near. `btt` can hold the first three, `mlbtc` of one level the last.
            - ``fresh``, for every kind, draws all weights anew.
        data: series, as `predict` of the pipeline takes them, from which `rotate` learns which directions tokens have
            and the errors of scores are counted; without, every direction counts alike.
        revision: of a model on the hub, see `open_pipeline`.
        seed: of what is drawn.

    Raises:
        UserError: for a model, attention, layer or conversion that is not there or does not go with the others.
    """
    check_extra()
    if convert not in CONVERSIONS:
        raise UserError(f"convert must be one of {one_of(CONVERSIONS)}, not {convert!r}")
    original = pipeline_or_path
    if isinstance(pipeline_or_path, str | PathLike):
        original = open_pipeline(pipeline_or_path, revision=revision)
    elif revision is not None:
        raise UserError("revision is of a model on the hub: a pipeline that is open has its weights")
    family = family_of(original)
    sites = chosen_sites(family, original.inner_model, where)
    described = attention_per_layer(attention, len(sites))
    swaps = {site.name: Swap(one, convert) for site, one in zip(sites, described, strict=True)}
    adapted = AdaptedChronos(copy.deepcopy(original), original, family, swaps)
    over_time = [site for site in sites if site.is_over_time]
    moments = {} if data is None else input_moments(family, original, over_time, data, seed)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        for around in adapted.swap():
            errors = _convert(around, adapted, convert, moments.get(around.site.name), seed)
            if errors is not None:
                adapted.score_errors[around.site.name] = errors.tolist()
    return adapted


def _convert(
    around: Surroundings, adapted: AdaptedChronos, convert: str, moments: InputMoments | None, seed: int
) -> Tensor | None:
    """Give the attention at a site its weights, and the errors of its scores by head, where they are known."""
    swapped = adapted.swapped[around.site.name]
    if convert == "fresh":
        return None
    copy_values(around, swapped)
    how, _, special_case = convert.partition(":")
    if how == "project":
        return project_scores(around, swapped, seed, special_case or None)
    if convert == "rotate":
        rotate_scores(around, swapped, moments)
    else:
        copy_scores(around, swapped)
    return far_errors(around, swapped, moments)
