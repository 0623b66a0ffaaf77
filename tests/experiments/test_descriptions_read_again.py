"""A description means the same each time it is read, and something new once what it names is new."""

from __future__ import annotations

from typing import Any

import pytest
from lightning.pytorch.callbacks import Callback

from tsattn import CO2DataModule
from tsattn.experiments.schema import completed, instantiated


def described(**trainer: Any) -> dict[str, Any]:
    return {
        "data": {"class_path": "CO2DataModule"},
        "model": {"backbone": {"kind": "ridge"}},
        "trainer": {"max_steps": 3, **trainer},
    }


def test_what_one_reader_changes_is_not_read_by_the_next() -> None:
    first = completed(described())
    first["trainer"]["max_steps"] = 4
    first["data"]["init_args"].clear()
    again = completed(described())
    assert again["trainer"]["max_steps"] == 3
    assert again["data"]["init_args"]
    made = instantiated(described())
    made.trainer.max_steps = 5
    assert instantiated(described()).trainer.max_steps == 3
    assert instantiated(described()).data is not made.data


def test_a_data_set_that_is_defined_anew_has_its_new_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    content = {**described(), "data": {"class_path": f"{__name__}.Redefined"}}
    for steps in (26, 13):

        class Redefined(CO2DataModule):
            def __init__(self, prediction_length: int = steps, **kwargs: Any) -> None:
                super().__init__(prediction_length=prediction_length, **kwargs)

        Redefined.__qualname__ = "Redefined"
        monkeypatch.setitem(globals(), "Redefined", Redefined)
        assert completed(content)["data"]["init_args"]["prediction_length"] == steps
        assert instantiated(content).data.prediction_length == steps


def test_a_callback_that_is_defined_anew_has_its_new_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    content = described(callbacks=[{"class_path": f"{__name__}.Marked"}])
    for default in ("first", "second"):

        class Marked(Callback):
            def __init__(self, mark: str = default) -> None:
                self.mark = mark

        Marked.__qualname__ = "Marked"
        monkeypatch.setitem(globals(), "Marked", Marked)
        (described_callback,) = completed(content)["trainer"]["callbacks"]
        assert described_callback["init_args"] == {"mark": default}
        (callback,) = instantiated(content).trainer.callbacks
        assert callback.mark == default
