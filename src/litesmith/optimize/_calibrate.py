# SPDX-License-Identifier: Apache-2.0
"""Calibration: one streaming pass of the float model over samples, from which each activation gets its range."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from litesmith.errors import DataError, UsageError
from litesmith.model import Model, Subgraph
from litesmith.model._expose import expose
from litesmith.optimize._range_methods import METHODS
from litesmith.optimize._ranges import Range, Ranges, tensor_counts
from litesmith.optimize._rules import CONTROL_FLOW, LSTM_KINDS, RULES
from litesmith.optimize._run import Data, Feed, GraphRunner, feeds, repeatable
from litesmith.optimize._statistics import TensorStatistics
from litesmith.progress import task

Array = np.ndarray[Any, Any]
DEFAULT_METHOD = "minmax"
DEFAULT_TAIL = 3e-4
"""Best of 0, 1, 3 and 10 in 10,000 on MobileNet V2, calibrated and scored on crops of different photographs."""
MEMORY_BUDGET_BYTES = 512 << 20
_NEVER_NEGATIVE = frozenset({"RELU", "RELU6"})
_ZERO_BASED = frozenset({"LOGISTIC", "RELU", "RELU6", "RELU_0_TO_1", "SOFTMAX"})


def calibrate(
    model: Model,
    data: Data,
    *,
    method: str = DEFAULT_METHOD,
    samples: int | None = None,
    tail: float = DEFAULT_TAIL,
    channels: bool = False,
    memory_budget_bytes: int = MEMORY_BUDGET_BYTES,
    threads: int = 1,
) -> Ranges:
    """Run samples through a float model and return the range of each activation.

    The model runs in LiteRT with XNNPACK, the activations exposed as outputs; only running statistics are kept.
    Where the activations together exceed ``memory_budget_bytes``, the samples pass several times, each time with other
    activations exposed.

    Args:
        model: the float model; every entry (signature) of it is calibrated that the samples fit.
        data: a Dataset, or samples as arrays, tuples of arrays, or dicts by input name.
        method: "minmax", "percentile" (in each sample all but ``tail`` of the values; the widest over samples), "mse",
            "entropy", or "average" (a moving average: the one that depends on the order of the samples).
        samples: how many samples at most, from all over the data; all by default, of an iterator the first 1000.
        tail: the share of values that "percentile" leaves out on either side.
        channels: also record the minimum, maximum and mean of each channel, which costs about as much again.
        memory_budget_bytes: of the exposed activations.
        threads: of the runtime.
    """
    if method not in METHODS:
        raise UsageError(f"there is no range method {method!r}; choose one of {', '.join(METHODS)}")
    if not 0 <= tail < 0.5:
        raise UsageError(f"a tail of {tail} leaves nothing; give a share such as 0.0001")
    chosen = repeatable(data, samples)
    entries: list[Range] = []
    count = 0
    for signature, subgraph in entry_points(model):
        graph = model.subgraphs[subgraph]
        wanted = observed_tensors(graph)
        parts = within_budget(graph, wanted, memory_budget_bytes)
        for number, part in enumerate(parts):
            collected = [_collector(graph, tensor, method, tail, channels) for tensor in part]
            runner = GraphRunner(expose(model, part, subgraph=subgraph), subgraph=subgraph, threads=threads)
            stream = _matching(model, chosen, signature, count)
            seen = _observe(runner, stream, collected, f"Calibrating {number + 1}/{len(parts)}")
            if seen == 0 and signature == 0:
                raise DataError("there are no samples to calibrate with; give some, or quantize with data-free ranges")
            count = max(count, seen)
            entries += [c.range(subgraph, method) for c in collected if c.statistics.samples]
        entries += _cell_ranges(model, subgraph, _matching(model, chosen, signature, count))
    name = method if method != "percentile" else f"percentile({tail:g})"
    return Ranges(name, count, tuple(entries), tensor_counts(model))


def entry_points(model: Model) -> list[tuple[int, int]]:
    """Return (signature, subgraph) of each way into the model, the main subgraph once."""
    found: dict[int, int] = {}
    for number, signature in enumerate(model.signatures):
        found.setdefault(signature.subgraph_index, number)
    if not model.signatures:
        found[0] = 0
    return [(signature, subgraph) for subgraph, signature in found.items()]


def observed_tensors(graph: Subgraph) -> list[int]:
    """Return the tensors whose range must be seen: float, computed or fed, and not merely another's data moved."""
    producers = graph.producers()
    consumers = graph.consumers()
    wanted = []
    for index, tensor in enumerate(graph.tensors):
        if tensor.dtype != "float32" or tensor.is_constant or tensor.is_variable:
            continue
        made_by = producers.get(index)
        if made_by is None and index not in graph.inputs:
            continue  # an orphan
        if made_by is not None and _is_moved(graph, made_by):
            continue
        relevant = [made_by] if made_by is not None else []
        relevant += consumers.get(index, [])
        kinds = {graph.operators[o].kind for o in relevant}
        if kinds & (RULES.keys() | LSTM_KINDS) and not (made_by is not None and _is_boundary(graph, made_by, kinds)):
            wanted.append(index)
    return wanted


def _is_moved(graph: Subgraph, operator: int) -> bool:
    op = graph.operators[operator]
    rule = RULES.get(op.kind)
    if rule is None or not rule.moves or rule.limits or rule.inputs is None:
        return False
    return all(not graph.tensors[op.inputs[i]].is_constant for i in rule.inputs if i < len(op.inputs))


