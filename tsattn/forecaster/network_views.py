"""Attention maps and export of the network of a Forecaster."""

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
    """Methods of a Forecaster that look into its network."""

    @property
    @abstractmethod
    def _now(self) -> Predicting:
        """The model, and what it starts from."""

    def attention_weights(
        self, frame: Any = None, *, id: Any = None, channel: str | None = None, future: Any = None
    ) -> list[AttentionLayer]:
        """Return the attention weights of each layer, for the context that `predict` forecasts a series from.

        Weights are computed on the CPU in eval mode and full precision.

        Args:
            frame: history, by default the fitted series. Cut it to see an earlier context.
            id: series id; the first by default.
            channel: channel, if attention sees each by itself; the first by default.
            future: future covariates, as in `predict`.

        Returns:
            Layers, of all members of an ensemble, each with arrays ``weights (H, N, S)`` and ``levels``, the meaning of
            queries and keys, and a method `frame`.

        Raises:
            UserError: if the predictor has no attention, the series or channel is unknown, or the frame cannot be used.
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
        """Plot `attention_weights` as heat maps by layer and head, with the borders of windows or blocks.

        Args:
            frame: as in `attention_weights`.
            id: as in `attention_weights`.
            channel: as in `attention_weights`.
            layers: ``all``, or numbers from 0.
            heads: ``all``, ``mean`` over the heads of a layer, or numbers from 0.
            levels: plot the contribution of levels to the scores instead: ``all``, or numbers from 1, the coarsest.
            future: as in `attention_weights`.

        Raises:
            UserError: if a layer, head or level is unknown; also as in `attention_weights`.
        """
        found, panel, fitted, batch = self._attention(frame, id, channel, future)
        title = window_title(fitted, panel, batch, found)
        return plot_layers(found, chosen=layers, heads=heads, levels=levels, title=title)

    def export(self, path: str | Path, *, format: str | None = None, overwrite: bool = False) -> dict[str, Any]:
        """Write network and scaler into one file that forecasts without tsattn.

        The file takes any number of windows in original units and returns forecasts in original units. Run it by
        ``torch.export.load(path).module()(context=...)`` or an ONNX runtime. Its inputs are ``context (B, L, C)``, with
        NaN for missing values, and what the model needs else: series numbers, covariates, categories, time stamps. The
        facts returned here list them; the file holds them as ``tsattn.json``. Our kernels are in neither format, so
        attention with windows or blocks is written out.

        Args:
            path: file, ``.pt2`` for PyTorch, ``.onnx`` for ONNX (extra `onnx`).
            format: ``torch`` or ``onnx``; by default by the ending.
            overwrite: replace an existing file.

        Returns:
            Plain data: ``inputs`` and ``outputs`` with shapes and types, sizes, names, quantiles, and the form of
            ``attention``.

        Raises:
            UserError: if the model cannot be exported, with the reason, or the file cannot be written.
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
