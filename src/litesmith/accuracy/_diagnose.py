# SPDX-License-Identifier: Apache-2.0
"""Which layers of a quantized model lose the accuracy, why, and what to change."""

from __future__ import annotations

import csv
import io
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from litesmith.accuracy._causes import Cause, Repair
from litesmith.data import Dataset, Preprocess
from litesmith.errors import DataError, UsageError
from litesmith.result import Result

if TYPE_CHECKING:
    from litesmith.accuracy._correspond import Correspondence
    from litesmith.accuracy._errors_per_layer import LayerErrors, OutputErrors
    from litesmith.accuracy._evaluate import DataLike
    from litesmith.accuracy._noise import Noise
    from litesmith.model import Model, Subgraph
    from litesmith.runtime._source import ModelLike


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
        time_us: as given, if it was.
        sqnr_db: signal over error of the quantized model at this layer: all errors so far.
        cosine: between float and quantized values at this layer.
        isolated_sqnr_db: signal over error with only this layer quantized; None where it cannot be run alone.
        isolated_cosine: the same.
        share: of the error at the outputs that this layer is to blame for.
        low, high: the range of the float values.
        quantized_low, quantized_high: what the quantized tensor can express; None for float ones.
        causes: what is wrong with it, the most rewarding first.
        repairs: changes that help, the one to try first in front: those that cost nothing before those that do.
        float_gain_db: what the outputs gain with this layer in float, measured; None where it was not asked for.
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
    isolated_sqnr_db: float | None
    isolated_cosine: float | None
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
class LayerReport(Result, kind="layer-report", schema=1):
    """The error of each layer of a quantized model, and what to change.

    Attributes:
        float_model, quantized_model: their names.
        data: what they were compared on.
        samples: how many samples.
        kernels: how they were run.
        outputs: the error of each output.
        layers: in the order of the quantized model.
        unmatched: operators of the quantized model without a counterpart in the float one.
        values: how many values of each tensor were looked at in a sample, at most.
        seconds_per_sample: what the comparison took.
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
        writer.writerow([*plain, "causes", "repair", "recipe", "gain_db", "extra_bytes"])
        for layer in self.layers:
            cells = ["×".join(map(str, layer.shape)) if n == "shape" else getattr(layer, n) for n in plain]
            repair = layer.repair
            cells.append("; ".join(f"{cause.kind}: {cause.detail}" for cause in layer.causes))
            cells += [""] * 4 if repair is None else [repair.change, repair.recipe, repair.gain_db, repair.extra_bytes]
            writer.writerow(["" if cell is None else cell for cell in cells])
        if path is not None:
            Path(path).write_text(text.getvalue(), encoding="utf-8")
        return text.getvalue()


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


def diagnose(
    float_model: ModelLike,
    quantized_model: ModelLike,
    data: DataLike,
    *,
    samples: int = 64,
    preprocess: Preprocess | str | Mapping[str, Any] | None = None,
    confirm: int = 0,
    time_us: Mapping[int, float] | None = None,
    values: int = 32768,
    seed: int = 0,
    kernels: str = "delegate",
    threads: int = 1,
) -> LayerReport:
    """Find the layers of a quantized model that lose the accuracy, say why, and what to change.

    Both models run in LiteRT. Each layer's error is measured twice: accumulated, the quantized model against the float
    one at that layer; and isolated, the layer alone quantized and fed with the float values. From the two follows how
    much of the error at the outputs each layer is to blame for, with errors of layers taken as independent; ``confirm``
    measures it for the worst.

    Args:
        float_model: a path, bytes or Model.
        quantized_model: what a quantizer made of it, this one or another.
        data: a Dataset, or anything that ``Dataset.open`` takes; labels are not needed.
        samples: how many samples at most, drawn by ``seed``.
        preprocess: what to do with each sample, as in ``Dataset.open``.
        confirm: for how many of the worst layers to measure what the outputs gain with that layer in float.
        time_us: time of operators of the quantized model by index, to be shown beside the errors.
        values: how many values of each tensor to look at in a sample, at most; another part in each sample.
        seed: of the draw.
        kernels: "delegate" is XNNPACK, "builtin" and "reference" are without it.
        threads: of the runtime.
    """
    from litesmith.accuracy._correspond import correspond, entry
    from litesmith.accuracy._errors_per_layer import measure_layers
    from litesmith.accuracy._noise import attribute

    if samples < 1 or values < 1 or confirm < 0:
        raise UsageError(f"samples={samples} and values={values} must be 1 or more, confirm={confirm} 0 or more")
    real, quantized = _read(float_model), _read(quantized_model)
    _check_roles(real, quantized)
    real = _rescaled_alike(real, quantized)
    found = correspond(real, quantized)
    dataset = Dataset.open(data, preprocess=preprocess)
    dataset = dataset if samples >= len(dataset) else dataset.take(samples, seed=seed)
    started = time.perf_counter()
    layers, outputs = measure_layers(real, quantized, found, dataset, values=values, kernels=kernels, threads=threads)
    seconds = (time.perf_counter() - started) / len(dataset)
    graph = quantized.subgraphs[entry(quantized)]
    noises = attribute(graph, layers)
    described = _Describing(real.subgraphs[entry(real)], graph, outputs, time_us or {})
    described.float_gains_db = _confirmed(real, quantized, found, layers, noises, confirm, dataset, kernels, threads)
    return LayerReport(
        float_model=_name(real, "the float model"),
        quantized_model=_name(quantized, "the quantized model"),
        data=repr(dataset),
        samples=len(dataset),
        kernels=kernels,
        outputs=tuple(_output(output) for output in outputs),
        layers=tuple(described.layer(layer, noise) for layer, noise in zip(layers, noises, strict=True)),
        unmatched=tuple(f"{index} {graph.operators[index].name}" for index in found.unmatched),
        values=values,
        seconds_per_sample=seconds,
    )


class _Describing:
    """Turns measurements into what is reported."""

    def __init__(
        self, real: Subgraph, graph: Subgraph, outputs: Sequence[OutputErrors], time_us: Mapping[int, float]
    ) -> None:
        self._real, self._graph, self._time_us = real, graph, time_us
        self.float_gains_db: Mapping[int, float] = {}
        self._ties = {
            tensor: output.tied / max(1, output.samples)
            for tensor, output in zip(graph.outputs, outputs, strict=True)
            if output.divergence
        }

    def layer(self, layer: LayerErrors, noise: Noise) -> Layer:
        """Return one layer as it is reported."""
        from litesmith.accuracy._causes import findings, repair, ties_at_output

        match = layer.match
        operator = self._graph.operators[match.operator]
        tensor = self._graph.tensors[match.tensor]
        found = findings(self._real, self._graph, layer, noise)
        ties = self._ties.get(match.tensor, 0.0)
        if ties > _MANY_TIES:
            found.insert(0, ties_at_output(layer, operator, ties))
        low, high = _expressible(self._graph, match.tensor)
        isolated = layer.isolated if layer.isolated is not None and layer.isolated.count else None
        return Layer(
            index=match.operator,
            kind=operator.name,
            name=tensor.name,
            dtype=tensor.dtype,
            shape=tensor.shape,
            size_bytes=_constant_bytes(self._graph, match.operator),
            float_bytes=_constant_bytes(self._real, match.float_operator),
            time_us=self._time_us.get(match.operator),
            sqnr_db=layer.accumulated.sqnr_db,
            cosine=layer.accumulated.cosine,
            isolated_sqnr_db=None if isolated is None else isolated.sqnr_db,
            isolated_cosine=None if isolated is None else isolated.cosine,
            share=noise.share,
            low=layer.low,
            high=layer.high,
            quantized_low=low,
            quantized_high=high,
            causes=tuple(finding.cause for finding in found),
            repairs=tuple(repair(finding, noise) for finding in found),
            float_gain_db=self.float_gains_db.get(match.operator),
        )


def _confirmed(
    real: Model,
    quantized: Model,
    found: Correspondence,
    layers: Sequence[LayerErrors],
    noises: Sequence[Noise],
    count: int,
    dataset: Dataset,
    kernels: str,
    threads: int,
) -> Mapping[int, float]:
    """Measure the layers that are most to blame."""
    from litesmith.accuracy._confirm import gains_in_float

    order = sorted(range(len(layers)), key=lambda number: -noises[number].share)[:count]
    worst = [layers[number].match for number in order if noises[number].share > 0]
    few = dataset[:_CONFIRM_SAMPLES]
    return gains_in_float(real, quantized, found, worst, few, kernels=kernels, threads=threads) if worst else {}


_MANY_TIES = 0.01
_CONFIRM_SAMPLES = 32


def _output(output: OutputErrors) -> OutputError:
    is_classes = bool(output.divergence)
    return OutputError(
        name=output.name,
        sqnr_db=output.energies.sqnr_db,
        cosine=output.energies.cosine,
        kl=float(np.mean(output.divergence)) if is_classes else None,
        agreement=output.agree / output.samples if is_classes else None,
        ties=output.tied / output.samples if is_classes else None,
    )


def _constant_bytes(graph: Subgraph, index: int) -> int:
    """Return the size of an operator's constants, those behind a conversion included."""
    producers = graph.producers()
    total = 0
    for tensor in {t for t in graph.operators[index].inputs if t >= 0}:
        stored = graph.tensors[tensor]
        if stored.buffer is None and tensor in producers:
            source = graph.operators[producers[tensor]].inputs
            stored = graph.tensors[source[0]] if source and source[0] >= 0 else stored
        total += len(stored.buffer) if stored.buffer is not None else 0
    return total


