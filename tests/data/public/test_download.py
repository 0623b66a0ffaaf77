import gzip
import hashlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.data.cases import said_by
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
    message = said_by(data.prepare_data)
    assert "ETTh1.csv" in message
    return message


def test_file_is_fetched_once(site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "not" / "there" / "yet"
    data = PublicDataModule("ETTh1", root=str(root))
    data.forecast_from(tmp_path / "mine.csv")
    data.prepare_data()
    assert site.requests == [], "to forecast from another file"
    data = PublicDataModule("ETTh1", root=str(root))
    data.prepare_data()
    assert site.requests == ["/ETT-small/ETTh1.csv"]
    assert (root / "ETTh1.csv").read_bytes() == BODY
    assert [path.name for path in root.iterdir()] == ["ETTh1.csv"]
    assert capsys.readouterr().out == "", "standard output is for results"
    data.prepare_data()
    assert data.load_frame()["OT"].tolist() == [1.5, 2.5, 3.5]
    other_sum = replace(CARDS["ETTh1"], sha256="0" * 64, same_content=(SUM,))
    assert fetch(other_sum, root).read_bytes() == BODY, "one of the accepted sums"
    assert len(site.requests) == 1


@pytest.mark.parametrize("fault", ["altered", "empty", "cut short", "404", "500"])
def test_bad_answer_is_refused_and_leaves_nothing(site: Site, tmp_path: Path, fault: str) -> None:
    site.body = {"altered": BODY.replace(b"2.5", b"9.5"), "empty": b"", "cut short": BODY[:40]}.get(fault, b"sorry")
    site.announced = len(BODY) if fault == "cut short" else len(site.body)
    site.status = int(fault) if fault.isdigit() else 200
    assert site.url in refusal(PublicDataModule("ETTh1", root=str(tmp_path)))
    assert list(tmp_path.iterdir()) == []


def test_what_is_in_its_place_is_refused_and_left_untouched(site: Site, tmp_path: Path) -> None:
    path = tmp_path / "ETTh1.csv"
    for content in (b"", BODY[:-1], BODY + b"2016-07-01 03:00:00,4.5\n"):
        path.write_bytes(content)
        message = refusal(PublicDataModule("ETTh1", root=str(tmp_path)))
        assert str(path) in message
        assert "sha256" in message
        assert path.read_bytes() == content
    root = path / "data"  # below a file
    assert str(root) in refusal(PublicDataModule("ETTh1", root=str(root)))
    path.unlink()
    path.mkdir()
    assert str(tmp_path) in refusal(PublicDataModule("ETTh1", root=str(tmp_path)))
    assert site.requests == []


def test_the_root_given_is_final_and_the_variable_or_data_its_default(
    closed_port: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("elsewhere", "data"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "ETTh1.csv").write_bytes(BODY)
    monkeypatch.setenv("TSATTN_DATA", str(tmp_path / "elsewhere"))
    assert data_root(None) == tmp_path / "elsewhere"
    assert len(PublicDataModule("ETTh1").load_frame()) == 3
    message = refusal(PublicDataModule("ETTh1", root=str(tmp_path / "mine")))
    assert closed_port in message
    assert f"put the file ETTh1.csv into {tmp_path / 'mine'}" in message
    monkeypatch.chdir(tmp_path)
    for unset in (lambda: monkeypatch.setenv("TSATTN_DATA", ""), lambda: monkeypatch.delenv("TSATTN_DATA")):
        unset()
        assert data_root(None) == Path("data")
        assert len(PublicDataModule("ETTh1").load_frame()) == 3


def test_a_packed_file_is_unpacked(site: Site, tmp_path: Path) -> None:
    card = replace(CARDS["ETTh1"], url=f"{CARDS['ETTh1'].url}.gz", sha256=None)
    for body in (gzip.compress(BODY)[:-9], BODY):
        site.body, site.announced = body, len(body)
        with pytest.raises(UserError, match="was cut short or altered"):
            fetch(card, tmp_path)
        assert list(tmp_path.iterdir()) == []
    site.body = gzip.compress(BODY)
    site.announced = len(site.body)
    assert fetch(replace(card, sha256=SUM), tmp_path).read_bytes() == BODY
    assert [path.name for path in tmp_path.iterdir()] == ["ETTh1.csv"]
