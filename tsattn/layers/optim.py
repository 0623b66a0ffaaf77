"""Optimizers and the learning-rate schedule.

muP, the maximal update parametrization, sets initial variances and learning rates by fan-in. Then the changes of the
activations keep their size as the width grows, and every width can use the same learning rate. Sources: Yang & Hu,
*Feature Learning in Infinite-Width Neural Networks* (2021); for block-diagonal factors Qiu et al., *Compute Better
Spent* (2024); for attention Kuang et al. (ICML 2025).

Queries and keys grow together in training, so the logits need a smaller factor than `1 / sqrt(r)`. These rules do not
change the attention's scaling: set `scaling: mup` as well.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor, nn

from tsattn.errors import UserError, is_number, one_of

BETAS = (0.9, 0.999)
"""Decay rates of AdamW's averages of gradients and of their squares: PyTorch's defaults."""

SCHEDULES = ("cosine", "constant")
"""Schedules of the learning rate after its warm-up."""


def adamw(
    modules: Iterable[nn.Module],
    learning_rate: float,
    weight_decay: float,
    *,
    betas: tuple[float, float] = BETAS,
    fused: bool = True,
) -> torch.optim.AdamW:
    """AdamW over all parameters; weight decay acts on tensors with two axes or more, not on biases and norms."""
    parameters = [p for module in modules for p in module.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.dim() > 1], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.dim() <= 1], "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    return torch.optim.AdamW(groups, lr=learning_rate, betas=betas, fused=fused)


class MupModule(Protocol):
    """A module that declares the roles of its parameters; both attributes are optional.

    Without a declaration, the weight of an `nn.Linear` is a hidden weight, and its fan-in is its number of inputs.
    Other parameters (biases, norms, tensors of unknown meaning) learn at the plain rate and keep their initialisation.

    Attributes:
        mup_roles: roles by name of a parameter or submodule; attributes that are None are ignored. ``input``: its
            inputs do not grow with the width, so it learns at the plain rate and keeps its initialisation. ``output``:
            it starts at zero, and its weight learns like a hidden weight.
    """

    mup_roles: ClassVar[dict[str, str]]

    def mup_fans(self) -> Mapping[str, tuple[int, int]]:
        """For hidden weights that are block-diagonal factors, by name: inputs of a block, outputs for all heads."""


def mup_groups(
    module: nn.Module, learning_rate: float, weight_decay: float, base_width: int = 768
) -> list[dict[str, Any]]:
    """Parameter groups for AdamW under muP; the sources are at the head of this module.

    Weights of hidden layers, output projections and read-out learn at `learning_rate * base_width / fan_in`, the rest
    at `learning_rate`. AdamW multiplies the decay by the rate, so the decay of these weights is divided by their factor
    of the rate. All matrices then decay by `learning_rate * weight_decay` a step, at every width.

    Args:
        module: declares the roles of its parameters, see `MupModule`.
        learning_rate: the rate of a hidden weight with `base_width` inputs.
        weight_decay: weight decay of matrices; vectors have no decay.
        base_width: the fan-in at which a hidden weight learns at the plain rate.

    Returns:
        A group for each pair of rate and decay; each trainable parameter is in one group.
    """
    if base_width < 1:
        raise UserError(f"base_width must be at least 1, not {base_width}")
    fan_ins = _hidden_fan_ins(module)
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for parameter in module.parameters():
        if parameter.requires_grad:
            factor = base_width / fan_ins.get(parameter, base_width)
            decay = weight_decay / factor if parameter.dim() > 1 else 0.0
            groups.setdefault((learning_rate * factor, decay), []).append(parameter)
    return [{"params": params, "lr": rate, "weight_decay": decay} for (rate, decay), params in groups.items()]


@torch.no_grad()
def mup_init_(module: nn.Module) -> None:
    """Initialise by muP: hidden weights normal with variance 1 / fan-in, output projections and read-out zero.

    Structured factors are scaled down to their cap, see `cap_rms_`, so that the first step does not shrink them. Other
    parameters, such as embeddings, norms and biases, keep their values. Source: Yang & Hu (2021), Qiu et al. (2024).

    Args:
        module: initialised in place; declares the roles of its parameters, see `MupModule`.
    """
    for parameter, fan_in in _hidden_fan_ins(module).items():
        parameter.normal_(std=1 / math.sqrt(fan_in))
    cap_rms_(module)
    for parameter in _of_role(module, "output"):
        parameter.zero_()


@torch.no_grad()
def cap_rms_(module: nn.Module) -> None:
    """Scale structured factors down, in place, to an RMS of at most `sqrt(min(fan_in, fan_out)) / fan_in`.

    Call it after each step of the optimizer. The RMS is over the whole factor, all heads and blocks together. fan_out
    counts the outputs of all heads. Only factors that modules declare in `mup_fans` are capped. Source: Qiu et al.
    (2024); Kuang et al. (ICML 2025).
    """
    for parameter, (fan_in, fan_out) in _structured_fans(module).items():
        rms = parameter.to(torch.promote_types(parameter.dtype, torch.float32)).square().mean().sqrt()
        factor: Tensor = math.sqrt(min(fan_in, fan_out)) / fan_in / rms
        parameter.mul_(factor.clamp(max=1.0))  # without a branch, so that the host does not wait for the device


def rate_schedule(
    optimizer: torch.optim.Optimizer, warmup_steps: int, total_steps: float, schedule: str = "cosine"
) -> torch.optim.lr_scheduler.LambdaLR:
    """The learning rate rises linearly over `warmup_steps`, then falls along half a cosine to zero at `total_steps`.

    It stays at its peak with `schedule` ``constant``, or if `total_steps` is infinite, as in a training with a time
    limit.
    """

    def factor(step: int) -> float:
        if step < warmup_steps:
            return (step + 1) / (warmup_steps + 1)
        if schedule == "constant":
            return 1.0
        done = (step - warmup_steps) / max(1, total_steps - warmup_steps)
        return 0.5 * (1 + math.cos(math.pi * min(1.0, done)))

    return torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


def choose_warmup(steps: float) -> int:
    """Return the number of warm-up steps: a tenth of all steps, at most 100."""
    return int(min(100, steps // 10))


@dataclass(frozen=True)
class Optimization:
    """Settings of AdamW and its schedule; `ForecastingModule` explains the arguments."""

    learning_rate: float
    weight_decay: float
    warmup_steps: int | None
    schedule: str = SCHEDULES[0]
    betas: Sequence[float] = BETAS
    mup: bool = False

    def __post_init__(self) -> None:
        if not (is_number(self.learning_rate) and self.learning_rate > 0):
            raise UserError(f"learning_rate must be above 0, not {self.learning_rate}")
        for name, value in (("weight_decay", self.weight_decay), ("warmup_steps", self.warmup_steps or 0)):
            if not (is_number(value) and value >= 0):
                raise UserError(f"{name} must be at least 0, not {value}")
        if self.schedule not in SCHEDULES:
            raise UserError(f"schedule must be one of {one_of(SCHEDULES)}, not {self.schedule!r}")
        if self.betas is None or len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise UserError(f"betas must be two numbers of at least 0 and below 1, not {self.betas}")

    def begin(
        self, network: nn.Module, steps: float, *, fused: bool
    ) -> tuple[torch.optim.AdamW, torch.optim.lr_scheduler.LRScheduler]:
        """Build the optimizer of a network and its learning-rate schedule; `steps` may be infinite."""
        first, second = self.betas
        if self.mup:
            groups = mup_groups(network, self.learning_rate, self.weight_decay)
            optimizer = torch.optim.AdamW(groups, lr=self.learning_rate, betas=(first, second), fused=fused)
        else:
            optimizer = adamw([network], self.learning_rate, self.weight_decay, betas=(first, second), fused=fused)
        warmup = choose_warmup(steps) if self.warmup_steps is None else self.warmup_steps
        return optimizer, rate_schedule(optimizer, warmup, steps, self.schedule)


def _hidden_fan_ins(module: nn.Module) -> dict[nn.Parameter, int]:
    """The fan-in of every weight whose inputs grow with the width."""
    fan_ins = {
        part.get_parameter("weight"): part.in_features for part in module.modules() if isinstance(part, nn.Linear)
    }
    fan_ins |= {parameter: fan_in for parameter, (fan_in, _) in _structured_fans(module).items()}
    for parameter in _of_role(module, "input"):
        fan_ins.pop(parameter, None)
    return fan_ins


def _structured_fans(module: nn.Module) -> dict[nn.Parameter, tuple[int, int]]:
    """Inputs of a block, and outputs for all heads, of every factor that a module declares."""
    found = {}
    for part in module.modules():
        declare = getattr(part, "mup_fans", None)
        if declare is not None:
            found.update({part.get_parameter(name): fans for name, fans in declare().items()})
    return found


def _of_role(module: nn.Module, role: str) -> Iterator[nn.Parameter]:
    """The parameters that a module declares with a role."""
    for part in module.modules():
        for name, declared in getattr(part, "mup_roles", {}).items():
            if declared not in ("input", "output"):
                raise UserError(f"mup_roles of {type(part).__name__} must be input or output, not {declared!r}")
            if declared == role:
                named = getattr(part, name)
                yield from named.parameters() if isinstance(named, nn.Module) else [] if named is None else [named]
