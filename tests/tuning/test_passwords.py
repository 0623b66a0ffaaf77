"""The password of a storage reaches the database, and no file, line of output or process beside it."""

from pathlib import Path
from typing import Any

import pytest

from tests.cli.toy_run import interrupted
from tests.tuning.cases import RATES, toy
from tsattn.cli import main, tune
from tsattn.errors import masked, scrubbed, without_password
from tsattn.experiments.run_folder import versions
from tsattn.tuning import study as storages
from tsattn.tuning.study import FILE, StudyStorage

SECRET = "hunter-2-2"
URL = f"postgresql://ann:{SECRET}@db.example/studies"
BARE = "postgresql://ann@db.example/studies"


@pytest.fixture
def reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The URLs that a database is asked for, in whose place there is a file."""
    urls: list[str] = []

    def opened(url: str, engine: dict[str, Any], **options: Any) -> StudyStorage:
        if url == "sqlite://":  # the file of the study folder
            return StudyStorage(url, engine, **options)
        urls.append(url)
        return StudyStorage(f"sqlite:///{tmp_path / 'database'}", **options)

    monkeypatch.setattr(storages, "StudyStorage", opened)
    return urls


def leaks(folder: Path, capfd: pytest.CaptureFixture[str], secret: str = SECRET) -> list[str]:
    """Files that hold the password, in their names or content, and the lines of output that do."""
    out, err = capfd.readouterr()
    assert out + err, "something was said"
    said = [line for line in (out + err).splitlines() if secret in line]
    files = [path for path in folder.rglob("*") if path.is_file()]
    written = [str(path) for path in files if secret.encode() in path.read_bytes()]
    return said + written + [str(path) for path in folder.rglob("*") if secret in str(path)]


@pytest.mark.parametrize("given", ["typed with =", "environment", "query"])
def test_a_study_holds_no_password(
    given: str, reached: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    made, words = toy(tmp_path, RATES), ["--trials", "1"]
    url = URL if given != "query" else f"postgresql://db.example/studies?user=ann&password={SECRET}"
    if given == "environment":
        monkeypatch.setenv("TSATTN_STORAGE", URL)
    else:
        words += [f"--storage={url}"] if "=" in given else ["--storage", url]
    assert made.tune(*words) == 0
    assert reached == [url.replace("postgresql://", "postgresql+psycopg://")]
    assert not (made.study / FILE).exists()
    command = made.summary()["versions"]["command"]
    assert ("--storage" in " ".join(command)) == (given != "environment")
    typed = "other users of this machine can see a password" in (told := capfd.readouterr()).err
    assert typed == (given != "environment")
    print(told.out, told.err)
    assert leaks(tmp_path, capfd) == []


def test_what_is_typed_comes_before_the_environment(
    reached: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TSATTN_STORAGE", "postgresql://other/studies")
    assert toy(tmp_path, RATES).tune("--trials", "1", "--storage", BARE) == 0
    assert reached == [BARE.replace("postgresql", "postgresql+psycopg")]
    monkeypatch.setenv("TSATTN_STORAGE", "")
    assert toy(tmp_path, RATES).tune("--trials", "1", "--study", str(tmp_path / "own")) == 0
    assert (tmp_path / "own" / FILE).exists()


def test_the_message_at_ctrl_c_holds_no_password(
    reached: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tsattn.tuning.run_study", interrupted)
    assert toy(tmp_path, RATES).tune("--trials", "1", "--storage", URL) == 130
    err = capfd.readouterr().err
    assert f"--storage {BARE}`; give the password in TSATTN_STORAGE, PGPASSWORD or a passfile\n" in err
    print(err)
    assert leaks(tmp_path, capfd) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--storage", f"postgresql://ann:{SECRET}@127.0.0.1:1/studies"], "ann@127.0.0.1:1/studies cannot be reached"),
        (["--storage", f"postgresql://ann:x@{SECRET}@db/studies"], "has an @ in its password or user: write it"),
        (["--storage", f"pg://ann:{SECRET}@db/studies"], "pg://ann@db/studies is not the URL of a database"),
        (["--storage", f"ann:{SECRET}@db/studies"], "the value of --storage is not the URL of a database"),
        ([f"postgresql://ann:{SECRET}@db/studies"], "unknown argument postgresql://ann@db/studies"),
        (["--study", f"postgresql://ann:{SECRET}@db/studies"], "--study is a folder; the URL of a database is for"),
        (["--config", f"postgresql://ann:{SECRET}@db/studies"], "no configuration postgresql://ann@db/studies"),
    ],
    ids=["unreachable", "at", "dialect", "no scheme", "no flag", "study", "config"],
)
def test_no_mistake_shows_a_password(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(storages, "_ATTEMPTS", 1)
    monkeypatch.setattr("tsattn.tuning.check_search", lambda *_: None)  # sees no storage
    monkeypatch.chdir(tmp_path)
    made = toy(tmp_path, RATES)
    debug = "cannot be reached" in message  # a traceback of the database may name all that it was given
    assert made.tune("--trials", "1", *words, *(["--debug"] if debug else [])) == 2
    err = capfd.readouterr().err
    assert message in err
    assert ("Traceback" in err) == debug
    print(err)
    assert leaks(tmp_path, capfd) == []


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:pw@h:5432/db", "postgresql://me@h:5432/db"),
        ("--storage=postgresql+psycopg://me:p w@h/db", "--storage=postgresql+psycopg://me@h/db"),
        ("postgresql://me:p/w?x@h/db?sslmode=require", "postgresql://me@h/db?sslmode=require"),
        ("postgresql://me:p@w@h/db", "postgresql://me@h/db"),
        ("postgresql://:pw@[::1]:5432/db", "postgresql://@[::1]:5432/db"),
        ("postgresql://h/db?user=me&password=pw&sslmode=require", "postgresql://h/db?user=me&sslmode=require"),
        ("postgresql://h/db?PASSWORD=pw", "postgresql://h/db"),
        ("postgresql://me:pw", "postgresql://me"),
        ("postgresql://joe@myserver:pw@host.azure.com:5432/db", "postgresql://joe@myserver@host.azure.com:5432/db"),
        ("postgresql://[host:pw/db", "postgresql://[host/db"),
        ("--storage=postgresql://us?er:pw@host/db", "--storage=postgresql://us?er@host/db"),
        ("postgresql://us@er:p?w@host", "postgresql://us@er@host"),
        ("'postgresql://me:pw@h:5432'", "'postgresql://me@h:5432'"),
        *((url, url) for url in ("postgresql://me@h:5432/db?options=x@y", "postgresql://me@h1:5432,h2:5433/db")),
        *((url, url) for url in ("postgresql://me@h:5432:", "postgresql://me@[::1]:5432/db?x=a@y", "http://[::1]")),
        *((url, url) for url in ("postgresql://me@h/db?passfile=/home/me/.pgpass", "postgresql://[::1]:5432/db")),
        *((url, url) for url in ("postgresql://h:5432/db", "sqlite:////tmp/study.db", "runs/a:b@c")),
    ],
)
def test_passwords_are_taken_out_of_urls_and_nothing_else(url: str, shown: str) -> None:
    assert without_password(url) == shown
    if " " not in url:
        assert masked(f"go on with {url} now") == f"go on with {shown} now"
    said = scrubbed('failed for "p%40w" and "p@w" at postgresql://me:p%40w@h/db', "postgresql://me:p%40w@h/db")
    assert said == 'failed for "***" and "***" at postgresql://me@h/db'
    command = versions(["fit", f"--trainer.logger.init_args.uri={URL}"], "cpu")["command"]
    assert command[1].endswith(BARE), "as the record of a run has it"


def test_the_environment_is_named_in_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", "--help"]) == 0
    assert tune.STORAGE == "TSATTN_STORAGE"
    assert "(default: $TSATTN_STORAGE)" in " ".join(capsys.readouterr().out.split())
