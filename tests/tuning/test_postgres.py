"""Several processes on one study in a PostgreSQL that is started here, one of them killed."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from optuna.trial import TrialState

from tests.processes import LIMIT, Worker, wait_for
from tests.tuning.cases import RATES, states, toy
from tsattn.tuning import study as storages
from tsattn.tuning.study import FILE, reason, retries

NOBODY = 65534


def programs() -> Path | None:
    """The folder of `initdb` and `postgres`; Debian keeps them out of PATH."""
    found = shutil.which("initdb")
    if found:
        return Path(found).parent
    return max(Path("/usr/lib/postgresql").glob("*/bin"), default=None)


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(programs() is None, reason="PostgreSQL is not installed, so sharing a database is not tested"),
]


SECRET = "hunter-2-2"


class Server:
    """A PostgreSQL on loopback with a folder of its own, run by an unprivileged user: it refuses to be root.

    Its one user has a password; each test has a database.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = programs()
        self.as_user: list[str] = []
        if os.geteuid() == 0:
            os.chown(folder, NOBODY, NOBODY)
            self.as_user = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.process: subprocess.Popen[bytes] | None = None
        self.name = "postgres"
        (folder / "password").write_text(SECRET)
        (folder / "password").chmod(0o644)
        options = ["-U", "tsattn", "-A", "scram-sha-256", "--pwfile", str(folder / "password"), "-E", "UTF8"]
        command = [*self.as_user, str(self.bin / "initdb"), "-D", str(folder / "data"), *options, "--no-sync"]
        ran = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stdout + ran.stderr

    @property
    def url(self) -> str:
        return f"postgresql://tsattn@127.0.0.1:{self.port}/{self.name}"

    @property
    def open_url(self) -> str:
        return self.url.replace("@", f":{SECRET}@")

    def stop(self, number: int = signal.SIGINT) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)
            self.process.wait(LIMIT)

    def start(self) -> None:
        settings = {"listen_addresses": "127.0.0.1", "unix_socket_directories": "", "fsync": "off"}
        words = ["-D", str(self.folder / "data"), "-p", str(self.port)]
        words += [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [*self.as_user, str(self.bin / "postgres"), *words], cwd=self.folder, stdout=log, stderr=log
            )
        wait_for(self._answers, (self.folder / "log").read_text)

    def _answers(self) -> bool:
        assert self.process.poll() is None, (self.folder / "log").read_text()
        try:
            psycopg.connect(self.open_url, connect_timeout=1).close()
        except psycopg.OperationalError:  # not yet
            return False
        return True


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    folder = Path(tempfile.mkdtemp(prefix="tsattn-postgres-"))  # pytest's own is closed to other users
    made = Server(folder)
    try:
        made.start()
        yield made
    finally:
        made.stop()
        shutil.rmtree(folder)


@pytest.fixture
def server(running: Server) -> Server:
    name = f"of_{time.monotonic_ns()}"
    with psycopg.connect(running.open_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    running.name = name
    return running


def test_four_processes_one_killed(server: Server, tmp_path: Path) -> None:
    made = toy(tmp_path, RATES, gate=True, backbone="dlinear")
    words = ["--trials", "6", "--storage", server.open_url]
    workers = [made.start(*words) for _ in range(4)]
    try:
        assert len(set(made.waiting(4, workers))) == 4  # each in a trial of its own
        at_the_gate = made.trials(server.open_url)
        assert states(at_the_gate) == {"RUNNING": 4}
        workers[1].kill()
        made.signs_of_life_are_old(3, server.open_url)
        (tmp_path / "gate").unlink()
        assert [worker.end() for worker in workers] == [0, -signal.SIGKILL, 0, 0], [w.said() for w in workers]
    finally:
        for worker in workers:
            worker.kill()
    trials = made.trials(server.open_url)
    (lost,) = [trial for trial in trials if reason(trial) == "its process died"]
    assert lost.number in [trial.number for trial in at_the_gate]
    ends = (TrialState.COMPLETE, TrialState.PRUNED)
    (again,) = [trial for trial in trials if retries(trial)[:1] == [lost.number] and trial.state in ends]
    assert again.params == lost.params
    finished = [trial for trial in trials if trial.state in ends]
    assert len(finished) == 6
    assert again in finished
    reasons = {reason(trial) for trial in trials if trial.state == TrialState.FAIL}
    assert reasons <= {"its process died", "another process ran the last one", "another process repeats the same one"}
    assert "RUNNING" not in states(trials)
    # what waits was queued by two processes at once, or is what a surplus trial would have taken
    assert all(retries(trial) for trial in trials if trial.state == TrialState.WAITING)
    assert [trial.number for trial in trials] == list(range(len(trials)))
    assert made.summary()["best"]["values"][0] == min(t.value for t in trials if t.state == TrialState.COMPLETE)
    assert not (made.study / FILE).exists()


def test_a_server_that_went_down_is_gone_on_with(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storages, "_ATTEMPTS", 1)
    made = toy(tmp_path, RATES, backbone="dlinear")
    assert made.tune("--trials", "1", "--storage", server.open_url) == 0
    (done,) = made.trials(server.open_url)
    server.stop(signal.SIGQUIT)  # at once, as in a crash
    assert made.tune("--trials", "2", "--storage", server.open_url) == 2
    server.start()
    assert made.tune("--trials", "2", "--storage", server.open_url) == 0
    trials = made.trials(server.open_url)
    assert states(trials) == {"COMPLETE": 2}
    assert trials[0] == done


def process_arguments() -> list[bytes]:
    seen = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended since
            seen.append(path.read_bytes())
    return seen


def test_a_password_comes_from_the_environment_or_a_passfile_and_is_seen_nowhere(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(storages, "_ATTEMPTS", 1)
    passfile = tmp_path / "passfile"
    passfile.write_text(f"127.0.0.1:{server.port}:*:tsattn:{SECRET}\n")
    passfile.chmod(0o600)
    given = {
        "password": {"TSATTN_STORAGE": server.url, "PGPASSWORD": SECRET},
        "passfile": {"TSATTN_STORAGE": server.url, "PGPASSFILE": str(passfile)},
        "wrong": {"TSATTN_STORAGE": server.url.replace("@", ":wrong-3-3@"), "PGPASSWORD": SECRET},
    }
    made = toy(tmp_path, RATES, gate=True, backbone="dlinear")
    # the children of this one would show what they were started with
    with monkeypatch.context() as patched:
        patched.setenv("TSATTN_STORAGE", server.open_url)
        worker = Worker(made.words("--trials", "1"), tmp_path)
    made.waiting(1, [worker])
    seen = process_arguments()
    (tmp_path / "gate").unlink()
    assert worker.end() == 0, worker.said()
    assert len(seen) > 1
    assert not any(SECRET.encode() in line for line in seen)
    for number, (name, environment) in enumerate(given.items()):
        with monkeypatch.context() as patched:
            for variable, value in environment.items():
                patched.setenv(variable, value)
            assert made.tune("--trials", str(number + 2)) == (2 if name == "wrong" else 0)
    passfile.unlink()
    out, err = capfd.readouterr()
    assert "cannot be reached: connection failed" in err
    assert "password authentication failed" in err
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    for secret in (SECRET, "wrong-3-3"):
        assert secret not in out + err
        assert [path for path in files if secret.encode() in path.read_bytes()] == []
