# SPDX-License-Identifier: Apache-2.0
"""What `diagnose` finds: the error of each layer of a quantized model, and what to change."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from os import PathLike
from pathlib import Path
from typing import Any

from litesmith.accuracy._causes import Cause, Repair
from litesmith.machine import MachineFacts
from litesmith.result import Result

_GRADIENT = [{"stop": 0, "bgColor": "#ffffff"}, {"stop": 1, "bgColor": "#e5533c"}]


@dataclass(frozen=True)
class Layer:
    """One operator of the quantized model beside its float original.

    Attributes:
        index: of the operator in the quantized model.
        kind: of the operator.
        name: of its output tensor.
        dtype: of its output.
        shape: of its output.
        size_bytes: of its constants.
        float_bytes: of the original's constants.
        time_us: the time of a run, as given; None where it was not, or no kernel of its own ran.
        sqnr_db: signal over error of the quantized model at this layer: all errors so far.
        cosine: between float and quantized values at this layer.
        kl: divergence of the distribution of the quantized values from that of the float ones, in nats: of histograms
            with 64 bins over a range that holds the float values, smoothed, of some values of each tensor. Rounding finer
            than the bins leaves it at 0; clipping, shifts and steps that are too coarse do not.
        isolated_sqnr_db: signal over error with only this layer quantized; None where it cannot be run alone.
        isolated_cosine, isolated_kl: the same.
        share: of the error at the outputs that this layer is to blame for.
        low, high: the range of the float values.
        quantized_low, quantized_high: what the quantized tensor can express; None for float ones.
        causes: what is wrong with it, the most rewarding first.
        repairs: changes that help, the one to try first in front: those that cost nothing before those that do.
        float_gain_db: what the outputs gain with this layer in float, measured; None where it was not asked for or cannot
            be put there.
    """

    index: int
    kind: str
    name: str
    dtype: str
    shape: tuple[int, ...]
    size_bytes: int
    float_bytes: int
    time_us: float | None
    sqnr_db: float
    cosine: float
    kl: float
    isolated_sqnr_db: float | None
    isolated_cosine: float | None
    isolated_kl: float | None
    share: float
    low: float
    high: float
    quantized_low: float | None
    quantized_high: float | None
    causes: tuple[Cause, ...]
    repairs: tuple[Repair, ...]
    float_gain_db: float | None = None

    @property
    def repair(self) -> Repair | None:
        """The change to try first; None where nothing is to be gained."""
        return self.repairs[0] if self.repairs else None


@dataclass(frozen=True)
class OutputError:
    """The error of one output of the quantized model.

    Attributes:
        name: of the output.
        sqnr_db: signal over error.
        cosine: between float and quantized values.
        kl: divergence of the quantized distribution over classes from the float one, in nats; None for a single value.
        agreement: share of samples whose classes are all the same.
        ties: share of samples with equal values at the top.
    """

    name: str
    sqnr_db: float
    cosine: float
    kl: float | None
    agreement: float | None
    ties: float | None


@dataclass(frozen=True)
class LayerReport(Result, kind="layer-report", schema=2):
    """The error of each layer of a quantized model, and what to change.

    Attributes:
        float_model, quantized_model: their names.
        data: what they were compared on.
        samples: how many samples.
        kernels: how they were run.
        outputs: the error of each output.
        layers: in the order of the quantized model.
        unmatched: operators of the quantized model without a counterpart in the float one.
        narrower: operators with fewer channels than their counterpart, which are not compared; if there are any, no
            layer has a share of the error.
        values: how many values of each tensor were looked at in a sample, at most.
        seconds_per_sample: what the comparison took.
        machine: the facts of the machine that ran both.
        notes: what else one should know.
    """

    float_model: str
    quantized_model: str
    data: str
    samples: int
    kernels: str
    outputs: tuple[OutputError, ...]
    layers: tuple[Layer, ...]
    unmatched: tuple[str, ...]
    values: int
    seconds_per_sample: float
    machine: MachineFacts | None = None
    narrower: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def worst(self) -> tuple[Layer, ...]:
        """The layers that add to the error at the outputs, the one to blame most first."""
        return tuple(sorted((x for x in self.layers if x.share > 0), key=lambda x: -x.share))

    @property
    def repairs(self) -> tuple[Repair, ...]:
        """The changes to the recipe, the most rewarding first; one that several layers want is counted for all of them."""
        wanted: dict[str, list[Repair]] = {}
        for repair in (repair for layer in self.layers for repair in layer.repairs):
            wanted.setdefault(repair.recipe, []).append(repair)
        return tuple(sorted(map(_joined, wanted.values()), key=lambda repair: -repair.gain_db))

    def to_csv(self, path: str | PathLike[str] | None = None) -> str:
        """Return a row for each layer as CSV text; with ``path``, also write it there."""
        text = io.StringIO()
        plain = [f.name for f in fields(Layer) if f.name not in ("causes", "repairs")]
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([*plain, "causes", "repair", "recipe", "gain_db", "extra_bytes", "kernel"])
        for layer in self.layers:
            cells = ["×".join(map(str, layer.shape)) if n == "shape" else getattr(layer, n) for n in plain]
            repair = layer.repair
            cells.append(_causes_text(layer))
            if repair is not None:
                cells += [repair.change, repair.recipe, repair.gain_db, repair.extra_bytes, repair.kernel]
            writer.writerow(["" if cell is None else cell for cell in cells] + [""] * 5 * (repair is None))
        if path is not None:
            Path(path).write_text(text.getvalue(), encoding="utf-8")
        return text.getvalue()

    def model_explorer_node_data(self) -> str:
        """Return JSON that Model Explorer lays over the graph: the blame of each layer in %, by its operator's index."""
        results = {str(layer.index): {"value": round(100 * layer.share, 3)} for layer in self.layers}
        return json.dumps({"main": {"results": results, "gradient": _GRADIENT}}, indent=2)

    def plot(self) -> Any:
        """Return a Plotly figure: the blame of each layer, and signal over error along the model."""
        import plotly.graph_objects as go

        figure = go.Figure(
            layout={
                "xaxis_title": "operator",
                "yaxis_title": "blame, %",
                "yaxis2": {"title": "signal over error, dB", "overlaying": "y", "side": "right"},
                "template": "plotly_white",
            }
        )
        places = [layer.index for layer in self.layers]
        figure.add_bar(
            x=places,
            y=[100 * layer.share for layer in self.layers],
            name="blame",
            hovertext=[f"{layer.kind} {layer.name}<br>{_causes_text(layer)}" for layer in self.layers],
        )
        for name, ratios in (
            ("so far", [layer.sqnr_db for layer in self.layers]),
            ("alone", [layer.isolated_sqnr_db for layer in self.layers]),
        ):
            finite = [ratio if ratio is not None and math.isfinite(ratio) else None for ratio in ratios]
            figure.add_scatter(x=places, y=finite, name=name, yaxis="y2", mode="lines+markers")
        return figure


def _causes_text(layer: Layer) -> str:
    return "; ".join(f"{cause.kind}: {cause.detail}" for cause in layer.causes)


def _joined(repairs: Sequence[Repair]) -> Repair:
    """Return the same change to several layers as one: what it removes of the error adds up."""
    if len(repairs) == 1:
        return repairs[0]
    removed = sum(1 - 10 ** (-repair.gain_db / 10) for repair in repairs)
    best = max(repairs, key=lambda repair: repair.gain_db)
    return replace(
        best,
        change=f"{best.change}, and {len(repairs) - 1} more",
        gain_db=-10 * math.log10(max(1 - removed, 1e-6)),
        extra_bytes=sum(repair.extra_bytes for repair in repairs),
    )
