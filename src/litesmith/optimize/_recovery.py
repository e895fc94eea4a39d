# SPDX-License-Identifier: Apache-2.0
"""Recovery of accuracy: which passes run, in which order, and what each of them gains at the outputs.

A pass is a module with a ``STAGE`` and a function ``apply``:

- "model": ``apply(model, request, data) -> Model`` before calibration; same structure, computes the same.
- "ranges": ``METHOD`` is that of the ranges of activations; there is no ``apply``.
- "scales": ``METHOD`` is that of the ranges of weights; there is no ``apply``.
- "weights": ``apply(model, request, ranges, data) -> Overrides``, weights already quantized, by (subgraph, tensor).
- "result": ``apply(model, quantized, request, data) -> Model``, the quantized model with other constants.

After each pass the model is built again and its outputs are compared with those of the float model. Passes that were
not asked for stay only where they bring them closer, by ``LEAST_GAIN_DB`` where the module has one. They are tried in
combination, as ranges that suit equalized channels need not suit others, nor weights that count on corrected biases.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from litesmith.errors import SessionError
from litesmith.model import Model, Subgraph, Tensor
from litesmith.model._expose import expose
from litesmith.optimize._arithmetic import dequantize_array
from litesmith.optimize._build import Quantized, build
from litesmith.optimize._calibrate import DEFAULT_METHOD, MEMORY_BUDGET_BYTES, entry_points
from litesmith.optimize._coverage import PassReport
from litesmith.optimize._ranges import Ranges
from litesmith.optimize._request import Request
from litesmith.optimize._run import Data, GraphRunner
from litesmith.optimize._segments import as_fed, spread_samples
from litesmith.optimize._shared_constants import for_all_holders
from litesmith.optimize._weight_ranges import DEFAULT_WEIGHT_METHOD
from litesmith.optimize._weights import Overrides

Array = np.ndarray[Any, Any]
RECOVERY_MODULES = {
    "equalize": "litesmith.optimize._equalize",
    "clip": "litesmith.optimize._clip",
    "trim": "litesmith.optimize._trim",
    "gptq": "litesmith.optimize._gptq",
    "rounding": "litesmith.optimize._rounding",
    "bias": "litesmith.optimize._bias",
}
"""Accuracy recovery passes by name, in the order in which they run."""
_STAGES = ("model", "ranges", "scales", "weights", "result")
_BEAM = 2
_CLOSE_DB = 1.0
"""The passes of the later stages are tried upon so many of the best combinations so far, if they are this close."""
_METER_SAMPLES = 96
_LEAST_PROBABILITY = 1e-6


Calibrated = Callable[[Model, str], Ranges | None]
"""Returns the ranges of a model by a method; None where no activation becomes an integer."""


def default_passes(request: Request) -> tuple[str, ...]:
    """Return the passes that help a request, as a rule: for integer activations, and for the rounding of weights."""
    rounds_activations = any(scheme.is_static for scheme in request.schemes)
    rounds_coarsely = any(scheme.bits <= 6 and not scheme.block for scheme in request.schemes)
    gptq = ("gptq",) if any(scheme.rounding_matters and not scheme.block for scheme in request.schemes) else ()
    if not (rounds_activations or rounds_coarsely):
        return gptq
    has_outliers = any(scheme.domain == "int8" for scheme in request.schemes)  # 16 bits have room for them
    clip = ("clip",) if has_outliers and request.method == DEFAULT_METHOD else ()
    trim = ("trim",) if request.weight_ranges == DEFAULT_WEIGHT_METHOD and not gptq else ()  # gptq tries it by itself
    return ("equalize", *clip, *trim, *gptq, "bias")


def in_order(names: Sequence[str]) -> dict[str, str]:
    """Return the stage of each pass, those of the earlier stages first."""
    found = {name: str(_module(name).STAGE) for name in names}
    return dict(sorted(found.items(), key=lambda item: _STAGES.index(item[1])))


def _module(name: str) -> Any:
    return importlib.import_module(RECOVERY_MODULES[name])


@dataclass(frozen=True)
class _State:
    """A quantized model, what it was built from, and how close its outputs are; None where that cannot be measured."""

    source: Model
    request: Request
    ranges: Ranges | None
    overrides: Overrides
    result: Quantized
    sqnr_db: float | None


Path = tuple[str, ...]
"""The names of passes, in the order in which they were applied."""


def recovered(
    model: Model,
    result: Quantized,
    request: Request,
    passes: Mapping[str, str],
    data: Data | None,
    calibrated: Calibrated,
    *,
    check: bool,
    forced: bool,
) -> Quantized:
    """Apply passes, given with their stages; those that are not ``forced`` only where they help and LiteRT runs them."""
    search = _Search(model, result, request, passes, data, calibrated, check)
    chosen = search.all() if forced else search.best() if search.is_measured else search.none()
    final = search.states[chosen].result
    return replace(final, coverage=replace(final.coverage, recovery=tuple(search.reports(chosen))))


class _Search:
    """Tries passes one upon another, and remembers what each combination gave."""

    def __init__(
        self,
        model: Model,
        result: Quantized,
        request: Request,
        passes: Mapping[str, str],
        data: Data | None,
        calibrated: Calibrated,
        check: bool,
    ) -> None:
        self._passes, self._data, self._calibrated = passes, data, calibrated
        self._check = check
        self._meter = OutputMeter(model, data)
        before = self._meter.sqnr_db(result.model)
        start = _State(model, request, result.ranges, request.weights or {}, result, before)
        self.states: dict[Path, _State] = {(): start}
        self._failures: dict[str, str] = {}

    @property
    def is_measured(self) -> bool:
        """Whether the samples show how close the outputs are."""
        return self.states[()].sqnr_db is not None

    def none(self) -> Path:
        """Apply no pass, as none could be seen to help."""
        why = "its effect cannot be measured, as the samples give no float but zero; name it (--recover) to have it"
        self._failures = dict.fromkeys(self._passes, why)
        return ()

    def all(self) -> Path:
        """Apply every pass, whether it helps or not."""
        path: Path = ()
        for name in self._passes:
            path = self._extend(path, name)
        return path

    def best(self) -> Path:
        """Apply what brings the outputs closer to those of the float model."""
        self._combine([()], ("model", "ranges"))
        self._combine(self._close(), ("scales",))
        self._combine(self._close(), ("weights", "result"))
        return max(self.states, key=self._merit)

    def _close(self) -> list[Path]:
        """Return the best combinations so far."""
        ranked = sorted(self.states, key=self._merit, reverse=True)
        return [path for path in ranked[:_BEAM] if self._merit(path) > self._merit(ranked[0]) - _CLOSE_DB]

    def _combine(self, paths: list[Path], stages: tuple[str, ...]) -> None:
        """Try every combination of the passes of some stages upon each path."""
        for name, stage in self._passes.items():
            if stage in stages:
                paths = [*paths, *(extended for path in paths if (extended := self._try(path, name)) != path)]

    def reports(self, chosen: Path) -> Iterator[PassReport]:
        """Yield what each pass did, or why it is left out."""
        path: Path = ()
        for name in self._passes:
            before, after = self.states[path], self.states.get((*path, name))
            kept = name in chosen
            reason = "" if kept else self._failures.get(name, "too little gain")
            changed = 0 if after is None else _differences(before, after)
            yield PassReport(name, kept, changed, before.sqnr_db, None if after is None else after.sqnr_db, reason)
            path = (*path, name) if kept else path

    def _merit(self, path: Path) -> float:
        """Return the closeness of the outputs, less what passes must gain at least."""
        return (self.states[path].sqnr_db or 0.0) - sum(getattr(_module(name), "LEAST_GAIN_DB", 0.0) for name in path)

    def _try(self, path: Path, name: str) -> Path:
        """Return the path with one more pass, or as it was where LiteRT does not run what the pass makes."""
        try:
            return self._extend(path, name)
        except SessionError as error:
            self._failures[name] = f"LiteRT does not run the result: {error}"
            return path

    def _extend(self, path: Path, name: str) -> Path:
        state, module = self.states[path], _module(name)
        source, request, ranges, overrides = state.source, state.request, state.ranges, state.overrides
        result = state.result
        if module.STAGE == "result":
            result = replace(result, model=module.apply(source, result, request, self._data))
        else:
            if module.STAGE == "model":
                source = module.apply(source, request, self._data)
                ranges = self._calibrated(source, request.method)
            elif module.STAGE == "ranges":
                ranges = self._calibrated(source, module.METHOD)
            elif module.STAGE == "scales":
                request = replace(request, weight_ranges=module.METHOD)
            else:
                found = module.apply(source, request, ranges, self._data)
                if not found:
                    self._failures[name] = "there is no layer for it"
                    return path
                overrides = {**overrides, **for_all_holders(source, found)}
            result = build(source, replace(request, weights=overrides), ranges, check=self._check)
        extended = (*path, name)
        self.states[extended] = _State(source, request, ranges, overrides, result, self._meter.sqnr_db(result.model))
        return extended


def _differences(before: _State, after: _State) -> int:
    """Return how many constants or ranges a pass changed."""
    if before.source is not after.source:
        return _unlike(before.source, after.source)
    if before.ranges is not after.ranges and before.ranges is not None and after.ranges is not None:
        pairs = zip(before.ranges.entries, after.ranges.entries, strict=True)
        return sum((a.low, a.high) != (b.low, b.high) for a, b in pairs)
    if before.overrides is not after.overrides:
        return len(after.overrides)
    return _unlike(before.result.model, after.result.model)


def _unlike(before: Model, after: Model) -> int:
    pairs = zip(before.subgraphs, after.subgraphs, strict=True)
    return sum(a.buffer != b.buffer for x, y in pairs for a, b in zip(x.tensors, y.tensors, strict=False))


class OutputMeter:
    """How close a quantized model's outputs are to those of the float model, on some samples of the first entry.

    Where all outputs are integers, such as those of ARG_MAX, the floats that they are made of are compared.
    Of probabilities the scores behind them are compared: else the few samples on which a model is unsure would decide.
    Probabilities below what the quantized model can tell from zero count as equal.
    """

    def __init__(self, model: Model, data: Data | None) -> None:
        signature, self._subgraph = entry_points(model)[0]
        graph = model.subgraphs[self._subgraph]
        self._places = [place for place, t in enumerate(graph.outputs) if graph.tensors[t].dtype == "float32"]
        self._inner = [] if self._places else _floats_behind(graph)
        producers = graph.producers()
        measured = self._measured(graph)
        self._is_softmax = [t in producers and graph.operators[producers[t]].kind == "SOFTMAX" for t in measured]
        size = 4 * sum(graph.tensors[t].elements for t in measured)
        count = min(_METER_SAMPLES, max(MEMORY_BUDGET_BYTES // max(size, 1), 1))
        self._samples = [] if data is None else spread_samples(model, data, count, signature=signature)
        self._expected = [[array.copy() for array in arrays] for arrays in self._outputs(model)]

    def sqnr_db(self, quantized: Model) -> float | None:
        """Return the signal over the error, the mean over the outputs in decibels; None where none is real."""
        graph = quantized.subgraphs[self._subgraph]
        measured = self._measured(graph)
        signal, error = np.zeros(len(measured)), np.zeros(len(measured))
        floors = [max(_LEAST_PROBABILITY, 2 * _step(graph, tensor)) for tensor in measured]
        for expected, got in zip(self._expected, self._outputs(quantized), strict=True):
            for place, (x, y) in enumerate(zip(expected, got, strict=True)):
                if self._is_softmax[place]:
                    x, y = _scores(x, floors[place]), _scores(y, floors[place])
                x = x.astype(np.float64)  # whose squares no float32 overflows
                if x.shape == y.shape and np.isfinite(x).all():
                    signal[place] += float(np.vdot(x, x))
                    error[place] += float(np.vdot(x - y, x - y))
        real = signal > 0
        if not real.any() or not np.isfinite(error).all():
            return None if not real.any() else -math.inf
        return float(np.mean(10 * np.log10(signal[real] / np.maximum(error[real], 1e-20 * signal[real]))))

    def _outputs(self, model: Model) -> Iterator[list[Array]]:
        graph = model.subgraphs[self._subgraph]
        measured = self._measured(graph)
        opened = expose(model, self._inner, subgraph=self._subgraph) if self._inner else model
        runner = GraphRunner(opened, subgraph=self._subgraph)
        for feed in self._samples:
            runner.run(as_fed(graph, feed))
            yield [_reals(runner.view(t), graph.tensors[t]) for t in measured]

    def _measured(self, graph: Subgraph) -> list[int]:
        """Return the tensors to compare; inner ones have the same index in both models."""
        return [*(graph.outputs[place] for place in self._places), *self._inner]


def _floats_behind(graph: Subgraph) -> list[int]:
    """Return the computed floats that the operators which write integer outputs read, through other integers too."""
    producers = graph.producers()
    found: dict[int, None] = {}
    ahead = [t for t in graph.outputs if t in producers]
    seen = set(ahead)
    while ahead:
        tensor = ahead.pop(0)
        if graph.tensors[tensor].dtype == "float32":
            found[tensor] = None
            continue
        read = {t for t in graph.operators[producers[tensor]].inputs if t in producers} - seen
        seen |= read
        ahead += sorted(read)
    return list(found)


def _step(graph: Subgraph, tensor: int) -> float:
    """Return the scale of a quantized output, also behind its conversion to float; 0 where it is real."""
    producer = graph.producers().get(tensor)
    if producer is not None and graph.operators[producer].kind == "DEQUANTIZE":
        tensor = graph.operators[producer].inputs[0]
    quantization = graph.tensors[tensor].quantization
    return 0.0 if quantization is None else max(quantization.scale, default=0.0)


def _scores(probabilities: Array, least: float) -> Array:
    """Return what a softmax made probabilities of, as far as they tell: up to a constant."""
    logarithms = np.log(np.maximum(probabilities, least))
    centered: Array = logarithms - logarithms.mean(axis=-1, keepdims=True)
    return centered


def _reals(values: Array, tensor: Tensor) -> Array:
    if values.dtype.kind == "f" or tensor.quantization is None:
        return values
    return dequantize_array(values, tensor.quantization)
