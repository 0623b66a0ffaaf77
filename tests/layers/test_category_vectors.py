"""Vectors in the place of categories, against a lookup by hand."""

from __future__ import annotations

import numpy as np
import torch

from tsattn.layers import CategoryVectors

CATEGORIES = ((), ("a", "b", "c"), ("x",), tuple("abcdefghijkl"))


def test_a_category_is_its_vector_and_one_not_seen_the_mean_of_all() -> None:
    torch.manual_seed(0)
    vectors = CategoryVectors(CATEGORIES).double()
    rng = np.random.default_rng(0)
    columns = np.stack([rng.standard_normal((2, 5)), *(rng.integers(0, n + 1, (2, 5)) for n in (3, 1, 12))], -1)
    found = vectors(torch.from_numpy(columns)).detach().numpy()
    tables = [table.weight.detach().numpy() for table in vectors.vectors]
    assert [table.shape for table in tables] == [(3, 3), (1, 1), (12, 8)]
    for place in np.ndindex(2, 5):
        number, *codes = columns[place]
        rows = [table.mean(0) if code == 0 else table[int(code) - 1] for table, code in zip(tables, codes, strict=True)]
        np.testing.assert_allclose(found[place], np.concatenate([[number], *rows]))
    assert found.shape[-1] == CategoryVectors.count(CATEGORIES, 4) == 1 + 3 + 1 + 8
