"""The backbones that the contract is tested on. A new one adds its descriptions here and inherits every test."""

from typing import Any

import torch
from torch import nn

from tsattn.backbones import Backbone, backbone_class, build_backbone
from tsattn.task import Output, Task

SMALL = {"d_model": 16, "num_heads": 2}

CASES: dict[str, dict[str, Any]] = {
    "transformer": {"kind": "transformer", **SMALL},
    "transformer-mlr-rotary": {"kind": "transformer", "attention": "mlr", "positions": "rotary", **SMALL},
    "transformer-independent": {
        **{"kind": "transformer", "channels": "independent", "linear_path": "learned", **SMALL},
        **{"attention": ["swa", "global_swa"]},
    },
    "transformer-change-points": {
        "kind": "transformer",
        "attention": ["standard", {"kind": "mlr", "ranks": [4, 4], "blocks": {"change_points": [2, 5]}}],
        **SMALL,
    },
    "transformer-calendar": {"kind": "transformer", "calendar": True, "linear_path": "ridge", **SMALL},
    "patchtst": {"kind": "patchtst", **SMALL},
    "patchtst-last": {"kind": "patchtst", "subtract_last": True, "pad_end": True, "linear_path": "learned", **SMALL},
    "patchtst-pad-end": {
        **{"kind": "patchtst", "patch_len": 5, "stride": 3, "pad_end": True, "calendar": True, **SMALL},
        **{"attention": {"kind": "mlr", "ranks": [4, 4], "blocks": {"change_points": [1, 3]}}},
    },
    "patchtst-masked": {"kind": "patchtst", "patch_len": 4, "patch_mask": 0.5, **SMALL},
    "patchtst-calendar": {"kind": "patchtst", "patch_len": 4, "stride": 4, "calendar": True, **SMALL},
    "itransformer": {"kind": "itransformer", "attention": "btt", "linear_path": "learned", **SMALL},
    "itransformer-calendar": {
        **{"kind": "itransformer", "calendar": True, "attention": {"kind": "mlr", "ranks": [4, 4]}},
        "groups": ["all", {"first": ["a"], "others": ["c", "b"]}],
        **SMALL,
    },
    "dlinear-individual": {"kind": "dlinear", "individual": True, "kernel_size": 5},
    "nlinear": {"kind": "nlinear"},
    "nlinear-individual": {"kind": "nlinear", "individual": True},
}

# whose forecasts move and grow with the window: all that normalise windows
EQUIVARIANT = tuple(case for case in CASES if not case.startswith(("dlinear", "nlinear")))


def build(
    case: str, task: Task, output: Output = Output(), *, dtype: torch.dtype = torch.float64, seed: int = 0
) -> Backbone:
    """The backbone of a case, in eval mode, away from a start at which some parts add nothing."""
    torch.manual_seed(seed)
    return randomised(build_backbone(CASES[case], task, output)).to(dtype).eval()


def randomised(module: Backbone) -> Backbone:
    for parameter in module.parameters():
        nn.init.normal_(parameter, parameter.mean().item(), 0.3)
    return module


def emits_quantiles(case: str) -> bool:
    return backbone_class(CASES[case]["kind"]).emits_quantiles


def uses_covariates(case: str) -> bool:
    return backbone_class(CASES[case]["kind"]).uses_covariates
