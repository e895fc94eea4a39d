# SPDX-License-Identifier: Apache-2.0
"""Which layers of a quantized model lose the accuracy, why, and what to change."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from litesmith.accuracy._layer_report import Layer, LayerReport, OutputError
from litesmith.accuracy._noise import Noise, attribute
from litesmith.data import Dataset, Preprocess
from litesmith.errors import DataError, UsageError
from litesmith.machine import machine_facts

if TYPE_CHECKING:
    from litesmith.accuracy._correspond import Correspondence
    from litesmith.accuracy._errors_per_layer import LayerErrors, OutputErrors
    from litesmith.accuracy._evaluate import DataLike
    from litesmith.model import Model, Subgraph
    from litesmith.runtime._source import ModelLike


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

    if samples < 1 or values < 1 or confirm < 0:
        raise UsageError(f"samples={samples} and values={values} must be 1 or more, confirm={confirm} 0 or more")
    real, quantized = _read(float_model), _read(quantized_model)
    _check_roles(real, quantized)
    found = correspond(real, quantized)
    rescaled = _rescaled_alike(real, quantized, found)
    if rescaled is not real:
        real, found = rescaled, correspond(rescaled, quantized)
    dataset = Dataset.open(data, preprocess=preprocess)
    dataset = dataset if samples >= len(dataset) else dataset.take(samples, seed=seed)
    started = time.perf_counter()
    layers, outputs = measure_layers(real, quantized, found, dataset, values=values, kernels=kernels, threads=threads)
    seconds = (time.perf_counter() - started) / len(dataset)
    graph = quantized.subgraphs[entry(quantized)]
    noises = attribute(graph, layers)
    if found.narrower:  # what they lost comes out at the layers that read them
        noises = [_without_blame(layer, noise) for layer, noise in zip(layers, noises, strict=True)]
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
        narrower=tuple(f"{index} {graph.operators[index].name}" for index in found.narrower),
        notes=_notes(found),
        values=values,
        seconds_per_sample=seconds,
        machine=machine_facts(),
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
            kl=layer.distributions.kl(0),
            isolated_sqnr_db=None if isolated is None else isolated.sqnr_db,
            isolated_cosine=None if isolated is None else isolated.cosine,
            isolated_kl=None if isolated is None else layer.distributions.kl(1),
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


def _rescaled_alike(real: Model, quantized: Model, found: Correspondence) -> Model:
    """Return the float model with its channels as equalization left them before the other one was quantized."""
    from litesmith.accuracy._correspond import WHAT_TO_GIVE
    from litesmith.model._channel_scales import recorded, rescaled

    groups = recorded(quantized)
    if not groups:
        return real
    try:
        if not found.folded:  # else the record counts other operators, and might fit some by chance
            return replace(rescaled(real, groups), source=real.source)
    except (IndexError, KeyError, ValueError):
        pass
    raise DataError(
        "the quantized model was made from another float model: its record of rescaled channels does not fit this one; "
        + WHAT_TO_GIVE
    )


def _without_blame(layer: LayerErrors, noise: Noise) -> Noise:
    """Return what a layer adds where that was measured, and no share of the error at the outputs."""
    alone = layer.isolated is not None and layer.isolated.count
    return replace(noise, share=0.0) if alone else Noise(0.0, 0.0, 0.0, 0.0, 0.0)


def _notes(found: Correspondence) -> tuple[str, ...]:
    give = "to see what quantization alone costs, and changes in the numbers of the model it was made from, give the"
    if found.narrower:
        done = "channels were removed before the model was quantized: which layers are to blame cannot be told"
        return (f"{done}; {give} narrower float model",)
    return (f"pixels were folded before the model was quantized; {give} folded float model",) if found.folded else ()


def _read(model: Any) -> Model:
    from litesmith.model import Model

    if isinstance(model, Model):
        return model
    return Model.from_bytes(model) if isinstance(model, (bytes, bytearray, memoryview)) else Model.load(model)


def _name(model: Model, otherwise: str) -> str:
    return model.source.name if model.source is not None else otherwise
