"""`datasets` as a person types it, and a fit on each public data set."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.test_bad_input import refusal
from tests.conftest import REAL_ROOT
from tests.data.public.test_public import HELD
from tsattn.cli import main
from tsattn.data import CARDS

NAMES = ", ".join(CARDS)


def said(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["datasets", *words]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def test_list_has_a_line_for_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "ETTm2.csv").write_text("date,x\n")
    listed = said(["list", "--root", str(tmp_path)], capsys)
    assert said(["--root", str(tmp_path), "list"], capsys) == listed
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
    assert captured.err == f"error: not as on the card, or not in {tmp_path}: ETTh1\n"


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
        "not the one that others report\n"
    )
    monkeypatch.setitem(CARDS, "solar", replace(CARDS["solar"], sha256=found))
    assert said(words, capsys) == f"{path} was here already and is verified\n"
    monkeypatch.setitem(CARDS, "solar", replace(CARDS["solar"], sha256="0" * 64))
    assert "is not the official solar_AL.txt" in refusal(["datasets", *words], capsys)
    assert "there is nothing to fetch" in said(["fetch", "co2"], capsys)


def test_fetch_without_a_connection_says_where_to_put_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1")
    url = "http://127.0.0.1:9/traffic/traffic.csv"  # nobody listens there
    monkeypatch.setitem(CARDS, "traffic", replace(CARDS["traffic"], url=url))
    message = refusal(["datasets", "fetch", "traffic", "--root", str(tmp_path)], capsys)
    assert f"{url} cannot be reached to download it; put the file traffic.csv into {tmp_path}" in message


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["lst"], "unknown action 'lst' (did you mean list?); valid: list, info, fetch, check, convert, diagnose"),
        (["--root", "."], "datasets needs an action; valid: list, info, fetch, check, convert, diagnose"),
        (["info"], f"info needs the name of a data set; valid: {NAMES}"),
        (["info", "etth1"], f"unknown data set 'etth1' (did you mean ETTh1?); valid: {NAMES}"),
        (["check", "co2", "CO2"], f"unknown data set 'CO2' (did you mean co2?); valid: {NAMES}"),
        (["list", "--rot", "x"], "unknown argument --rot (did you mean --root?); valid: --root"),
        (["list", "--root"], "--root needs a value"),
        (["diagnose", "x.csv", "--prediction_length", "2.5"], "--prediction_length must be a whole number, not 2.5"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_words(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert message in refusal(["datasets", *words], capsys)


def test_it_starts_at_once() -> None:
    code = (
        "import sys; from tsattn.cli import main; code = main(sys.argv[1:]); "
        "heavy = {'torch', 'lightning', 'pandas', 'numpy'} & set(sys.modules); sys.exit(9 if heavy else code)"
    )
    done = subprocess.run([sys.executable, "-c", code, "datasets", "info", "weather"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
