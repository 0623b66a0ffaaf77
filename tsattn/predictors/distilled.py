"""A network that was trained towards the forecasts of a teacher, beside the targets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, get_type_hints

from torch import Tensor
from typing_extensions import override

from tsattn import descriptions
from tsattn.backbones import BACKBONES, complete_backbone
from tsattn.batch import Batch
from tsattn.descriptions import DEFAULT_BACKBONE
from tsattn.errors import UserError, one_of
from tsattn.predictors import build_predictor, complete_predictor, named_predictor
from tsattn.predictors.attending import Attending
from tsattn.predictors.base import Predictor
from tsattn.predictors.network import NetworkPredictor
from tsattn.task import Output, Task

if TYPE_CHECKING:
    from tsattn.data import ForecastDataModule
    from tsattn.training import Training

__all__ = ["Distilled"]


class Distilled(Predictor):
    """One network in the place of several predictors: it learns what these, the teacher, would forecast.

    The teacher is fitted first, to the same data with the same options. Then the student is trained; the targets of its
    training windows are the weighted mean of what came and of what the teacher forecasts from their context. Validation
    chooses its weights by what came. The student alone is kept and forecasts (Hinton et al. 2015, *Distilling the
    Knowledge in a Neural Network*, with forecasts in the place of classes).

    Args:
        student: description of a network; by default that which stands where no predictor is named.
        teacher: description of a predictor, mostly an ensemble. It may look at no more steps than the student does.
        weight: the share of the forecasts of the teacher in the targets, above 0 and at most 1.

    Attributes:
        student: the network.
        weight: as it was given.

    Raises:
        UserError: for no teacher or one that is distilled itself, a student that is no network trained by a loss of
            its targets, or a weight out of its range.
    """

    is_trained = True

    def __init__(self, *, student: Any = DEFAULT_BACKBONE, teacher: Any = None, weight: float = 0.5) -> None:
        super().__init__(**_checked(student, teacher), weight=weight)
        if not 0 < weight <= 1:
            raise UserError(f"weight of the teacher must be above 0 and at most 1, not {weight}")
        self.student = NetworkPredictor(self.arguments["student"])
        self.weight = weight
        self.uses_covariates = self.student.uses_covariates
        self.uses_weights = self.student.uses_weights

    @classmethod
    @override
    def complete(cls, arguments: Mapping[str, Any]) -> dict[str, Any]:
        whole = super().complete(arguments)
        descriptions.check_types(whole, get_type_hints(cls.__init__), "predictor distilled")
        return {**whole, **_checked(whole["student"], whole["teacher"])}

    @override
    def build(self, task: Task, output: Output = Output(), *, empty: bool = False) -> None:
        super().build(task, output, empty=empty)
        self.student.build(task, output, empty=empty)

    @override
    def attending(self) -> dict[str, Attending]:
        return self.student.attending()

    @property
    @override
    def num_parameters(self) -> int:
        return self.student.num_parameters

    @override
    def check_fit(self, data: ForecastDataModule, training: Training) -> None:
        teacher = self._teacher()
        teacher.check_fit(_own(data), training.of_member("teacher"))
        self.student.check_fit(_own(data), training.of_member("student"))

    @override
    def fit(self, data: ForecastDataModule, training: Training) -> dict[str, Any]:
        """Fit the teacher, then the student; ``members`` says of each what is known of its fit, of the student last."""
        from tsattn.training import Execution  # what is only loaded needs no Lightning
        from tsattn.training.mixed_targets import MixedTargets

        self.check_fit(data, training)
        teacher, own = self._teacher(), training.of_member("teacher")
        known = teacher.fit(_own(data), own)
        mixed = MixedTargets(teacher.eval().on(Execution(own.trainer)), self.weight)
        own = training.of_member("student")
        learnt = self.student.fit(_own(data), replace(own, callbacks=[*own.callbacks, mixed]))
        return {"members": [*known.get("members", [[known]]), [learnt]]}

    @override
    def forward(self, batch: Batch) -> Tensor:
        forecast: Tensor = self.student(batch)
        return forecast

    def _teacher(self) -> Predictor:
        """A new one, built for the same task; it is no part of this one, whose state is that of the student."""
        assert self.task is not None, "build(task, output) comes first"
        assert self.output is not None
        teacher = build_predictor(self.arguments["teacher"])
        teacher.build(self.task, self.output, empty=True)
        if teacher.context_length > self.context_length:
            raise UserError(
                f"the teacher looks at {teacher.context_length} past steps, and the student is given "
                f"{self.context_length}: give both the longer context, or the teacher a shorter one"
            )
        return teacher


def _own(data: ForecastDataModule) -> ForecastDataModule:
    """The same data, in which the plan of another training can be noted."""
    return data.with_context(data.context_length)


def _checked(student: Any, teacher: Any) -> dict[str, Any]:
    """The complete descriptions of both."""
    if named_predictor(student, "student")[1] is not NetworkPredictor:
        raise UserError(f"a student is a network, {one_of(BACKBONES)}, not {named_predictor(student)[0]}")
    if teacher is None:
        raise UserError("a distilled network needs a teacher, the description of a predictor, mostly an ensemble")
    if issubclass(named_predictor(teacher, "teacher")[1], Distilled):
        raise UserError("a distilled network is no teacher of another: name its own teacher instead")
    return {"student": complete_backbone(student), "teacher": complete_predictor(teacher)}
