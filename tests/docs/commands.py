"""Trying a command of a page: on a toy what reads a run folder; of what trains, searches or reports, all but that."""

from __future__ import annotations

import shutil
from pathlib import Path

import pandas as pd
import pytest

from tests.docs.blocks import RUN_FOLDER
from tsattn.cli import main
from tsattn.cli.benchmark import _parser as benchmark_parser
from tsattn.cli.benchmark import find_suite
from tsattn.cli.board_report import _parser as report_parser
from tsattn.cli.compare_runs import _overrides as overrides
from tsattn.cli.compare_runs import _parser as compare_parser
from tsattn.cli.compare_runs import _values as values_of
from tsattn.cli.kernels import _parser as kernels_parser
from tsattn.cli.tune import _parser as tune_parser
from tsattn.cli.words import parse_command
from tsattn.experiments import Experiment
from tsattn.experiments.configs import find_config, full_path, get_at
from tsattn.leaderboard.suite import read_suite
from tsattn.predictors import build_predictor
from tsattn.tuning import read_search

_RUN_WHOLE = ("test", "validate", "predict", "attention", "export", "cost", "datasets")
_PARSED = {"report": report_parser, "kernels": kernels_parser}


def try_command(words: list[str], toy: tuple[Path, Path], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Try it in an empty folder.

    Args:
        words: after ``tsattn``.
        toy: a file and the folder of a run on it.
        folder: that it runs in.
        monkeypatch: that the test has.
    """
    monkeypatch.chdir(folder)
    csv, run = toy
    shutil.copytree(run, folder / "run")
    shutil.copy(csv, folder / "new.csv")
    (folder / "meters").mkdir()
    pd.read_csv(csv, parse_dates=["date"]).to_parquet(folder / "meters" / "day.parquet", index=False)
    words = [RUN_FOLDER.sub("run", word) for word in words]  # another folder than that of the page, and nothing else
    command = words[0]
    if words[:2] == ["datasets", "convert"]:
        days = pd.date_range("2020-01-01", periods=90)
        sales = pd.DataFrame({"unique_id": "a", "ds": days, "y": 1.5, "price": 2.0, "kind": "new"})
        sales.to_parquet(folder / "sales.parquet")
    if "--resume" in words:
        (folder / "run" / "metrics.json").unlink()
    if "--future" in words:  # the toy has no covariates
        parse_command(command, words[1:])
    elif command in _RUN_WHOLE or words[1:] == ["--resume", "run"]:
        assert main(words) == 0
    elif command == "fit":
        experiment, _ = parse_command("fit", words[1:])
        experiment.made()
        build_predictor(experiment.model["backbone"])
    elif command == "benchmark":
        options = benchmark_parser().parse_args(words[1:])
        names = {"data": options.data, "predictors": options.predictor, "attentions": options.attention}
        read_suite(find_suite(options.suite)).narrowed(**names, horizons=options.horizon, seeds=options.seeds)
    elif command == "compare":
        options, others = compare_parser().parse_known_args(words[1:])
        base = Experiment.read(options.config, overrides(others))
        values = options.attention or options.vary[0].partition("=")[2]
        assert len(values_of("what differs", values)) > 1
        assert all(get_at(base.to_dict(), full_path(one.partition("=")[0])) for one in options.vary or ())
    elif command in _PARSED:  # run by tests of their own, which take longer
        _PARSED[command]().parse_args(words[1:])
    else:
        assert command == "tune", f"no command {command}"
        options, rest = tune_parser().parse_known_args(words[1:])
        experiment, _ = parse_command("fit", rest)
        assert read_search(find_config(options.search, "search space", "search/*.yaml")).parameters
        assert options.trials or options.timeout
