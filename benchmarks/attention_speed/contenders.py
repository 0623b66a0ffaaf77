"""The ways of computing an attention that are compared, and whether each computes what its reference does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from tsattn.ops import full_attention, level_block_ids, multilevel_attention, sliding_window_attention

__all__ = ["HEADS", "LENGTHS", "RANKS", "WIDTH", "WINDOW", "Contender", "check", "contenders_on", "inputs"]

HEADS, WIDTH = 8, 64
RANKS = (32, 8, 6, 4, 4, 4, 4, 2)
WINDOW = 65  # 64 keys to a side, and the position itself
LENGTHS = (256, 512, 1024, 2048, 4096, 8192, 16384)
DENSE_UP_TO = 2048  # the dense evaluation needs a matrix a level and head
MASKED_UP_TO = 4096  # a mask of all pairs


@dataclass(frozen=True)
class Contender:
    """A way of computing an attention.

    Attributes:
        name: kind and implementation.
        compute: from q, k, v to the output.
        exact: the same by the plain reference.
        beside: name of the contender whose time is 1.
        longest: the greatest length it is run at.
        score_width: components of a query.
        shared_query: whether all heads share one query, and values are narrow.
        narrow_values: whether values have the width of a head, not that of the scores.
        device: where alone it runs; None for everywhere.
    """

    name: str
    compute: Callable[..., Tensor]
    exact: Callable[..., Tensor]
    beside: str
    longest: int = LENGTHS[-1]
    score_width: int = WIDTH
    shared_query: bool = False
    narrow_values: bool = False
    device: str | None = None


def mlr(q: Tensor, k: Tensor, v: Tensor, *, impl: str, causal: bool = False) -> Tensor:
    T = q.shape[2]
    numbers = [2**level for level in range(len(RANKS))]
    blocks = level_block_ids(torch.arange(T, device=q.device)[None], numbers=numbers, max_length=T)
    return multilevel_attention(q, k, v, ranks=RANKS, blocks=blocks, causal=causal, impl=impl)


def sdpa(q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal)


def reference(q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False) -> Tensor:
    T = q.shape[2]
    allowed = torch.ones(T, T, dtype=torch.bool, device=q.device).tril()[None, None] if causal else None
    return full_attention(q, k, v, allowed=allowed, impl="reference")


def swa(q: Tensor, k: Tensor, v: Tensor, *, impl: str) -> Tensor:
    return sliding_window_attention(q, k, v, window_size=WINDOW, impl=impl)


def global_swa(q: Tensor, k: Tensor, v: Tensor, *, impl: str) -> Tensor:
    """Half of the components for every pair, half for near pairs, as the pattern of that kind combines them."""
    parts = zip(q.chunk(2, -1), k.chunk(2, -1), strict=True)
    everywhere, near = (
        attend(q_part, k_part, v)
        for (q_part, k_part), attend in zip(
            parts,
            (
                lambda *x: full_attention(*x, impl="reference" if impl == "reference" else "auto"),
                lambda *x: swa(*x, impl=impl),
            ),
            strict=True,
        )
    )
    return (everywhere + near) / 2


CONTENDERS = (
    Contender("sdpa", sdpa, reference, beside="sdpa"),
    Contender("standard reference", reference, reference, beside="sdpa", longest=DENSE_UP_TO),
    Contender(
        "mlr tiles",
        lambda *x: mlr(*x, impl="tiles"),
        lambda *x: mlr(*x, impl="reference"),
        beside="sdpa",
        device="cpu",
    ),
    Contender(
        "mlr triton",
        lambda *x: mlr(*x, impl="triton"),
        lambda *x: mlr(*x, impl="reference"),
        beside="sdpa",
        device="cuda",
    ),
    Contender(
        "mlr sdpa",
        lambda *x: mlr(*x, impl="sdpa"),
        lambda *x: mlr(*x, impl="reference"),
        beside="sdpa",
        longest=DENSE_UP_TO,
    ),
    Contender(
        "mlr dense",
        lambda *x: mlr(*x, impl="reference"),
        lambda *x: mlr(*x, impl="reference"),
        beside="sdpa",
        longest=DENSE_UP_TO,
    ),
    Contender("swa blocks", lambda *x: swa(*x, impl="blocks"), lambda *x: swa(*x, impl="reference"), beside="sdpa"),
    Contender(
        "swa flex",
        lambda *x: swa(*x, impl="flex"),
        lambda *x: swa(*x, impl="reference"),
        beside="sdpa",
        device="cuda",
    ),
    Contender(
        "swa sdpa",
        lambda *x: swa(*x, impl="sdpa"),
        lambda *x: swa(*x, impl="reference"),
        beside="sdpa",
        longest=MASKED_UP_TO,
    ),
    Contender(
        "swa reference",
        lambda *x: swa(*x, impl="reference"),
        lambda *x: swa(*x, impl="reference"),
        beside="sdpa",
        longest=DENSE_UP_TO,
    ),
    Contender(
        "global_swa",
        lambda *x: global_swa(*x, impl="auto"),
        lambda *x: global_swa(*x, impl="reference"),
        beside="sdpa",
        longest=MASKED_UP_TO,
    ),
    Contender(
        "sdpa causal",
        lambda *x: sdpa(*x, causal=True),
        lambda *x: reference(*x, causal=True),
        beside="sdpa causal",
        longest=4096,
    ),
    Contender(
        "mlr tiles causal",
        lambda *x: mlr(*x, impl="tiles", causal=True),
        lambda *x: mlr(*x, impl="reference", causal=True),
        beside="sdpa causal",
        longest=4096,
        device="cpu",
    ),
    Contender(
        "mlr triton causal",
        lambda *x: mlr(*x, impl="triton", causal=True),
        lambda *x: mlr(*x, impl="reference", causal=True),
        beside="sdpa causal",
        longest=4096,
        device="cuda",
    ),
    # queries and keys of BTT are as wide as the model, those of bilinear MLR and MLBTC as the sum of p_l r_l: each
    # beside plain attention of that width
    Contender("sdpa wide", sdpa, reference, beside="sdpa wide", longest=2048, score_width=512),
    Contender(
        "btt",
        lambda *x: full_attention(*x, impl="auto"),
        lambda *x: full_attention(*x, impl="reference"),
        beside="sdpa wide",
        longest=2048,
        score_width=512,
        shared_query=True,
    ),
    Contender("sdpa 160", sdpa, reference, beside="sdpa 160", longest=2048, score_width=160),
    Contender(
        "bilinear mlr",
        lambda *x: full_attention(*x, impl="auto"),
        lambda *x: full_attention(*x, impl="reference"),
        beside="sdpa 160",
        longest=2048,
        score_width=160,
        narrow_values=True,
    ),
    Contender("sdpa 96", sdpa, reference, beside="sdpa 96", longest=2048, score_width=96),
    Contender(
        "mlbtc",
        lambda *x: full_attention(*x, impl="auto"),
        lambda *x: full_attention(*x, impl="reference"),
        beside="sdpa 96",
        longest=2048,
        score_width=96,
        narrow_values=True,
    ),
)


def inputs(contender: Contender, T: int, dtype: torch.dtype, device: str) -> list[Tensor]:
    torch.manual_seed(T)
    width = contender.score_width
    # the kernel wants values as wide as queries; a kind with narrower ones pads them itself
    value_width = WIDTH if contender.shared_query or contender.narrow_values else width
    shapes = [(1, 1 if contender.shared_query else HEADS, T, width), (1, HEADS, T, width), (1, HEADS, T, value_width)]
    return [torch.randn(shape).to(device, dtype).requires_grad_() for shape in shapes]


def check(contender: Contender, device: str, dtype: torch.dtype, T: int = 320) -> float:
    """The largest difference from the reference in value and gradients, over the largest number of each.

    On a CPU in float64; on a GPU, whose kernels do not take that, in the dtype that is timed, from a reference in
    float32.
    """
    tensors = inputs(contender, T, torch.float64 if device == "cpu" else dtype, device)
    exact = [t.detach().to(torch.promote_types(t.dtype, torch.float32)).requires_grad_() for t in tensors]
    results = []
    for function, leaves in ((contender.compute, tensors), (contender.exact, exact)):
        out = function(*leaves)
        results.append([out, *torch.autograd.grad(out.square().sum(), leaves)])
    return max(((a - b).abs().max() / b.abs().max()).item() for a, b in zip(*results, strict=True))


def contenders_on(device: str) -> list[Contender]:
    return [contender for contender in CONTENDERS if contender.device in (None, device)]
