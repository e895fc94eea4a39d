# SPDX-License-Identifier: Apache-2.0
"""Measure the error of every layer in one pass over the samples.

Energies are summed over a window of each tensor, another one in each sample: at most ``values`` numbers, whole rows of
channels. In models of many values, layers run alone on one sample of eight only, and what describes the shape of a
distribution (its divergence, levels in use, energy by channel) is taken there, from fewer values. The cost is then that of
running both models and little more, whatever the size of the tensors.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from litesmith.accuracy._correspond import Correspondence, Match, entry
from litesmith.accuracy._distributions import Distributions
from litesmith.accuracy._ports import Port
from litesmith.accuracy._predict import Candidate
from litesmith.accuracy._probe import exposed, isolated, tensor_name
from litesmith.data import Dataset
from litesmith.errors import DataError
from litesmith.model import Model, Tensor
from litesmith.progress import task
from litesmith.runtime import Session

Array = NDArray[Any]
_SHAPE_VALUES = 4096
_DISTRIBUTION_VALUES = 512
_GOLDEN = 0.6180339887498949
_ALONE_EVERY = 8
_LEAST_ALONE = 4
_SMALL_VALUES = 500_000  # of all layers together: up to here each sample is run alone too
_MEMORY_BYTES = 1 << 30
LEVELS = 256


@dataclass
class Energies:
    """Sums over a float tensor x and its error d."""

    signal: float = 0.0
    error: float = 0.0
    product: float = 0.0
    count: int = 0

    def add(self, real: Array, error: Array) -> None:
        """Count the values of one sample."""
        self.signal += float(np.dot(real, real))
        self.error += float(np.dot(error, error))
        self.product += float(np.dot(real, error))
        self.count += real.size

    @property
    def sqnr_db(self) -> float:
        """Signal over error in decibel; infinite without error, and where there is neither."""
        if self.error == 0:
            return math.inf
        return 10 * math.log10(self.signal / self.error) if self.signal else -math.inf

    @property
    def cosine(self) -> float:
        """The cosine between the float values and the quantized ones."""
        other = self.signal + 2 * self.product + self.error
        length = math.sqrt(max(0.0, self.signal * other))
        return (self.signal + self.product) / length if length else float(self.signal == other)

    @property
    def mean_error(self) -> float:
        """The mean squared error of a value."""
        return self.error / self.count if self.count else 0.0


@dataclass
class LayerErrors:
    """What was measured of one layer.

    Attributes:
        match: the operator and its tensors.
        accumulated: the quantized model against the float one.
        isolated: the operator alone quantized against the float one; None where it cannot be run alone.
        distributions: of the float values, of the quantized model's and, where it can be run alone, of the operator's.
        rounding: the float values rounded to the quantized tensor's scale, against themselves.
        passed: the quantized model against the rounded float values: all but the rounding of these very values.
        from_inputs: what the rounding of the inputs makes of the float operator's output, rounded too.
        own: the operator alone against the float operator, on the same rounded inputs and rounded too.
        low, high: the range of the float values.
        clipped: float values beyond what the quantized tensor can express; ``clip_error``: the squares of the excess.
        levels: how often each of 256 steps of the quantized range is used.
        channel_signal: the energy by channel; ``channel_peak``: the largest value by channel.
        channel_shift: the sum of the accumulated error by channel.
        shape_rows: how many rows of channels the last three and ``levels`` are of.
    """

    match: Match
    accumulated: Energies = field(default_factory=Energies)
    isolated: Energies | None = None
    distributions: Distributions = field(default_factory=lambda: Distributions(1))
    rounding: Energies = field(default_factory=Energies)
    passed: Energies = field(default_factory=Energies)
    from_inputs: Energies = field(default_factory=Energies)
    own: Energies = field(default_factory=Energies)
    low: float = math.inf
    high: float = -math.inf
    clipped: int = 0
    clip_error: float = 0.0
    levels: NDArray[np.int64] = field(default_factory=lambda: np.zeros(LEVELS, np.int64))
    channel_signal: Array = field(default_factory=lambda: np.zeros(1))
    channel_peak: Array = field(default_factory=lambda: np.zeros(1))
    channel_shift: Array = field(default_factory=lambda: np.zeros(1))
    shape_rows: int = 0


@dataclass
class OutputErrors:
    """What was measured of one output of the model."""

    name: str
    energies: Energies = field(default_factory=Energies)
    divergence: list[float] = field(default_factory=list)
    agree: int = 0
    tied: int = 0
    samples: int = 0


def measure_layers(
    float_model: Model,
    quantized_model: Model,
    found: Correspondence,
    dataset: Dataset,
    *,
    values: int,
    kernels: str = "delegate",
    threads: int = 1,
) -> tuple[list[LayerErrors], list[OutputErrors]]:
    """Run both models over the samples and return the errors of all layers and of the outputs."""
    layers: list[LayerErrors] = []
    outputs: list[OutputErrors] = []
    groups = list(_within_memory(found.matches, float_model))
    with task("Comparing layers", total=len(dataset) * len(groups)) as advance:
        for group in groups:
            comparison = _Comparison(float_model, quantized_model, found, group, values, kernels, threads)
            try:
                comparison.run(dataset, advance)
            finally:
                comparison.close()
            layers += comparison.layers
            outputs = comparison.outputs
    return layers, outputs


def _within_memory(matches: Iterable[Match], model: Model) -> Iterator[list[Match]]:
    """Divide the layers so that what a group exposes stays within the memory."""
    tensors = model.subgraphs[entry(model)].tensors
    group: list[Match] = []
    size = 0
    for match in matches:
        needed = 6 * tensors[match.float_tensor].elements
        if group and size + needed > _MEMORY_BYTES:
            yield group
            group, size = [], 0
        group.append(match)
        size += needed
    if group:
        yield group


class _Comparison:
    """Two probes of some layers, and what has been measured with them."""

    def __init__(
        self,
        float_model: Model,
        quantized_model: Model,
        found: Correspondence,
        matches: list[Match],
        values: int,
        kernels: str,
        threads: int,
    ) -> None:
        self._values = values
        self._layer_values = sum(
            float_model.subgraphs[entry(float_model)].tensors[match.float_tensor].elements for match in matches
        )
        probe = isolated(float_model, quantized_model, found, matches)
        inner = exposed(quantized_model, [match.tensor for match in matches])
        how: dict[str, Any] = {"kernels": kernels, "threads": threads}
        self._real, self._quantized = Candidate.of(float_model, **how), Candidate.of(quantized_model, **how)
        plain = exposed(float_model, [match.float_tensor for match in matches])
        self._alone_session, self._real_session, self._session = (
            Session(model, verify=False, **how) for model in (probe.model, plain, inner)
        )
        self.layers = [LayerErrors(match) for match in matches]
        tensors = quantized_model.subgraphs[entry(quantized_model)].tensors
        self._windows = [
            _Window(
                layer,
                tensors[layer.match.tensor],
                probe.outputs.get(layer.match.tensor),
                probe.expected.get(layer.match.tensor),
            )
            for layer in self.layers
        ]
        self.outputs = [OutputErrors(port.name) for port in self._real.outputs]
        self._output_ports = self._quantized.outputs
        real_graph = float_model.subgraphs[entry(float_model)]
        graph = quantized_model.subgraphs[entry(quantized_model)]
        self._output_names = [
            (tensor_name(real), tensor_name(ours)) for real, ours in zip(real_graph.outputs, graph.outputs, strict=True)
        ]
        self._are_probabilities = [_is_softmax(float_model, index) for index in real_graph.outputs]

    def close(self) -> None:
        """Release what LiteRT holds."""
        for session in (self._alone_session, self._real_session, self._session):
            session.close()

    def run(self, dataset: Dataset, advance: Any) -> None:
        """Compare all samples."""
        wanted = min(_ALONE_EVERY, 1 + self._layer_values // _SMALL_VALUES)
        alone_every = max(1, min(wanted, len(dataset) // _LEAST_ALONE))
        for position, sample in enumerate(self._real.bind(dataset)):
            arrays = list(sample.inputs.values())
            alone = position % alone_every == 0
            real = self._run(self._alone_session if alone else self._real_session, self._real, arrays)
            quantized = self._run(self._session, self._quantized, arrays)
            self._compare_outputs(real, quantized, position)
            for window in self._windows:
                window.compare(real, quantized, position, self._values, alone=alone)
            advance(1)

    def _run(self, session: Session, candidate: Candidate, arrays: list[Array]) -> Mapping[str, Array]:
        for port, array in zip(candidate.inputs, arrays, strict=True):
            view = session.inputs[port.name]
            np.copyto(view, port.quantize(array).reshape(view.shape))
        if candidate.stateful:
            session.reset()
        return session.run()

    def _compare_outputs(self, real: Mapping[str, Array], quantized: Mapping[str, Array], position: int) -> None:
        for output, (theirs, ours), port, are_probabilities in zip(
            self.outputs, self._output_names, self._output_ports, self._are_probabilities, strict=True
        ):
            x = np.asarray(real[theirs], np.float32).reshape(-1)
            y = np.asarray(port.reals(quantized[ours]), np.float32).reshape(-1)
            if not (np.isfinite(x).all() and np.isfinite(y).all()):
                which = "float" if not np.isfinite(x).all() else "quantized"
                raise DataError(
                    f"output {output.name!r} of the {which} model is not finite for sample {position}; check that the "
                    "preprocessing is the one the model was trained with"
                )
            output.energies.add(x, y - x)
            output.samples += 1
            classes = real[theirs].shape[-1] if real[theirs].ndim else 1
            if classes > 1:
                _compare_classes(output, x.reshape(-1, classes), y.reshape(-1, classes), are_probabilities)


class _Window:
    """The part of a layer's tensors that is looked at in each sample."""

    def __init__(self, layer: LayerErrors, tensor: Tensor, alone: int | None, expected: int | None) -> None:
        self._layer = layer
        self._real_name, self._name = tensor_name(layer.match.float_tensor), tensor_name(layer.match.tensor)
        self._alone_name = None if alone is None else tensor_name(alone)
        self._expected_name = None if expected is None else tensor_name(expected)
        self._port = Port.of("", tensor)
        self._channels = max(1, tensor.shape[-1]) if tensor.shape else 1
        if alone is not None:
            layer.isolated, layer.distributions = Energies(), Distributions(2)
        layer.channel_signal, layer.channel_peak, layer.channel_shift = (np.zeros(self._channels) for _ in range(3))
        self._limits = self._expressible()

    def _expressible(self) -> tuple[float, float]:
        port = self._port
        if port.scale is None:
            return -math.inf, math.inf
        limits = np.iinfo(port.dtype)
        # Half a step beyond the last value still rounds to it.
        return (limits.min - port.zero_point - 0.5) * port.scale, (limits.max - port.zero_point + 0.5) * port.scale

    def compare(
        self, real: Mapping[str, Array], quantized: Mapping[str, Array], sample: int, values: int, *, alone: bool
    ) -> None:
        """Count one sample."""
        layer = self._layer
        x = real[self._real_name].reshape(-1)
        window = _window(x.size, self._channels, values, sample)
        x = x[window]
        error = self._error(quantized[self._name].reshape(-1)[window], x)
        layer.accumulated.add(x, error)
        self._describe_range(x)
        if alone:
            stored = None if self._alone_name is None else real[self._alone_name].reshape(-1)[window]
            expected = x if self._expected_name is None else real[self._expected_name].reshape(-1)[window]
            self._divide(x, error, stored, expected)
            self._describe_shape(x, error, stored)

    def _divide(self, x: Array, error: Array, stored: Array | None, expected: Array) -> None:
        """Divide the error by where it comes from."""
        layer = self._layer
        rounding = self._error(self._port.quantize(x), x)
        layer.rounding.add(x, rounding)
        layer.passed.add(x, error - rounding)
        few = _spread(x.size, self._channels)
        if stored is None or layer.isolated is None:
            layer.distributions.add(x[few], error[few])
            return
        alone = self._error(stored, x)
        layer.isolated.add(x, alone)
        layer.distributions.add(x[few], error[few], alone[few])
        from_inputs = rounding if expected is x else self._error(self._port.quantize(expected), x)
        layer.from_inputs.add(x, from_inputs - rounding)
        layer.own.add(x, alone - from_inputs)

    def _error(self, stored: Array, x: Array) -> Array:
        port = self._port
        if port.scale is None:
            return np.asarray(stored - x)
        error = stored.astype(np.float32)
        error -= port.zero_point
        error *= np.float32(port.scale)
        error -= x
        return error

    def _describe_range(self, x: Array) -> None:
        layer = self._layer
        low, high = float(x.min()), float(x.max())
        layer.low, layer.high = min(layer.low, low), max(layer.high, high)
        lowest, highest = self._limits
        if low < lowest or high > highest:
            excess = x - np.clip(x, lowest, highest)
            layer.clipped += int(np.count_nonzero(excess))
            layer.clip_error += float(np.dot(excess, excess))

    def _describe_shape(self, x: Array, error: Array, stored: Array | None) -> None:
        layer = self._layer
        size = min(x.size, max(self._channels, _SHAPE_VALUES // self._channels * self._channels))
        if size % self._channels:
            return
        part = x[:size].reshape(-1, self._channels)
        layer.channel_signal += np.einsum("ij,ij->j", part, part)
        np.maximum(layer.channel_peak, np.abs(part).max(axis=0), out=layer.channel_peak)
        layer.channel_shift += error[:size].reshape(-1, self._channels).sum(axis=0)
        layer.shape_rows += len(part)
        if stored is not None and stored.dtype.kind in "iu":
            bits = stored.dtype.itemsize * 8
            steps = stored[:size].astype(np.int64) - np.iinfo(stored.dtype).min >> (bits - 8)
            layer.levels += np.bincount(steps, minlength=LEVELS)


def _window(size: int, channels: int, values: int, sample: int) -> slice:
    """Return which part of a tensor to look at: whole rows of channels, another place in each sample."""
    if size <= values:
        return slice(0, size)
    rows = max(1, values // channels)
    first = int((sample * _GOLDEN % 1.0) * (size // channels - rows + 1))
    return slice(first * channels, (first + rows) * channels)


def _spread(size: int, channels: int) -> slice:
    """Return which values tell a distribution: some of all places, in turn of all channels."""
    step = max(1, size // _DISTRIBUTION_VALUES)
    while math.gcd(step, channels) > 1:
        step += 1
    return slice(0, size, step)


def _compare_classes(output: OutputErrors, x: Array, y: Array, are_probabilities: bool) -> None:
    """Count agreement and ties, and the divergence of the distributions over classes."""
    output.agree += int((x.argmax(axis=1) == y.argmax(axis=1)).all())
    output.tied += int((np.count_nonzero(y == y.max(axis=1, keepdims=True), axis=1) > 1).any())
    p, q = (_distribution(z.astype(np.float64), are_probabilities) for z in (x, y))
    output.divergence.append(float((p * np.log(p / q)).sum(axis=1).mean()))


def _distribution(scores: Array, are_probabilities: bool) -> Array:
    """Return probabilities that are never zero: an int8 softmax writes 0 for what is only small."""
    if not are_probabilities:
        scores = np.exp(scores - scores.max(axis=1, keepdims=True))
    scores = np.clip(scores, 1e-6, None)
    return np.asarray(scores / scores.sum(axis=1, keepdims=True))


def _is_softmax(model: Model, tensor: int) -> bool:
    graph = model.subgraphs[entry(model)]
    producers = graph.producers()
    while tensor in producers:
        operator = graph.operators[producers[tensor]]
        if operator.kind == "SOFTMAX":
            return True
        if operator.kind not in ("QUANTIZE", "DEQUANTIZE", "RESHAPE", "SQUEEZE"):
            return False
        tensor = operator.inputs[0]
    return False
