"""`tsattn export`: a trained model as one file that forecasts without this package."""

from __future__ import annotations

import argparse
from pathlib import Path

from tsattn.cli.words import SentenceParser, session
from tsattn.errors import UserError
from tsattn.experiments.run_folder import RunFolder

__all__ = ["run"]

_DESCRIPTION = """\
Write a trained model, with all that is done to the data around it, as one file: from series in original units,
missing values as NaN, to forecasts in original units, of any number of windows at once. A .pt2 file is for
torch.export.load, an .onnx file for an ONNX runtime (extra: onnx)."""


def run(words: list[str]) -> int:
    """Export a run; the exit code is 0, or a `UserError` is raised."""
    options = _parser().parse_args(words)
    if options.run is None:
        raise UserError("export needs a trained model: --run DIR, the folder that `fit` has written")
    folder = RunFolder(options.run)
    folder.check_trained()
    from tsattn.experiments.reopened import fitted_in
    from tsattn.forecaster.forecast_files import check_output
    from tsattn.predictors.exporting import FORMATS, exported, format_of
    from tsattn.saved_folders import write_whole

    ending = next((end for end, one in FORMATS.items() if one == options.format), next(iter(FORMATS)))
    output = Path(options.output or folder.path / f"model{ending}")
    form = format_of(output.suffix, options.format)
    check_output(output, options.overwrite, endings=FORMATS)
    with session():
        content, facts = exported(fitted_in(folder, options.ckpt_path), form)
        write_whole(output, lambda file: file.write(content), overwrite=options.overwrite)
    print(f"{output}: {facts['model']}, {len(content) / 1e6:.1f} MB")
    for name, one in {**facts["inputs"], **facts["outputs"]}.items():
        shape = ", ".join(map(str, one["shape"]))
        print(f"  {'gives' if name in facts['outputs'] else 'takes'} {name} ({shape}) {one['dtype']}")
    written_out = [kind for kind, impl in facts["attention"].items() if impl == "reference"]
    if written_out:
        kinds = ", ".join(written_out)
        print(f"  attention {kinds} is written out, as the kernels of this package are not in the file")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = SentenceParser(prog="tsattn export", description=_DESCRIPTION)
    add = parser.add_argument
    add("--run", metavar="DIR", help="folder of a finished run (its refit, if there is one)")
    add("--ckpt_path", metavar="FILE", help="checkpoint, instead of that of the run")
    add("--output", metavar="FILE", help=".pt2 or .onnx file (default: model.pt2 in the run folder)")
    add("--format", metavar="NAME", help="torch or onnx (default: by the ending)")
    add("--overwrite", action="store_true", help="replace existing files")
    return parser
