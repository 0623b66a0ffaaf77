"""A description means the same each time it is read, and something new once what it names is new."""

from __future__ import annotations

import gc
import pickle
import sys
import weakref
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
from lightning.pytorch.callbacks import Callback

from tsattn import CO2DataModule
from tsattn.errors import UserError
from tsattn.experiments import Experiment
from tsattn.experiments.experiment import instantiated, parsed, plain


def described(**trainer: Any) -> dict[str, Any]:
    return {
        "data": {"class_path": "CO2DataModule"},
        "model": {"backbone": {"kind": "ridge"}},
        "trainer": {"max_steps": 3, **trainer},
    }


def completed(content: dict[str, Any]) -> dict[str, Any]:
    return plain(parsed(content))


def test_what_one_reader_changes_is_not_read_by_the_next() -> None:
    first = completed(described())
    first["trainer"]["max_steps"] = 4
    first["data"]["init_args"].clear()
    again = completed(described())
    assert again["trainer"]["max_steps"] == 3
    assert again["data"]["init_args"]
    made = instantiated(parsed(described()))
    made.trainer.max_steps = 5
    assert instantiated(parsed(described())).trainer.max_steps == 3
    assert instantiated(parsed(described())).data is not made.data


def test_a_data_set_that_is_defined_anew_has_its_new_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    content = {**described(), "data": {"class_path": f"{__name__}.Redefined"}}
    for steps in (26, 13):

        class Redefined(CO2DataModule):
            def __init__(self, prediction_length: int = steps, **kwargs: Any) -> None:
                super().__init__(prediction_length=prediction_length, **kwargs)

        Redefined.__qualname__ = "Redefined"
        monkeypatch.setitem(globals(), "Redefined", Redefined)
        assert completed(content)["data"]["init_args"]["prediction_length"] == steps
        assert instantiated(parsed(content)).data.prediction_length == steps


def test_what_is_remembered_keeps_no_data_set_alive() -> None:
    """Or a class whose cell was run again would stay among those that a name can mean."""
    cls: Any = type("Gone", (CO2DataModule,), {"__module__": __name__})
    completed(described())
    reference = weakref.ref(cls)
    del cls
    gc.collect()
    assert reference() is None


def test_a_name_of_two_data_sets_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("module_of_twin")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for where, names in ((__name__, globals()), (module.__name__, module.__dict__)):
        monkeypatch.setitem(names, "Twin", type("Twin", (CO2DataModule,), {"__module__": where}))
    paths = f"{__name__}.Twin, module_of_twin.Twin"
    with pytest.raises(
        UserError, match=f"^--data Twin names more than one class; give the import path of one: {paths}$"
    ):
        completed({**described(), "data": {"class_path": "Twin"}})
    for path in paths.split(", "):
        assert completed({**described(), "data": {"class_path": path}})["data"]["class_path"] == path
    monkeypatch.undo()
    gc.collect()


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
        (callback,) = instantiated(parsed(content)).trainer.callbacks
        assert callback.mark == default


def test_what_is_replaced_in_an_experiment_is_made() -> None:
    before = Experiment.of(described())
    arguments = {**before.data["init_args"], "prediction_length": 7}
    after = replace(before, data={**before.data, "init_args": arguments}, trainer={**before.trainer, "max_steps": 9})
    data, trainer = after.made()
    assert (data.prediction_length, trainer["max_steps"]) == (7, 9)
    assert pickle.loads(pickle.dumps(before)).made()[1]["max_steps"] == 3
