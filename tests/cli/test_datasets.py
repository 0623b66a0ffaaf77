"""`datasets` as a person types it, and a fit on each public data set."""

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.cli.toy_run import refusal
from tests.conftest import REAL_ROOT
from tests.data.public.test_public import HELD
from tsattn.cli import main
from tsattn.data import CARDS


def said(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["datasets", *words]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def test_list_has_a_line_for_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "ETTm2.csv").write_text("date,x\n")
    listed = said(["list", "--root", str(tmp_path)], capsys)
    head, *lines = listed.splitlines()
    assert head.split() == ["name", "rows", "columns", "frequency", "file"]
    rows = {line.split()[0]: line.split(maxsplit=4)[1:] for line in lines[: len(CARDS)]}
    assert list(rows) == list(CARDS)
    assert rows["ETTm2"] == ["69680", "7", "15min", "here"]
    assert rows["traffic"] == ["17544", "862", "h", "not here"]
    assert rows["co2"] == ["2284", "1", "W-SAT", "embedded"]
    assert str(tmp_path) in lines[-1]


def test_info_shows_the_whole_card(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, card in CARDS.items():
        text = said(["info", name, f"--root={tmp_path}"], capsys)
        assert all(len(line) <= 100 or len(line.split()) == 2 for line in text.splitlines())  # an address is not broken
        flat = " ".join(text.split())
        for word, fact in card.facts():
            assert f"{word} {fact}" in flat
        for oddity in card.oddities:
            assert f"- {oddity}" in flat
        assert (f"here no, not in {tmp_path}" in flat) is (name != "co2")


@pytest.mark.real_data
def test_check_passes_on_the_files_that_are_here(capsys: pytest.CaptureFixture[str]) -> None:
    lines = said(["check"], capsys).splitlines()
    verdicts = {line.split()[0]: line.split(maxsplit=1)[1] for line in lines}
    assert list(verdicts) == list(CARDS)
    assert {name for name, verdict in verdicts.items() if verdict == "ok"} >= {*HELD, "co2"}
    assert set(verdicts.values()) <= {"ok", "not here"}
    assert said(["check", "weather", "--root", str(REAL_ROOT)], capsys).split() == ["weather", "ok"]


def test_check_tells_what_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    body = b"date,OT\n2016-07-01 00:00:00,1.5\n2016-07-01 01:00:00,2.5\n2016-07-01 02:00:00,3.5\n"
    (tmp_path / "ETTh1.csv").write_bytes(body)
    assert main(["datasets", "check", "--root", str(tmp_path)]) == 2
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    assert lines[0].split() == ["ETTh1", "differs"]
    assert f"  its sha256 is {hashlib.sha256(body).hexdigest()}, not {CARDS['ETTh1'].sha256}" in lines
    assert "  rows: 3, not 17420" in lines
    assert "  channels: 1, not 7" in lines
    assert lines[-1].split() == ["co2", "ok"]
    assert sum(line.endswith("not here") for line in lines) == len(CARDS) - 2
    assert captured.err == f"error: missing from {tmp_path}, or different from the card: ETTh1\n"


def test_fetch_says_how_far_the_file_is_verified(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    body = b"1,2\n3,4\n"
    found = hashlib.sha256(body).hexdigest()
    path = tmp_path / "solar_AL.txt"
    path.write_bytes(body)
    words = ["fetch", "solar", "--root", str(tmp_path)]
    assert said(words, capsys) == (
        f"{path} was here already and cannot be verified against a known sum; its sha256 is {found}, "
        "but not what others report\n"
    )
    monkeypatch.setitem(CARDS, "solar", replace(CARDS["solar"], sha256=found))
    assert said(words, capsys) == f"{path} was here already and is verified\n"
    monkeypatch.setitem(CARDS, "solar", replace(CARDS["solar"], sha256="0" * 64))
    assert "is not the official solar_AL.txt" in refusal(["datasets", *words], capsys)
    assert "there is nothing to fetch" in said(["fetch", "co2"], capsys)


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
        assert "was converted with the weight column w, not v" in capfd.readouterr().err
        assert main(["fit", *data, "--data.weight_column=w", "--run", str(tmp_path / kind)]) == 0
        assert main(["predict", "--run", str(tmp_path / kind), "--output", str(tmp_path / f"{kind}.csv")]) == 0
    frames = [pd.read_csv(tmp_path / f"{kind}.csv") for kind in ("CSVDataModule", "MappedDataModule")]
    pd.testing.assert_frame_equal(frames[0], frames[1])
    assert list(frames[0].columns) == ["shop", "day", "predictions"]
