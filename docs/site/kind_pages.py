"""Reference of what a description may name: kinds of attention, kinds of predictor, classes of data."""

from __future__ import annotations

from typing import Any

from docs.site.arguments import described, text_of
from docs.site.markdown_parts import Entry, code_block, definitions
from tsattn.attention import KINDS, Attention, AttentionOptions, attention_arguments, attention_class
from tsattn.backbones import BACKBONES, PRETRAINED_NETWORKS, backbone_class
from tsattn.chronos.chronos_predictor import ChronosOptions
from tsattn.descriptions import imported, keyword_arguments
from tsattn.predictors import PREDICTORS, predictor_arguments
from tsattn.pretrained.tiny import TinyOptions

__all__ = ["attention_page", "predictor_page"]

_ATTENTION = """# Attentions

Name an attention by `attention=` in Python, `--attention` on the command line, or `attention:` of a backbone in YAML.
Give a kind (`mlr`), a description (`{kind: mlr, ranks: [4, 2, 2]}`), or a list with one of these for each layer. Name
your own class by its import path. [tsattn.attention](python/tsattn.attention.md) has the classes.
"""

_PREDICTORS = """# Predictors

Name a predictor by the first argument of `Forecaster` in Python, or by `--model.backbone` on the command line. Give a
kind (`patchtst`) or a description (`{kind: patchtst, d_model: 64}`). Name your own class by its import path.
"""

_OPTIONS = {"chronos": ChronosOptions, "tiny": TinyOptions}


def attention_page() -> str:
    """Every kind of attention, with its arguments."""
    common = [name for name in AttentionOptions.__annotations__ if name in attention_arguments(Attention)]
    parts = [_ATTENTION]
    for kind in KINDS:
        cls = attention_class(kind)
        own = [name for name in attention_arguments(cls) if name not in common]
        parts += [_kind(kind, cls, described(cls, own), f"attention: {_example(kind, own)}")]
    parts += ["## Arguments of every kind\n", definitions(described(Attention, common))]
    return "\n".join(parts)


def predictor_page() -> str:
    """Every kind of predictor, with its arguments: trained networks, closed forms, averages, pretrained models."""
    parts = [_PREDICTORS, "## Trained networks\n"]
    for kind in BACKBONES:
        cls = backbone_class(kind)
        parts.append(_kind(kind, cls, described(cls, keyword_arguments(cls)), level=3))
    parts.append("## Other predictors\n")
    for kind, path in PREDICTORS.items():
        cls = imported(path)
        networks = [backbone_class(kind), _OPTIONS[kind]] if kind in PRETRAINED_NETWORKS else []
        parts.append(_kind(kind, cls, described(cls, predictor_arguments(kind), *networks), level=3))
    return "\n".join(parts)


def _kind(kind: str, cls: type[Any], arguments: list[Entry], example: str = "", level: int = 2) -> str:
    parts = [f"{'#' * level} {kind}\n", text_of(cls) + "\n"]
    if example:
        parts.append(code_block("yaml", example))
    parts.append(definitions(arguments) if arguments else "It has no arguments of its own.\n")
    return "\n".join(parts)


def _example(kind: str, own: list[str]) -> str:
    return f"{{kind: {kind}}}" if own else kind
