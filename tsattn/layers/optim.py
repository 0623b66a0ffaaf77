"""Optimizers and the learning-rate schedule.

muP, the maximal update parametrization, sets initial variances and learning rates by fan-in, so that the changes of the
activations keep their size as the width grows and one learning rate serves every width. Sources: Yang & Hu, *Feature
Learning in Infinite-Width Neural Networks* (2021); for block-diagonal factors Qiu et al., *Compute Better Spent*
(2024); for attention Kuang et al. (ICML 2025).

Queries and keys that learn alike grow together, so that the logits need a smaller factor than `1 / sqrt(r)`: give the
attention `scaling: mup` as well. These rules do not change its scaling.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor, nn

from tsattn.errors import UserError, one_of

BETAS = (0.9, 0.999)
"""How slowly AdamW forgets past gradients, and their squares: PyTorch's own."""

SCHEDULES = ("cosine", "constant")
"""What the learning rate does after its warm-up."""


def adamw(
    modules: Iterable[nn.Module],
    learning_rate: float,
    weight_decay: float,
    *,
    betas: tuple[float, float] = BETAS,
    fused: bool = True,
) -> torch.optim.AdamW:
    """AdamW over all parameters, with weight decay on what has two axes or more: no biases and norms."""
    parameters = [p for module in modules for p in module.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.dim() > 1], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.dim() <= 1], "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    return torch.optim.AdamW(groups, lr=learning_rate, betas=betas, fused=fused)


class MupModule(Protocol):
    """What a module may declare about its own parameters; both attributes are optional.

    What is not declared: the weight of an `nn.Linear` is a hidden weight with its inputs as fan-in, and everything else
    (biases, norms, tensors of unknown meaning) learns at the plain rate and keeps its initialisation.

    Attributes:
        mup_roles: by name of a parameter or submodule, ``input``: its inputs do not grow with the width, so it learns
            at the plain rate and keeps its initialisation; or ``output``: it starts at zero, and its weight learns as a
            hidden one. A named attribute that is None is passed over.
    """

    mup_roles: ClassVar[dict[str, str]]

    def mup_fans(self) -> Mapping[str, tuple[int, int]]:
        """Hidden weights that are block-diagonal factors: by name, inputs of a block and its outputs of all heads."""


def mup_groups(
    module: nn.Module, learning_rate: float, weight_decay: float, base_width: int = 768
) -> list[dict[str, Any]]:
    """Parameter groups for AdamW under muP (Yang & Hu 2021; Qiu et al. 2024; Kuang et al., ICML 2025).

    Hidden weights, and those of output projections and read-out, learn at `learning_rate * base_width / fan_in`, the
    rest at `learning_rate`. AdamW multiplies the decay by the rate, so the decay of a hidden weight is divided by what
    its rate is multiplied by: all matrices decay by `learning_rate * weight_decay` a step, whatever the width.

    Args:
        module: declares what its parameters are, see `MupModule`.
        learning_rate: the rate of a hidden weight with `base_width` inputs.
        weight_decay: of matrices; vectors have none.
        base_width: the fan-in at which a hidden weight learns at the plain rate.

    Returns:
        Each trainable parameter once, in one group for each pair of rate and decay.
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
    """Initialise as muP asks: hidden weights normal with variance 1 / fan-in, output projections and read-out zero.

    Structured factors start at the lesser of that and their cap, see `cap_rms_`, so that the first step does not shrink
    them. What is neither, such as embeddings, norms and biases, keeps its values. Source: Yang & Hu (2021), Qiu et al.
    (2024).

    Args:
        module: initialised in place; declares what its parameters are, see `MupModule`.
    """
    for parameter, fan_in in _hidden_fan_ins(module).items():
        parameter.normal_(std=1 / math.sqrt(fan_in))
    cap_rms_(module)
    for parameter in _of_role(module, "output"):
        parameter.zero_()


@torch.no_grad()
def cap_rms_(module: nn.Module) -> None:
    """Scale structured factors down, in place, to an RMS of at most `sqrt(min(fan_in, fan_out)) / fan_in`.

    For after each step of the optimizer. The RMS is that of the whole factor, all heads and blocks together, and
    fan_out counts the outputs of all heads, as one matrix for all of them has; only what modules declare in `mup_fans`
    is capped. Source: Qiu et al. (2024); Kuang et al. (ICML 2025).
    """
    for parameter, (fan_in, fan_out) in _structured_fans(module).items():
        rms = parameter.to(torch.promote_types(parameter.dtype, torch.float32)).square().mean().sqrt()
        factor: Tensor = math.sqrt(min(fan_in, fan_out)) / fan_in / rms
        parameter.mul_(factor.clamp(max=1.0))  # nothing waits for the device


def rate_schedule(
    optimizer: torch.optim.Optimizer, warmup_steps: int, total_steps: float, schedule: str = "cosine"
) -> torch.optim.lr_scheduler.LambdaLR:
    """The learning rate rises linearly over `warmup_steps`, then falls along half a cosine to zero at `total_steps`.

    With `schedule` ``constant``, or where the end is not known (`total_steps` infinite, as when training is bounded by
    time), it stays at its peak.
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
    """Return the steps over which the learning rate rises: a tenth of all, at most 100."""
    return int(min(100, steps // 10))


@dataclass(frozen=True)
class Optimization:
    """Choices of a training by AdamW; `ForecastingModule` explains the arguments."""

    learning_rate: float
    weight_decay: float
    warmup_steps: int | None
    schedule: str = SCHEDULES[0]
    betas: Sequence[float] = BETAS
    mup: bool = False

    def __post_init__(self) -> None:
        if not self.learning_rate > 0:
            raise UserError(f"learning_rate must be above 0, not {self.learning_rate}")
        for name, value in (("weight_decay", self.weight_decay), ("warmup_steps", self.warmup_steps)):
            if value is not None and not value >= 0:
                raise UserError(f"{name} must be at least 0, not {value}")
        if self.schedule not in SCHEDULES:
            raise UserError(f"schedule must be one of {one_of(SCHEDULES)}, not {self.schedule!r}")
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise UserError(f"betas must be two numbers of at least 0 and below 1, not {list(self.betas)}")

    def begin(
        self, network: nn.Module, steps: float, *, fused: bool
    ) -> tuple[torch.optim.AdamW, torch.optim.lr_scheduler.LRScheduler]:
        """Build the optimizer of a network, and the schedule of its rates; steps may be infinite."""
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
    """Inputs of a block, and outputs of all heads, of every factor that a module declares."""
    found = {}
    for part in module.modules():
        declare = getattr(part, "mup_fans", None)
        if declare is not None:
            found.update({part.get_parameter(name): fans for name, fans in declare().items()})
    return found


def _of_role(module: nn.Module, role: str) -> Iterator[nn.Parameter]:
    """The parameters that a module declares to have a role."""
    for part in module.modules():
        for name, declared in getattr(part, "mup_roles", {}).items():
            if declared not in ("input", "output"):
                raise UserError(f"mup_roles of {type(part).__name__} must be input or output, not {declared!r}")
            if declared == role:
                named = getattr(part, name)
                yield from named.parameters() if isinstance(named, nn.Module) else [] if named is None else [named]
