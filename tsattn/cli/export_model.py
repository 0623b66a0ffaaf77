"""`tsattn export`: a trained model as one file that forecasts without this package."""

from __future__ import annotations

from pathlib import Path

from tsattn.cli.command_options import Given
from tsattn.cli.words import session
from tsattn.errors import UserError
from tsattn.experiments.run_folder import RunFolder

__all__ = ["export"]


def export(given: Given) -> int:
    """Export a run; the exit code is 0, or a `UserError` is raised."""
    options = given.options
    if options.run is None:
        raise UserError("export needs a trained model: --run DIR, the folder that `fit` has written")
    folder = RunFolder(options.run)
    folder.check_trained()
    from tsattn.experiments.reopened import fitted_in
    from tsattn.forecaster.forecast_files import check_output, write_content
    from tsattn.predictors.exporting import FORMATS, exported, format_of

    ending = next((end for end, one in FORMATS.items() if one == options.format), next(iter(FORMATS)))
    output = Path(options.output or folder.path / f"model{ending}")
    form = format_of(output.suffix, options.format)
    check_output(output, options.overwrite, endings=FORMATS)
    with session():
        content, facts = exported(fitted_in(folder, options.ckpt_path), form)
        write_content(content, output, options.overwrite)
    print(f"{output}: {facts['model']}, {len(content) / 1e6:.1f} MB")
    for name, one in {**facts["inputs"], **facts["outputs"]}.items():
        shape = ", ".join(map(str, one["shape"]))
        print(f"  {'gives' if name in facts['outputs'] else 'takes'} {name} ({shape}) {one['dtype']}")
    if written_out := [kind for kind, impl in facts["attention"].items() if impl == "reference"]:
        print(
            f"  attention {', '.join(written_out)} is written out, as the kernels of this package are not in the file"
        )
    return 0
