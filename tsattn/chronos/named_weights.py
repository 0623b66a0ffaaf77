"""Opening pretrained weights by what somebody calls them: a shipped name, a file, a folder, or a name on the hub."""

from __future__ import annotations

from pathlib import Path

from tsattn.chronos.adapted_chronos import AdaptedChronos
from tsattn.chronos.pipelines import RECORD, check_extra, open_pipeline
from tsattn.errors import UserError, one_of
from tsattn.pretrained.bolt_file import find_weights, shipped_names

__all__ = ["bolt_file", "open_weights"]

_SUFFIX = ".safetensors"


def bolt_file(weights: str) -> Path | None:
    """The file of a `ChronosBolt` of this package that is meant; None where a model of chronos-forecasting is.

    Raises:
        UserError: for what can be neither.
    """
    folder = Path(weights).expanduser()
    if folder.is_dir() or ("/" in weights and not weights.endswith(_SUFFIX)):
        return None
    try:
        return find_weights(weights)
    except UserError as error:
        raise UserError(
            f"weights must be {''.join(f'{name}, ' for name in shipped_names())}the path of a {_SUFFIX} file of a "
            "pretrained model, the folder of a Chronos model or of an adapted one, or the name of one on the hub such "
            f"as {one_of(['amazon/chronos-bolt-small'])}, not {weights!r}"
        ) from error


def open_weights(weights: str, revision: str | None = None) -> AdaptedChronos:
    """The model of these weights in float32, adapted already or with its own attention, as no original of another.

    Raises:
        UserError: if there is none, it cannot be read, or the extra `chronos` is not installed.
    """
    from tsattn.chronos.bolt_pipeline import bolt_pipeline
    from tsattn.chronos.families import family_of
    from tsattn.chronos.saving import load_adapted

    file = bolt_file(weights)
    check_extra()
    folder = Path(weights).expanduser()
    if (folder / RECORD).exists():
        adapted = load_adapted(folder)
        adapted.model.float()
        return adapted
    pipeline = open_pipeline(weights, revision=revision, dtype="float32") if file is None else bolt_pipeline(file)
    return AdaptedChronos(pipeline, None, family_of(pipeline), {})
