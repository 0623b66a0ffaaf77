"""A trained language model goes on with a prompt.

    python benchmarks/paper/write_text.py RUN [--prompt "Return the"] [--characters 200] [--seed 1]

RUN is the folder of a run of `benchmarks/paper/language.py`, below `runs/paper/language_small/runs`. It writes
character by character, with caches.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

if not __package__:  # run as a file, which finds what lies beside it but not the folder above
    sys.path[0] = str(Path(__file__).parents[2])

import torch

from benchmarks.paper.character_transformer import CharacterTransformer
from tsattn.errors import UserError
from tsattn.experiments import RunFolder
from tsattn.experiments.reopened import fitted_in

__all__ = ["main", "written"]


def written(run: Path, prompt: str, characters: int, seed: int = 1) -> str:
    """A prompt, and what the language model in the folder of a run goes on with.

    Args:
        run: the folder.
        prompt: at least one character.
        characters: to write.
        seed: by which they are drawn.

    Raises:
        UserError: if there is none, or the text is longer than its pieces.
    """
    folder = RunFolder(run)
    if not folder.best.is_file():
        raise UserError(f"{run} holds no finished run: valid is a folder with {folder.best.relative_to(run)}")
    model = getattr(fitted_in(folder, folder.best).predictor, "backbone", None)
    if not isinstance(model, CharacterTransformer):
        raise UserError(f"{run} is not the run of a language model")
    text = torch.tensor([list(prompt.encode())])
    generator = torch.Generator().manual_seed(seed)
    out = model.write(text, characters, caches=model.encoder.new_caches(1), generator=generator)
    return bytes(out[0].tolist()).decode(errors="replace")


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python benchmarks/paper/write_text.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="the folder of a run of language.py")
    parser.add_argument("--prompt", default="Return ", help="what it goes on with")
    parser.add_argument("--characters", type=int, default=200, help="that it writes")
    parser.add_argument("--seed", type=int, default=1, help="by which they are drawn")
    options = parser.parse_args(words)
    if options.characters < 1 or not options.prompt:
        parser.error("--characters must be at least 1, and --prompt not empty")
    try:
        print(written(options.run, options.prompt, options.characters, options.seed))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
