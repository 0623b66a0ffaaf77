"""The generator of source/philox.h in plain numpy: random bits that are a function of a seed and a place alone.

Source: Salmon, Moraes, Dror and Shaw, *Parallel Random Numbers: As Easy as 1, 2, 3* (SC 2011), section 3.3:
Philox4x32-10.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["keep_threshold", "kept_numbers", "philox"]

_LOW = np.uint64(2**32 - 1)
_HALF = np.uint64(32)
_GROUP = 8  # counters


def philox(seed: int, counters: npt.NDArray[np.unsignedinteger[Any]]) -> npt.NDArray[np.uint32]:
    """128 random bits for each counter.

    Args:
        seed: of 64 bits.
        counters: `(n, 4)`, words of 32 bits, the lowest first.

    Returns:
        `(n, 4)`.
    """
    x = [*counters.astype(np.uint64).T]
    keys = [seed & (2**32 - 1), seed >> 32 & (2**32 - 1)]
    for _ in range(10):
        products = np.uint64(0xD2511F53) * x[0], np.uint64(0xCD9E8D57) * x[2]
        x = [
            products[1] >> _HALF ^ x[1] ^ np.uint64(keys[0]),
            products[1] & _LOW,
            products[0] >> _HALF ^ x[3] ^ np.uint64(keys[1]),
            products[0] & _LOW,
        ]
        keys = [(keys[0] + 0x9E3779B9) % 2**32, (keys[1] + 0xBB67AE85) % 2**32]
    return np.stack(x, 1).astype(np.uint32)


def keep_threshold(p: float) -> tuple[int, float]:
    """What random bits are compared with, those below it being dropped; and the factor of numbers that are kept.

    The probability is rounded to a multiple of 2^-32, of which the factor is one over the probability of being kept.
    """
    threshold = min(round(p * 2**32), 2**32 - 1)
    return threshold, 1 / (1 - threshold / 2**32)


def kept_numbers(seed: int, count: int, p: float) -> npt.NDArray[np.bool_]:
    """Which of `count` numbers in a row the kernel of dropout keeps, `(count,)`.

    Args:
        seed: of 64 bits.
        count: of numbers.
        p: the probability of dropping one.
    """
    number = np.arange(-(-count // (4 * _GROUP)) * _GROUP, dtype=np.uint64)
    words = philox(seed, np.stack([number & _LOW, number >> _HALF, 0 * number, 0 * number], 1))
    # of 8 counters words 0 and 1 come first, then words 2 and 3
    in_order = words.reshape(-1, _GROUP, 2, 2).transpose(0, 2, 1, 3).reshape(-1)[:count]
    kept: npt.NDArray[np.bool_] = in_order >= keep_threshold(p)[0]
    return kept
