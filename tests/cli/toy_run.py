"""A short training on a toy file, as a person types it, and the sentence of a refusal."""

from pathlib import Path
from typing import NoReturn

import pytest

from tsattn.cli import main

TINY = [
    "--data=CSVDataModule",
    "--data.context_length=48",
    "--data.prediction_length=12",
    "--data.batch_size=64",
    "--model.backbone.d_model=16",
    "--model.backbone.num_heads=2",
    "--trainer.accelerator=cpu",
    "--trainer.max_epochs=1",
]


def fit(csv: Path, run: Path, *more: str) -> int:
    return main(["fit", *TINY, f"--data.path={csv}", f"--run={run}", *more])


def interrupted(*given: object, **options: object) -> NoReturn:
    raise KeyboardInterrupt


def refusal(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert main(words) == 2
    captured = capsys.readouterr()
    message = captured.err.strip().splitlines()[-1]
    assert message.startswith("error: ")
    assert "Traceback" not in captured.err
    assert captured.out == ""
    return message
