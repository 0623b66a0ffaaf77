"""The command line on a table that is mapped, not read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tsattn.cli import main


def test_a_table_is_converted_and_fitted(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    days = pd.date_range("2020-01-01", periods=90)
    table = pd.DataFrame({"shop": "a", "day": days.strftime("%d.%m.%Y"), "sales": rng.random(90), "price": 1.5, "w": 2})
    table.to_csv(tmp_path / "sales.csv", sep=";", index=False)
    words = ["datasets", "convert", str(tmp_path / "sales.csv"), str(tmp_path / "sales"), "--separator", ";"]
    words += ["--id_column", "shop", "--time_column", "day", "--target", "sales", "--past_covariates", "price"]
    words += ["--weight_column", "w"]
    assert main(words) == 0
    assert capfd.readouterr().out.startswith(f"{tmp_path}/sales: 90 rows of 1 series, frequency D, ")
    assert main(words) == 2
    assert "exists already; name another folder, or add --overwrite" in capfd.readouterr().err
    assert main([*words, "--overwrite"]) == 0
    for kind in ("CSVDataModule", "MappedDataModule"):
        data = [f"--data={kind}", f"--data.path={tmp_path / 'sales'}", "--data.context_length=12"]
        data += ["--data.prediction_length=4", "--model.backbone=ridge"]
        assert main(["fit", *data, "--data.weight_column=v", "--run", str(tmp_path / "wrong")]) == 2
        assert "was converted with w as the column of weights, not v" in capfd.readouterr().err
        assert main(["fit", *data, "--data.weight_column=w", "--run", str(tmp_path / kind)]) == 0
        assert main(["predict", "--run", str(tmp_path / kind), "--output", str(tmp_path / f"{kind}.csv")]) == 0
    frames = [pd.read_csv(tmp_path / f"{kind}.csv") for kind in ("CSVDataModule", "MappedDataModule")]
    pd.testing.assert_frame_equal(frames[0], frames[1])
    assert list(frames[0].columns) == ["shop", "day", "predictions"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["in.csv"], "convert needs a table and a folder to write: datasets convert IN OUT"),
        (["in.csv", "out"], "in.csv is not there: no such file or folder"),
        (["in.csv", "out", "--max_filled", "2"], "max_filled must be from 0 to 1"),
        (["in.csv", "out", "--tagret", "y"], "did you mean --target"),
    ],
)
def test_words_of_convert(words: list[str], message: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["datasets", "convert", *words]) == 2
    assert message in capfd.readouterr().err
