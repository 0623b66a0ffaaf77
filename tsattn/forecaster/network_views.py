"""What can be seen of the network of a Forecaster, and taken out of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from tsattn.batch import Batch
from tsattn.checks import folder_path
from tsattn.data import Panel
from tsattn.data.quiet import quiet
from tsattn.figures.layer_maps import plot_layers
from tsattn.forecaster.attention_views import last_window, window_title
from tsattn.forecaster.forecast_files import check_output, write_content
from tsattn.forecaster.predicting import Predicting
from tsattn.predictors.attention_layers import AttentionLayer, attention_layers
from tsattn.predictors.exporting import FORMATS, exported, format_of
from tsattn.predictors.fitted import FittedPredictor

__all__ = ["NetworkViews"]


class NetworkViews(ABC):
    """The methods of a Forecaster that look into its network."""

    @property
    @abstractmethod
    def _now(self) -> Predicting:
        """The model, and what it starts from."""

    def attention_weights(
        self, frame: Any = None, *, id: Any = None, channel: str | None = None, future: Any = None
    ) -> list[AttentionLayer]:
        """What the attention of each layer looks at in the context that `predict` forecasts a series from.

        The weights are those of the network in eval mode, computed on the CPU in full precision.

        Args:
            frame: the history, by default the series that were fitted; cut it to look at an earlier context.
            id: of the series; the first by default.
            channel: which channel, where attention sees each by itself; the first by default.
            future: future covariates, as for `predict`.

        Returns:
            the layers, those of all members of an ensemble, each with arrays of ``weights (H, N, S)`` and their
            ``levels``, what queries and keys stand for, and a `frame()` of all of it.

        Raises:
            UserError: for a predictor without attention, a series or channel that is not there, or a frame that cannot
                be used.
        """
        return self._attention(frame, id, channel, future)[0]

    def plot_attention(
        self,
        frame: Any = None,
        *,
        id: Any = None,
        channel: str | None = None,
        layers: str | Sequence[int] = "all",
        heads: str | Sequence[int] = "all",
        levels: str | Sequence[int] | None = None,
        future: Any = None,
    ) -> Figure:
        """Heat maps of `attention_weights`, by layer and head, with the borders of windows or blocks.

        Args:
            frame: as for `attention_weights`.
            id: as for `attention_weights`.
            channel: as for `attention_weights`.
            layers: ``all``, or the numbers of some, from 0.
            heads: ``all``, ``mean`` of all heads of a layer, or the numbers of some.
            levels: instead of probabilities, what the levels of attention add to the score of each pair: ``all``, or
                the numbers of some, from 1, the coarsest.
            future: as for `attention_weights`.

        Raises:
            UserError: for a layer, head or level that is not there, or what `attention_weights` refuses.
        """
        found, panel, fitted, batch = self._attention(frame, id, channel, future)
        title = window_title(fitted, panel, batch, found)
        return plot_layers(found, chosen=layers, heads=heads, levels=levels, title=title)

    def export(self, path: str | Path, *, format: str | None = None, overwrite: bool = False) -> dict[str, Any]:
        """Write the network with its scaler into one file that forecasts without this package.

        It takes series in original units and gives forecasts in original units, of any number of windows at once:
        ``torch.export.load(path).module()(context=...)``, or an ONNX runtime. Missing values are NaN, and what it takes
        beside ``context (B, L, C)`` is in the facts that this method gives and that the file holds as ``tsattn.json``:
        numbers of the series where each has a scale of its own, covariates, categories and time stamps. Attention with
        windows or blocks is written out there, as the kernels of this package are in neither format.

        Args:
            path: of the file, ``.pt2`` for PyTorch, ``.onnx`` for ONNX, which needs the extra `onnx`.
            format: ``torch`` or ``onnx``; that of the ending by default.
            overwrite: whether a file that is there is replaced.

        Returns:
            plain data: ``inputs`` and ``outputs`` with shapes and types, sizes, names, quantiles, and how ``attention``
            is computed.

        Raises:
            UserError: for a model that cannot be exported, saying why, or a file that cannot be written.
        """
        file = folder_path(path, "file")
        form = format_of(file.suffix, format)
        fitted = self._now.known
        check_output(file, overwrite, endings=FORMATS)
        content, facts = exported(fitted, form)
        write_content(content, file, overwrite)
        return facts

    def _attention(
        self, frame: Any, id: Any, channel: str | None, future: Any
    ) -> tuple[list[AttentionLayer], Panel, FittedPredictor, Batch]:
        with quiet(frame is None):
            panel, fitted = self._now.panel_of(frame, "the frame", future)
            batch = last_window(fitted, panel, id)
        return attention_layers(fitted.predictor, batch, channel), panel, fitted, batch
