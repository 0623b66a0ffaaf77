"""What goes wrong in the parser comes out as one sentence, whoever raised it."""

from __future__ import annotations

import pytest

from tsattn.errors import UserError
from tsattn.experiments.experiment import user_errors


def wrapped(cause: Exception) -> None:
    """A sentence as the parser raises it: inside an error of its own."""
    try:
        raise UserError("no such file") from cause
    except UserError as error:
        raise ValueError("Parser key data: no such file, among much else") from error


def test_a_sentence_goes_through_several_layers_unchanged_and_with_its_cause() -> None:
    cause = OSError("the disk")
    with pytest.raises(UserError, match=r"^no such file$") as caught, user_errors(), user_errors():
        wrapped(cause)
    assert caught.value.__cause__ is cause


def test_a_package_that_is_missing_is_named() -> None:
    message = "needs a package that is not installed: No module named 'nothing'"
    with pytest.raises(UserError, match=message), user_errors(), user_errors():
        raise ModuleNotFoundError("No module named 'nothing'")


def test_a_fault_of_the_program_stays_what_it_is() -> None:
    fault = ValueError("shapes")
    with pytest.raises(ValueError, match="shapes") as caught, user_errors():
        raise fault
    assert caught.value is fault
