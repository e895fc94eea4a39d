# SPDX-License-Identifier: Apache-2.0
"""Full-integer LSTM: int8 activations and weights, an int16 cell state on a power of two, int32 biases.

What the kernel wants (tflite/kernels/unidirectional_sequence_lstm.cc, lstm_eval.cc): one scale for each weight matrix,
biases with the scale input × weight, the output state on the scale of the output, and five intermediates, of which
only the last is read here: the hidden state, which without projection is the output. The range of the cell state
cannot be read from the runtime, so calibration replays the recurrence on the inputs it sees.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from litesmith.model import ABSENT, Operator, Quantization, Subgraph, Tensor
from litesmith.optimize._arithmetic import Affine, per_channel, quantize_bias, quantize_weights
from litesmith.optimize._groups import Node
from litesmith.optimize._scheme import Scheme
from litesmith.optimize._weight_ranges import weight_scales

if TYPE_CHECKING:
    from litesmith.optimize._rewrite import Rewriter

Array = np.ndarray[Any, Any]
_INPUT_WEIGHTS, _RECURRENT_WEIGHTS, _BIASES = range(1, 5), range(5, 9), range(12, 16)
OUTPUT_STATE, CELL_STATE = 18, 19
_UNSUPPORTED = {9: "peepholes", 16: "a projection", 20: "layer normalization"}
_CELL_EXPONENTS = (-15, -9)  # the kernel's tables for tanh cover cells up to 64


def lstm_obstacle(graph: Subgraph, op: Operator, scheme: Scheme, known: Mapping[int, tuple[float, float]]) -> str:
    """Return why an LSTM stays float; empty where it can become integer."""
    if scheme.domain != "int8" or scheme.bits != 8:
        return f"LiteRT has no {scheme.name} kernel for {op.kind}"
    for position, what in _UNSUPPORTED.items():
        if position < len(op.inputs) and op.inputs[position] != ABSENT:
            return f"an LSTM with {what} is not quantized"
    needed = (*_INPUT_WEIGHTS, *_RECURRENT_WEIGHTS, *_BIASES)
    if any(op.inputs[p] == ABSENT or graph.tensors[op.inputs[p]].buffer is None for p in needed):
        return "an LSTM with coupled gates or weights computed at run time is not quantized"
    if getattr(op.options, "fused_activation_function", "") != "TANH" or getattr(
        op.options, "diagonal_recurrent_tensors", False
    ):
        return "the integer LSTM knows only TANH and full recurrent matrices"
    for tensor in (op.inputs[0], op.outputs[0], op.inputs[CELL_STATE]):
        if tensor not in known:
            return f"no range is known for {graph.tensors[tensor].name!r}"
    return ""


def replay_cell(graph: Subgraph, op: Operator, values: Array) -> tuple[float, float]:
    """Return the smallest and largest cell state while an LSTM runs over one input."""
    gates = [graph.tensors[op.inputs[p]].array().T for p in _INPUT_WEIGHTS]
    recurrent = [graph.tensors[op.inputs[p]].array().T for p in _RECURRENT_WEIGHTS]
    biases = [graph.tensors[op.inputs[p]].array() for p in _BIASES]
    steps = values if getattr(op.options, "time_major", False) else np.swapaxes(values, 0, 1)
    clip = float(getattr(op.options, "cell_clip", 0.0))
    hidden = np.zeros((steps.shape[1], biases[0].size), np.float32)
    cell = hidden.copy()
    low = high = 0.0
    for step in steps:
        entering, forget, candidate, out = (
            step @ w + hidden @ r + b for w, r, b in zip(gates, recurrent, biases, strict=True)
        )
        cell = _sigmoid(forget) * cell + _sigmoid(entering) * np.tanh(candidate)
        cell = np.clip(cell, -clip, clip) if clip > 0 else cell
        hidden = _sigmoid(out) * np.tanh(cell)
        low, high = min(low, float(cell.min())), max(high, float(cell.max()))
    return low, high


def can_replay(graph: Subgraph, op: Operator) -> bool:
    """Say whether the recurrence is the plain one that ``replay_cell`` computes."""
    plain = all(p >= len(op.inputs) or op.inputs[p] == ABSENT for p in _UNSUPPORTED)
    needed = (*_INPUT_WEIGHTS, *_RECURRENT_WEIGHTS, *_BIASES)
    return plain and all(op.inputs[p] != ABSENT and graph.tensors[op.inputs[p]].buffer is not None for p in needed)


def _sigmoid(values: Array) -> Array:
    result: Array = 0.5 * (1.0 + np.tanh(0.5 * values))
    return result


def integer_lstm(rewriter: Rewriter, op: Operator) -> Operator:
    """Return the operator in integers, its tensors changed in the rewriter."""
    data = rewriter.groups.parameters(Node(op.inputs[0], "int8"))
    output = rewriter.groups.parameters(Node(op.outputs[0], "int8"))
    inputs = list(op.inputs)
    inputs[0] = rewriter.read(op.inputs[0], data)
    for position in _RECURRENT_WEIGHTS:
        inputs[position], _ = _matrix(rewriter, op.inputs[position])
    for position, bias in zip(_INPUT_WEIGHTS, _BIASES, strict=True):
        inputs[position], scale = _matrix(rewriter, op.inputs[position])
        bias_scale = np.float32(data.scale) * scale
        values = quantize_bias(rewriter.graph.tensors[op.inputs[bias]].array(), bias_scale, "int32")
        inputs[bias] = rewriter.constant(
            op.inputs[bias], values, per_channel(bias_scale, 0), key=("int32", float(bias_scale.item()))
        )
    _states(rewriter, op, output)
    rewriter.settle(op.outputs[0], output)
    return replace(op, inputs=tuple(inputs), version=2, intermediates=_intermediates(rewriter, output))


def _matrix(rewriter: Rewriter, source: int) -> tuple[int, Array]:
    values = rewriter.graph.tensors[source].array()
    scale = weight_scales(values, None, 8, method=rewriter.settings.weight_method)
    integers = quantize_weights(values, scale, 0, 8)
    return rewriter.constant(source, integers, per_channel(scale, 0), key=(8, scale.tobytes())), scale


def _states(rewriter: Rewriter, op: Operator, output: Affine) -> None:
    state, cell = op.inputs[OUTPUT_STATE], op.inputs[CELL_STATE]
    largest = max(map(abs, rewriter.known[cell]))
    exponent = math.ceil(math.log2(largest)) - 15 if largest > 0 else _CELL_EXPONENTS[0]
    exponent = min(max(exponent, _CELL_EXPONENTS[0]), _CELL_EXPONENTS[1])
    tensors = rewriter.tensors
    tensors[state] = replace(tensors[state], dtype="int8", quantization=output.quantization())
    tensors[cell] = replace(tensors[cell], dtype="int16", quantization=Quantization((2.0**exponent,), (0,)))


def _intermediates(rewriter: Rewriter, output: Affine) -> tuple[int, ...]:
    gate = Quantization((2.0**-12,), (0,))
    gates = [rewriter.add(Tensor(f"lstm/gate{i}", (), "int16", quantization=gate)) for i in range(4)]
    return (*gates, rewriter.add(Tensor("lstm/hidden", (), "int8", quantization=output.quantization())))
