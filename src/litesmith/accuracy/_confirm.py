# SPDX-License-Identifier: Apache-2.0
"""Measure what a layer costs: the quantized model with that one layer in float, against the quantized model.

The noise model takes the errors of layers as independent. Errors of weights are not: they may cancel at the output or
add up. Where that matters, this tells the truth, at the cost of a model and some runs for each layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from litesmith.accuracy._correspond import Correspondence, Match, entry, stored_constants
from litesmith.accuracy._errors_per_layer import Energies
from litesmith.accuracy._predict import Candidate, Runner
from litesmith.data import Dataset
from litesmith.model import ABSENT, Model, Operator, Subgraph, Tensor
from litesmith.progress import task


def gains_in_float(
    float_model: Model,
    quantized_model: Model,
    found: Correspondence,
    matches: Sequence[Match],
    dataset: Dataset,
    *,
    kernels: str,
    threads: int,
) -> dict[int, float]:
    """Return by operator index how many dB the outputs gain with that operator in float."""
    how: dict[str, Any] = {"kernels": kernels, "threads": threads}
    expected = _outputs(Candidate.of(float_model, **how), dataset)
    before = _sqnr_db(expected, _outputs(Candidate.of(quantized_model, **how), dataset))
    gains = {}
    with task("Measuring layers in float", total=len(matches)) as advance:
        for match in matches:
            hybrid = in_float(float_model, quantized_model, found, match)
            if hybrid is not None:
                after = _sqnr_db(expected, _outputs(Candidate.of(hybrid, **how), dataset))
                gains[match.operator] = after - before
            advance(1)
    return gains


def in_float(float_model: Model, quantized_model: Model, found: Correspondence, match: Match) -> Model | None:
    """Return the quantized model with one operator in float; None where the operators or their shapes differ."""
    real, graph = float_model.subgraphs[entry(float_model)], quantized_model.subgraphs[entry(quantized_model)]
    original, operator = real.operators[match.float_operator], graph.operators[match.operator]
    constants = stored_constants(real)
    ours = {found.tensors[t]: t for t in operator.inputs if t in found.tensors}
    read = [t for t in original.inputs if t != ABSENT and t not in constants]
    if original.name != operator.name or len(original.outputs) != 1 or any(t not in ours for t in read):
        return None
    pairs = [(match.tensor, match.float_tensor), *((ours[t], t) for t in read)]
    if any(
        graph.tensors[one].shape != real.tensors[other].shape for one, other in pairs
    ):  # folded: other weights fit it
        return None
    tensors = list(graph.tensors)
    operators: list[Operator] = []

    def add(tensor: Tensor) -> int:
        tensors.append(replace(tensor, name=f"float/{len(tensors)}"))
        return len(tensors) - 1

    def constant(index: int) -> int:
        place = add(real.tensors[index])
        if not real.tensors[index].is_constant:
            source = real.operators[real.producers()[index]]
            operators.append(replace(source, inputs=tuple(map(constant, source.inputs)), outputs=(place,)))
        return place

    def activation(index: int) -> int:
        tensor = graph.tensors[ours[index]]
        if tensor.dtype == "float32":
            return ours[index]
        place = add(replace(tensor, dtype="float32", quantization=None))
        operators.append(Operator("DEQUANTIZE", (ours[index],), (place,), version=_version("DEQUANTIZE", tensor)))
        return place

    inputs = tuple(t if t == ABSENT else constant(t) if t in constants else activation(t) for t in original.inputs)
    result = graph.tensors[match.tensor]
    place = match.tensor if result.dtype == "float32" else add(real.tensors[match.float_tensor])
    operators.append(replace(original, inputs=inputs, outputs=(place,)))
    if place != match.tensor:
        operators.append(Operator("QUANTIZE", (place,), (match.tensor,), version=_version("QUANTIZE", result)))
    before, after = graph.operators[: match.operator], graph.operators[match.operator + 1 :]
    return _with_graph(quantized_model, replace(graph, tensors=tuple(tensors), operators=(*before, *operators, *after)))


def _with_graph(model: Model, graph: Subgraph) -> Model:
    position = entry(model)
    return replace(model, subgraphs=(*model.subgraphs[:position], graph, *model.subgraphs[position + 1 :]))


def _version(kind: str, tensor: Tensor) -> int:
    wide = tensor.dtype == "int16"
    return (3 if wide else 2) if kind == "DEQUANTIZE" else (2 if wide else 1)


def _outputs(candidate: Candidate, dataset: Dataset) -> list[np.ndarray[Any, Any]]:
    runner = Runner(candidate)
    try:
        batch = next(candidate.bind(dataset).batches(len(dataset)))
        found = runner.reals(runner.run(runner.prepare(batch.inputs), len(batch)), 0)
        return [array.reshape(len(batch), -1).astype(np.float32) for array in found.values()]
    finally:
        runner.close()


def _sqnr_db(expected: list[np.ndarray[Any, Any]], outputs: list[np.ndarray[Any, Any]]) -> float:
    """Return the mean over outputs of signal over error."""
    ratios = []
    for x, y in zip(expected, outputs, strict=True):
        energies = Energies()
        energies.add(x.reshape(-1), (y - x).reshape(-1))
        ratios.append(energies.sqnr_db)
    return float(np.mean(ratios))
