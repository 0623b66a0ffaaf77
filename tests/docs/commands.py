"""Trying a command of a page: on a toy what reads a run folder; of what trains, searches or reports, all but that."""

import os
import shutil
from pathlib import Path

import pandas as pd
import pytest

from tests.docs.blocks import RUN_FOLDER
from tsattn.cli import main
from tsattn.cli.benchmark import given_overrides, given_values
from tsattn.cli.words import Words, flat
from tsattn.experiments import Experiment
from tsattn.experiments.configs import find_config, full_path, get_at
from tsattn.leaderboard.suite import read_suite
from tsattn.predictors import build_predictor
from tsattn.tuning import read_search

_RUN_WHOLE = ("test", "validate", "predict", "attention", "export", "cost", "datasets")


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
        Words(command, words[1:]).experiment()
    elif command in _RUN_WHOLE or words[1:] == ["--resume", "run"]:
        assert main(words) == 0
    elif command == "fit":
        experiment = Words("fit", words[1:]).experiment()
        experiment.data_module()
        experiment.trainer_arguments()
        build_predictor(experiment.model["backbone"])
    else:
        given = Words(command, words[1:])
        options = given.options
        if command == "benchmark":
            names = {"data": options.data, "predictors": options.predictor, "attentions": options.attention}
            whole = read_suite(find_config(options.suite, "suite", "suites"))
            whole.narrowed(**names, horizons=options.horizon, seeds=options.seeds)
        elif command == "compare":
            base = Experiment.read(options.config, given_overrides(given.pairs))
            values = options.attention or options.vary[0].partition("=")[2]
            assert len(given_values("what differs", values)) > 1
            if not options.ray and ("co2" in options.config or os.environ.get("TSATTN_DATA")):
                assert main([*words, "--dry-run"]) == 0
            assert all(get_at(base.to_dict(), full_path(one.partition("=")[0])) for one in options.vary or ())
        elif command == "tune":
            Words("fit", [*given.free, *flat(given.pairs)]).experiment()
            assert read_search(find_config(options.search, "search space", "search")).parameters
            assert options.trials or options.timeout
        else:  # run by tests of their own, which take longer
            assert command in ("report", "kernels"), f"no command {command}"
