"""The command line on a table that is mapped, not read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tsattn.cli import main


@pytest.mark.parametrize("horizon", ["4", "7"])
def test_forecasts_are_those_of_the_same_table_in_memory(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], horizon: str
) -> None:
    rng = np.random.default_rng(0)
    parts = [
        pd.DataFrame({"unique_id": f"s{number}", "ds": pd.date_range("2020-01-01", periods=rows, freq="h")}).assign(
            y=100 * number + rng.standard_normal(rows).cumsum()
        )
        for number, rows in enumerate([90, 120])
    ]
    table = tmp_path / "table.parquet"
    pd.concat(parts).to_parquet(table, index=False)
    frames = []
    for kind in ("MappedDataModule", "CSVDataModule"):
        run = str(tmp_path / kind)
        data = [f"--data={kind}", f"--data.path={table}", "--data.context_length=12", "--data.prediction_length=4"]
        assert main(["fit", *data, "--data.scaling=series", "--model.backbone=ridge", "--run", run]) == 0
        capfd.readouterr()
        output = tmp_path / f"{kind}.parquet"
        assert main(["predict", "--run", run, "--horizon", horizon, "--output", str(output)]) == 0
        assert "contexts are padded" not in capfd.readouterr().err
        frames.append(pd.read_parquet(output))
    assert len(frames[0]) == 2 * int(horizon)
    pd.testing.assert_frame_equal(frames[0], frames[1], rtol=1e-5, check_dtype=False)
