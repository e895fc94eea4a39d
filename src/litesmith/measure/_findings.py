# SPDX-License-Identifier: Apache-2.0
"""What is odd in a profile, and the remedy: operators off the fast path, split graphs, work that could be saved."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from litesmith.model import Model, Tensor
from litesmith.runtime import LITESMITH, Partition

Times = Mapping[int, tuple[float, tuple[str, ...]]]  # operator index: (microseconds, kernels)
_PRUNED = 0.5  # of the weights are zero: somebody meant it
_MATTERS = 0.005  # of the latency: below, an oddity is not worth a line
_DATA = {"TRANSPOSE_CONV": 2}


@dataclass(frozen=True)
class Oddity:
    """Something that costs time without need: what, which operators, what they take, and what to do."""

    what: str
    operators: tuple[int, ...]
    share: float  # of the latency
    remedy: str


def find_oddities(model: Model, partitions: Sequence[Partition], times: Times, latency_us: float) -> tuple[Oddity, ...]:
    """Return what is odd, the dearest first."""
    found = [oddity for rule in _RULES for oddity in rule(model, partitions, times, latency_us)]
    return tuple(sorted((o for o in found if o.share >= _MATTERS or not o.operators), key=lambda o: -o.share))


def _share(indices: Sequence[int], times: Times, latency_us: float) -> float:
    return sum(times[i][0] for i in indices if i in times) / latency_us if latency_us else 0.0


def _off_the_fast_path(model: Model, partitions: Sequence[Partition], times: Times, latency_us: float) -> list[Oddity]:
    """Operators on built-in kernels although XNNPACK is on, grouped by the reason."""
    if not any(p.delegate for p in partitions) and not _int16(model):
        return []
    left = [i for p in partitions if p.delegate is None for i in p.operators]
    reasons: dict[tuple[str, str], list[int]] = {}
    for index in left:
        reasons.setdefault(_reason(model, index), []).append(index)
    return [
        Oddity(what, tuple(indices), _share(indices, times, latency_us), remedy)
        for (what, remedy), indices in reasons.items()
    ]


def _int16(model: Model) -> bool:
    return any(t.dtype == "int16" and t.is_quantized for t in model.main.tensors)


def fallback_reason(model: Model, index: int) -> str:
    """Return why XNNPACK leaves an operator to the built-in kernels."""
    return _reason(model, index)[0]


def _reason(model: Model, index: int) -> tuple[str, str]:
    operator = model.main.operators[index]
    tensors = [t for t in (model.main.tensor(i) for i in operator.inputs) if t is not None]
    activation = tensors[_DATA.get(operator.kind, 0)] if tensors else None
    weight = tensors[1] if len(tensors) > 1 else None
    if operator.kind == "CUSTOM":
        return f"custom operator {operator.custom_code}", "measure a faster kernel for it with custom ops"
    if activation is not None and activation.dtype == "int16":
        return (
            "int16 activations run on LiteRT's reference kernels",
            "use int8 where the accuracy allows it; --delegate auto has fast kernels for most of them",
        )
    if operator.kind == "DEPTHWISE_CONV_2D" and _hybrid(activation, weight):
        return (
            "dynamic-range DEPTHWISE_CONV_2D is not taken by XNNPACK and splits the graph",
            "leave depthwise weights float, or int8 with DEQUANTIZE: litesmith quantize --scheme dynamic",
        )
    if any(-1 in (t.shape_signature or ()) for t in tensors):
        return "shapes that may change keep operators out of XNNPACK", "fix the batch when the model is converted"
    return (
        f"{operator.kind} on {activation.dtype if activation else '?'} is not taken by XNNPACK",
        "litesmith compat MODEL --target xnnpack says why, and --fix writes some as others that it takes",
    )


def _hybrid(activation: Tensor | None, weight: Tensor | None) -> bool:
    return activation is not None and weight is not None and activation.dtype == "float32" and weight.dtype == "int8"


def _split_graph(model: Model, partitions: Sequence[Partition], _times: Times, _latency_us: float) -> list[Oddity]:
    pieces = sum(p.delegate is not None for p in partitions)
    if pieces < 3:
        return []
    left = [model.main.operators[i].name for p in partitions if p.delegate is None for i in p.operators]
    kinds = ", ".join(sorted(set(left)))
    return [
        Oddity(
            f"the graph is split into {pieces} partitions",
            (),
            0.0,
            f"each border costs a hand-over; what splits it: {kinds}",
        )
    ]


def _dense_on_pruned(model: Model, partitions: Sequence[Partition], times: Times, latency_us: float) -> list[Oddity]:
    """Weights that are mostly zero, multiplied by kernels that do not look."""
    sparse = {i for p in partitions if p.delegate == LITESMITH for i in p.operators}
    found = []
    for index, operator in enumerate(model.main.operators):
        if index not in times or index in sparse:
            continue
        if operator.kind in ("CONV_2D", "FULLY_CONNECTED") and len(operator.inputs) > 1:
            weight = _stored(model, operator.inputs[1])
            if weight is not None and _zeros(weight) >= _PRUNED:
                found.append(index)
    if not found:
        return []
    return [
        Oddity(
            "pruned weights run on dense kernels, so their zeros save nothing",
            tuple(found),
            _share(found, times, latency_us),
            "prune more, in blocks of four output channels or whole channels: Litesmith's sparse kernels take over where "
            "they win",
        )
    ]


def _stored(model: Model, index: int) -> Tensor | None:
    """Return the constant behind a tensor, through DENSIFY and DEQUANTIZE."""
    tensor = model.main.tensor(index)
    while tensor is not None and tensor.buffer is None:
        source = next((o for o in model.main.operators if index in o.outputs), None)
        if source is None or source.kind not in ("DENSIFY", "DEQUANTIZE"):
            return None
        index = source.inputs[0]
        tensor = model.main.tensor(index)
    return tensor


def _zeros(weight: Tensor) -> float:
    """Return the share of zeros of a constant."""
    if weight.sparsity is not None and weight.buffer is not None:
        return 1 - len(weight.buffer) / max(weight.elements * 4, 1)
    if weight.dtype not in ("float32", "float16", "int8"):
        return 0.0
    zero = weight.quantization.zero_point[0] if weight.quantization and weight.quantization.zero_point else 0
    values = weight.array()
    return float(np.count_nonzero(values == zero)) / max(values.size, 1)


def _float_islands(model: Model, _partitions: Sequence[Partition], times: Times, latency_us: float) -> list[Oddity]:
    """Float operators between a DEQUANTIZE and a QUANTIZE of an otherwise integer graph."""
    operators, producers = model.main.operators, model.main.producers()
    consumers = model.main.consumers()
    islands: list[int] = []
    for index, operator in enumerate(operators):
        if operator.kind in ("QUANTIZE", "DEQUANTIZE") or not operator.outputs:
            continue
        sources = [producers[t] for t in operator.inputs if t in producers]
        users = [u for t in operator.outputs for u in consumers.get(t, [])]
        fed = any(operators[s].kind == "DEQUANTIZE" and not _constant(model, s) for s in sources)
        if fed and any(operators[u].kind == "QUANTIZE" for u in users):
            islands.append(index)
    if not islands:
        return []
    borders = [
        i
        for island in islands
        for i in (
            *(producers[t] for t in operators[island].inputs if t in producers),
            *(u for t in operators[island].outputs for u in consumers.get(t, [])),
        )
    ]
    kinds = ", ".join(sorted({operators[i].name for i in islands}))
    every = sorted({*islands, *(i for i in borders if operators[i].kind in ("QUANTIZE", "DEQUANTIZE"))})
    return [
        Oddity(
            f"float islands between quantized operators: {kinds}",
            tuple(every),
            _share(every, times, latency_us),
            "quantize them too; litesmith quantize says in its coverage why an operator stayed float",
        )
    ]


def _constant(model: Model, index: int) -> bool:
    return all(model.main.tensors[t].is_constant for t in model.main.operators[index].inputs if t >= 0)


_Rule = Callable[[Model, Sequence[Partition], Times, float], "list[Oddity]"]
_RULES: tuple[_Rule, ...] = (_off_the_fast_path, _split_graph, _dense_on_pruned, _float_islands)
