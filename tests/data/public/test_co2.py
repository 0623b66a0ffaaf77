from __future__ import annotations

import numpy as np
import pytest
import torch

from tsattn.data import CO2DataModule


@pytest.fixture(scope="module")
def co2() -> CO2DataModule:
    data = CO2DataModule()
    data.prepare_data()
    data.setup("fit")
    return data


def test_weeks_of_which_some_are_missing(co2: CO2DataModule) -> None:
    panel = co2.panel
    assert panel is not None
    assert panel.values.shape == (2284, 1)
    assert int(np.isnan(panel.values).sum()) == 59
    assert str(panel.time[0].date()) == "1958-03-29"
    assert str(panel.time[-1].date()) == "2001-12-29"
    np.testing.assert_array_equal(panel.values, co2.load_frame())
    assert co2.task is not None
    assert (co2.task.data, co2.task.channels) == ("co2", ("co2",))
    assert (co2.task.frequency, co2.task.season_length) == ("W-SAT", 52)
    train = co2.load_frame()["co2"].to_numpy()[:1598]
    assert co2.scaler.mean == pytest.approx((np.nanmean(train),))
    assert co2.scaler.scale == pytest.approx((np.nanstd(train),))


@pytest.mark.parametrize("part", ["train", "val", "test"])
def test_missing_weeks_are_masked_and_everything_else_is_not(co2: CO2DataModule, part: str) -> None:
    assert co2.task is not None
    original = co2.load_frame()["co2"].to_numpy()
    known = ~np.isnan(original)
    origins = np.array(co2.splits[0].origins(part, 208, 52))
    batches = list(co2.eval_dataloader(part))
    target = torch.cat([batch.target for batch in batches])[..., 0].double().numpy()
    scored = torch.cat([batch.target_observed for batch in batches])[..., 0].numpy()
    past = torch.cat([batch.past for batch in batches])
    seen = torch.cat([batch.past_observed for batch in batches])[..., 0].numpy()
    horizon, context = origins[:, None] + np.arange(52), origins[:, None] + np.arange(-208, 0)
    assert len(target) == {"train": 1598 - 208 - 52 + 1, "val": 228 - 52 + 1, "test": 458 - 52 + 1}[part]
    assert part != "train" or not scored.all()
    np.testing.assert_array_equal(scored, known[horizon])
    np.testing.assert_array_equal(seen, known[context])
    assert torch.isfinite(past).all()
    restored = target * co2.scaler.scale + co2.scaler.mean
    np.testing.assert_allclose(restored[scored], original[horizon][scored], atol=1e-3)
