"""Which weights of a Chronos model a training changes: all, those of attention, or low-rank adapters beside these."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping

from torch import nn

from tsattn.chronos.adapted_chronos import AdaptedChronos
from tsattn.chronos.models.families import AttentionSite, chosen_sites
from tsattn.chronos.swapped.swapped_attention import SwappedAttention
from tsattn.errors import UserError

__all__ = ["prepare_training"]


def prepare_training(adapted: AdaptedChronos, trained: str | None, where: object, lora_rank: int) -> None:
    """Let the weights be trained that `trained` names, and no others.

    Args:
        adapted: the model, adapted or not.
        trained: see `ChronosNetwork`; None trains none.
        where: the layers whose attention is meant, where none is swapped.
        lora_rank: of the adapters.

    Raises:
        UserError: for `lora` without peft.
    """
    adapted.model.requires_grad_(trained == "all")
    if trained is None or trained == "all":
        return
    sites = adapted.sites or chosen_sites(adapted.family, adapted.model, where)  # type: ignore[arg-type]
    _TRAINERS[trained](adapted, sites, lora_rank)


def _attention(adapted: AdaptedChronos, sites: list[AttentionSite], lora_rank: int) -> None:
    for site in sites:
        adapted.model.get_submodule(site.path).requires_grad_(True)


def _lora(adapted: AdaptedChronos, sites: list[AttentionSite], lora_rank: int) -> None:
    """Adapters of every linear map of the attentions, as peft makes them; they begin at zero.

    What is no linear map has none and is trained itself: the factors of structured scores, norms of queries and keys,
    and weights by position.
    """
    if importlib.util.find_spec("peft") is None:
        raise UserError("trained: lora needs peft: pip install 'tsattn[chronos]'")
    from peft import LoraConfig, inject_adapter_in_model

    maps, others = [], []
    for site in sites:
        module = adapted.model.get_submodule(site.path)
        for name, part in module.named_modules():
            if isinstance(part, nn.Linear):
                maps.append(f"model.{site.path}.{name}")
            elif isinstance(module, SwappedAttention) and name.startswith("attention"):
                others += [*part.parameters(recurse=False)]
    config = LoraConfig(r=lora_rank, lora_alpha=2 * lora_rank, target_modules=maps)
    # in a container, since of a model of transformers peft asks for input embeddings, which not all have
    inject_adapter_in_model(config, nn.ModuleDict({"model": adapted.model}))
    for part in others:
        part.requires_grad_(True)


_TRAINERS: Mapping[str, Callable[[AdaptedChronos, list[AttentionSite], int], None]] = {
    "attention": _attention,
    "lora": _lora,
}
