from __future__ import annotations

import gzip
import hashlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pandas as pd
import pytest

from tsattn.data import CARDS, PublicDataModule
from tsattn.data.public.cards import data_root, fetch
from tsattn.errors import UserError

BODY = b"date,OT\n2016-07-01 00:00:00,1.5\n2016-07-01 01:00:00,2.5\n2016-07-01 02:00:00,3.5\n"
SUM = hashlib.sha256(BODY).hexdigest()


class Site:
    """A server for one file, that counts its requests."""

    def __init__(self) -> None:
        self.status = 200
        self.body = BODY
        self.announced = len(BODY)
        self.requests: list[str] = []
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.requests.append(self.path)
                self.send_response(site.status)
                self.send_header("Content-Length", str(site.announced))
                self.end_headers()
                self.wfile.write(site.body)

            def log_message(self, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/ETT-small/"


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    site = Site()
    threading.Thread(target=site.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    publish(monkeypatch, site.url)
    yield site
    site.server.shutdown()
    site.server.server_close()


@pytest.fixture
def closed_port(monkeypatch: pytest.MonkeyPatch) -> str:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/"
    publish(monkeypatch, url)
    return url


def publish(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    card = replace(CARDS["ETTh1"], url=f"{url}ETTh1.csv", sha256=SUM, rows=3, columns=1)
    monkeypatch.setitem(CARDS, "ETTh1", card)
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1")


def refusal(data: PublicDataModule) -> str:
    with pytest.raises(UserError) as caught:
        data.prepare_data()
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    assert "ETTh1.csv" in message
    return message


def test_file_is_fetched_once(site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "not" / "there" / "yet"
    data = PublicDataModule("ETTh1", root=str(root))
    data.prepare_data()
    assert site.requests == ["/ETT-small/ETTh1.csv"]
    assert (root / "ETTh1.csv").read_bytes() == BODY
    assert [path.name for path in root.iterdir()] == ["ETTh1.csv"]
    assert capsys.readouterr().out == "", "standard output is for results"
    data.prepare_data()
    assert data.load_frame()["OT"].tolist() == [1.5, 2.5, 3.5]
    assert PublicDataModule("ETTh1", root=str(root)).load_frame().index[0] == pd.Timestamp("2016-07-01")
    assert len(site.requests) == 1


def test_forecasting_from_another_file_fetches_nothing(site: Site, tmp_path: Path) -> None:
    data = PublicDataModule("ETTh1", root=str(tmp_path))
    data.forecast_from(tmp_path / "mine.csv")
    data.prepare_data()
    assert site.requests == []


@pytest.mark.parametrize("fault", ["altered", "empty", "cut short", "404", "500"])
def test_bad_answer_is_refused_and_leaves_nothing(site: Site, tmp_path: Path, fault: str) -> None:
    site.body = {"altered": BODY.replace(b"2.5", b"9.5"), "empty": b"", "cut short": BODY[:40]}.get(fault, b"sorry")
    site.announced = len(BODY) if fault == "cut short" else len(site.body)
    site.status = int(fault) if fault.isdigit() else 200
    assert site.url in refusal(PublicDataModule("ETTh1", root=str(tmp_path)))
    assert list(tmp_path.iterdir()) == []


def test_unreachable_server_names_the_folder_to_put_the_file_into(closed_port: str, tmp_path: Path) -> None:
    message = refusal(PublicDataModule("ETTh1", root=str(tmp_path / "ett")))
    assert closed_port in message
    assert f"put the file ETTh1.csv into {tmp_path / 'ett'}" in message


@pytest.mark.parametrize("content", [b"", BODY[:-1], BODY + b"2016-07-01 03:00:00,4.5\n"])
def test_other_file_in_its_place_is_refused_and_left_untouched(site: Site, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "ETTh1.csv"
    path.write_bytes(content)
    message = refusal(PublicDataModule("ETTh1", root=str(tmp_path)))
    assert str(path) in message
    assert "sha256" in message
    assert path.read_bytes() == content
    assert site.requests == []


def test_folder_in_its_place_is_refused(site: Site, tmp_path: Path) -> None:
    (tmp_path / "ETTh1.csv").mkdir()
    assert str(tmp_path) in refusal(PublicDataModule("ETTh1", root=str(tmp_path)))


def test_root_below_a_file_is_refused(site: Site, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    root = tmp_path / "file" / "data"
    assert str(root) in refusal(PublicDataModule("ETTh1", root=str(root)))


def test_explicit_root_is_final(closed_port: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "ETTh1.csv").write_bytes(BODY)
    monkeypatch.setenv("TSATTN_DATA", str(elsewhere))
    assert len(PublicDataModule("ETTh1").load_frame()) == 3
    assert str(tmp_path / "mine") in refusal(PublicDataModule("ETTh1", root=str(tmp_path / "mine")))


@pytest.mark.parametrize("variable", [None, ""])
def test_root_is_data_below_the_working_folder_without_the_variable(
    closed_port: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str | None
) -> None:
    monkeypatch.delenv("TSATTN_DATA", raising=False)
    if variable is not None:
        monkeypatch.setenv("TSATTN_DATA", variable)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "ETTh1.csv").write_bytes(BODY)
    assert data_root(None) == Path("data")
    assert len(PublicDataModule("ETTh1").load_frame()) == 3


def test_a_copy_with_another_accepted_sum_is_taken(site: Site, tmp_path: Path) -> None:
    card = replace(CARDS["ETTh1"], sha256="0" * 64, same_content=(SUM,))
    assert fetch(card, tmp_path).read_bytes() == BODY
    assert fetch(card, tmp_path).read_bytes() == BODY
    assert len(site.requests) == 1


@pytest.mark.parametrize(
    ("reported", "said"),
    [(None, f"{SUM}\n"), (SUM, f"{SUM}, as others report\n"), ("0" * 64, "not the one that others")],
)
def test_a_file_without_a_known_sum_is_kept_and_its_sum_printed(
    site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str], reported: str | None, said: str
) -> None:
    card = replace(CARDS["ETTh1"], sha256=None, reported_sha256=reported)
    assert fetch(card, tmp_path).read_bytes() == BODY
    printed = capsys.readouterr().err
    assert "ETTh1.csv cannot be verified against a known sum; its sha256 is " in printed
    assert said in printed


def test_a_packed_file_is_unpacked(site: Site, tmp_path: Path) -> None:
    site.body = gzip.compress(BODY)
    site.announced = len(site.body)
    assert CARDS["ETTh1"].url is not None
    card = replace(CARDS["ETTh1"], url=f"{CARDS['ETTh1'].url}.gz")
    assert fetch(card, tmp_path).read_bytes() == BODY
    assert [path.name for path in tmp_path.iterdir()] == ["ETTh1.csv"]


@pytest.mark.parametrize("fault", ["cut", "plain"])
def test_a_packed_file_that_cannot_be_unpacked_is_refused(site: Site, tmp_path: Path, fault: str) -> None:
    site.body = gzip.compress(BODY)[:-9] if fault == "cut" else BODY
    site.announced = len(site.body)
    card = replace(CARDS["ETTh1"], url=f"{CARDS['ETTh1'].url}.gz", sha256=None)
    with pytest.raises(UserError, match="was cut short or altered"):
        fetch(card, tmp_path)
    assert list(tmp_path.iterdir()) == []