def _is_boundary(graph: Subgraph, operator: int, kinds: set[str]) -> bool:
    """Say whether an operator's results cannot be read: those of control flow may change shape."""
    return graph.operators[operator].kind in CONTROL_FLOW and not kinds & RULES.keys()


def _cell_ranges(model: Model, subgraph: int, stream: Iterable[Feed]) -> list[Range]:
    """Return the ranges of LSTM cells, which only a replay of the recurrence shows."""
    from litesmith.optimize._lstm import CELL_STATE, can_replay, replay_cell

    graph = model.subgraphs[subgraph]
    cells = [op for op in graph.operators if op.kind in LSTM_KINDS and can_replay(graph, op)]
    if not cells:
        return []
    computed = [op.inputs[0] for op in cells if op.inputs[0] not in graph.inputs]
    runner = GraphRunner(expose(model, computed, subgraph=subgraph), subgraph=subgraph)
    found = [(0.0, 0.0)] * len(cells)
    for feed in stream:
        if computed:
            runner.run(feed)
        for number, op in enumerate(cells):
            low, high = replay_cell(
                graph, op, feed[op.inputs[0]] if op.inputs[0] in feed else runner.view(op.inputs[0])
            )
            found[number] = min(found[number][0], low), max(found[number][1], high)
    places = [op.inputs[CELL_STATE] for op in cells]
    return [Range(subgraph, t, graph.tensors[t].name, *seen, *seen) for t, seen in zip(places, found, strict=True)]


def _matching(model: Model, data: Iterable[Any], signature: int, seen: int) -> Iterable[Feed]:
    """Yield the feeds; samples made for the first signature may not fit the others, which then stay unobserved."""
    if signature == 0:
        return feeds(model, data, signature=0)
    try:
        first = next(feeds(model, data, signature=signature), None)
    except DataError:
        return ()
    return () if first is None or not seen else feeds(model, data, signature=signature)


def within_budget(graph: Subgraph, tensors: list[int], budget_bytes: int) -> list[list[int]]:
    """Return the tensors in parts that together stay below a number of bytes, as float32."""
    parts: list[list[int]] = [[]]
    used = 0
    for index in tensors:
        size = 4 * graph.tensors[index].elements
        if parts[-1] and used + size > budget_bytes:
            parts.append([])
            used = 0
        parts[-1].append(index)
        used += size
    return parts


class _Collector:
    """The statistics of one tensor, and of its channels where asked for."""

    def __init__(self, tensor: int, name: str, statistics: TensorStatistics, *, channels: bool) -> None:
        self.tensor, self.name, self.statistics = tensor, name, statistics
        self._channels = channels
        self._low: Array | None = None
        self._high: Array | None = None
        self._sum: Array | None = None
        self._count = 0

    def update(self, values: Array) -> None:
        self.statistics.update(values)
        if self._channels and values.ndim:
            rows = values.reshape(-1, values.shape[-1])
            low, high, total = rows.min(axis=0), rows.max(axis=0), rows.sum(axis=0, dtype=np.float64)
            if self._low is None or self._high is None or self._sum is None:
                self._low, self._high, self._sum = low, high, total
            elif self._low.shape == low.shape:
                self._low, self._high = np.minimum(self._low, low), np.maximum(self._high, high)
                self._sum = self._sum + total
            self._count += len(rows)

    def range(self, subgraph: int, method: str) -> Range:
        low, high = METHODS[method](self.statistics)
        channel: dict[str, tuple[float, ...]] = {}
        if self._low is not None and self._high is not None and self._sum is not None:
            channel = {
                "channel_low": tuple(map(float, self._low)),
                "channel_high": tuple(map(float, self._high)),
                "channel_mean": tuple(map(float, self._sum / max(self._count, 1))),
            }
        seen = self.statistics.seen_low, self.statistics.seen_high
        return Range(
            subgraph, self.tensor, self.name, float(low), float(high), float(seen[0]), float(seen[1]), **channel
        )


def _collector(graph: Subgraph, tensor: int, method: str, tail: float, channels: bool) -> _Collector:
    statistics = TensorStatistics(
        never_negative=_never_negative(graph, tensor),
        tail=tail if method == "percentile" else 0.0,
        distribution=method in ("mse", "entropy"),
    )
    return _Collector(tensor, graph.tensors[tensor].name, statistics, channels=channels)


def _never_negative(graph: Subgraph, tensor: int) -> bool:
    producer = graph.producers().get(tensor)
    if producer is None:
        return False
    op = graph.operators[producer]
    fused = getattr(op.options, "fused_activation_function", "NONE") if op.options is not None else "NONE"
    return fused in _NEVER_NEGATIVE or op.kind in _ZERO_BASED


def _observe(runner: GraphRunner, stream: Iterable[Feed], collected: list[_Collector], title: str) -> int:
    seen = 0
    with task(title) as advance:
        for feed in stream:
            runner.run(feed)
            for collector in collected:
                collector.update(feed[collector.tensor] if collector.tensor in feed else runner.view(collector.tensor))
            seen += 1
            advance(1)
    broken = sum(c.statistics.not_finite for c in collected)
    if broken and all(math.isinf(c.statistics.seen_high) for c in collected):
        raise DataError("the model returns no finite number for these samples; check the preprocessing")
    return seen