def _expressible(graph: Subgraph, index: int) -> tuple[float | None, float | None]:
    tensor = graph.tensors[index]
    quantization = tensor.quantization
    if tensor.dtype not in ("int8", "uint8", "int16") or quantization is None or not quantization.scale:
        return None, None
    limits = np.iinfo(tensor.dtype)
    zero = quantization.zero_point[0] if quantization.zero_point else 0
    return (limits.min - zero) * quantization.scale[0], (limits.max - zero) * quantization.scale[0]


def _check_roles(real: Model, quantized: Model) -> None:
    """Refuse two models of which the first is quantized, or that are the same."""
    if real == quantized:
        raise UsageError("both models are the same; give the float model first and the quantized one second")
    computed = {t.dtype for s in real.subgraphs for o in s.operators for t in (s.tensors[i] for i in o.outputs)}
    if "float32" not in computed or computed & {"int8", "int16"}:
        raise DataError(
            "the first model computes in integers, and must be the float one; was it given second? The order is float, "
            "quantized"
        )


def _rescaled_alike(real: Model, quantized: Model) -> Model:
    """Return the float model with its channels as equalization left them before the other one was quantized."""
    from litesmith.model._channel_scales import recorded, rescaled

    groups = recorded(quantized)
    try:
        return replace(rescaled(real, groups), source=real.source) if groups else real
    except (IndexError, KeyError, ValueError):
        raise DataError(
            "the quantized model was made from another float model: its record of rescaled channels does not fit this one"
        ) from None


def _read(model: Any) -> Model:
    from litesmith.model import Model

    if isinstance(model, Model):
        return model
    return Model.from_bytes(model) if isinstance(model, (bytes, bytearray, memoryview)) else Model.load(model)


def _name(model: Model, otherwise: str) -> str:
    return model.source.name if model.source is not None else otherwise
