# SPDX-License-Identifier: Apache-2.0
"""What each operator costs: parameters, multiply-accumulates, bytes read and written.

Counted as the field's papers do: a multiply-accumulate is one product added to a sum, in convolutions, matrix
products and recurrent cells; element-wise operators, pools and data movement count none. Parameters are the constants
that are learned values (real or quantized numbers), not shapes and axes. The bodies of loops are counted once: how
often they run is known only at run time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from litesmith.model._dtypes import packed_bytes
from litesmith.model._graph import Model, Operator, Subgraph, Tensor

_REAL = frozenset({"float32", "float16", "float64", "bfloat16", "complex64", "float8_e4m3fn", "float8_e5m2"})


@dataclass(frozen=True)
class OperatorCost:
    """The cost of one run of one operator."""

    subgraph: int
    index: int
    kind: str
    parameters: int
    macs: int
    bytes_read: int
    bytes_written: int
    constant_bytes: int  # the part of bytes_read that the file holds


@dataclass(frozen=True)
class Cost:
    """The cost of a model: the operators, and the totals in which shared constants count once."""

    operators: tuple[OperatorCost, ...]
    parameters: int
    constant_bytes: int

    @property
    def macs(self) -> int:
        """Multiply-accumulates of one run of every operator."""
        return sum(operator.macs for operator in self.operators)

    @property
    def bytes_moved(self) -> int:
        """Bytes read and written by one run of every operator."""
        return sum(operator.bytes_read + operator.bytes_written for operator in self.operators)


def cost(model: Model) -> Cost:
    """Return the cost of each operator of a model and the totals."""
    operators = tuple(_operator_cost(s, o, model.subgraphs[s], operator) for s, o, operator in model.operators())
    seen: dict[int, Tensor] = {}
    for subgraph in model.subgraphs:
        for tensor in subgraph.tensors:
            if tensor.buffer is not None:
                seen.setdefault(id(tensor.buffer), tensor)
    return Cost(operators, sum(map(parameters, seen.values())), sum(len(t.buffer or b"") for t in seen.values()))


def parameters(tensor: Tensor) -> int:
    """Return how many learned values a constant tensor holds: zeros that a sparse tensor leaves out count too."""
    return tensor.elements if tensor.is_constant and (tensor.dtype in _REAL or tensor.is_quantized) else 0


def tensor_bytes(tensor: Tensor) -> int:
    """Return the bytes of a tensor: of the stored data for a constant, else of its elements."""
    return len(tensor.buffer) if tensor.buffer is not None else packed_bytes(tensor.dtype, tensor.elements)


def _operator_cost(subgraph_index: int, index: int, subgraph: Subgraph, operator: Operator) -> OperatorCost:
    inputs = [subgraph.tensor(i) for i in operator.inputs]
    outputs = [subgraph.tensors[i] for i in operator.outputs]
    present = [t for t in inputs if t is not None]
    rule = _MACS.get(operator.kind)
    return OperatorCost(
        subgraph=subgraph_index,
        index=index,
        kind=operator.name,
        parameters=sum(map(parameters, present)),
        macs=rule(inputs, outputs) if rule else 0,
        bytes_read=sum(map(tensor_bytes, present)),
        bytes_written=sum(map(tensor_bytes, outputs)),
        constant_bytes=sum(len(t.buffer) for t in present if t.buffer is not None),
    )


Tensors = Sequence["Tensor | None"]


def _shape(tensors: Tensors, index: int) -> tuple[int, ...]:
    tensor = tensors[index] if index < len(tensors) else None
    return () if tensor is None else tensor.shape


def _per_output(inputs: Tensors, outputs: Sequence[Tensor]) -> int:
    """Each output element is a sum over one filter without its output dimension: CONV_2D, FULLY_CONNECTED."""
    return outputs[0].elements * _product(_shape(inputs, 1)[1:])


def _depthwise(inputs: Tensors, outputs: Sequence[Tensor]) -> int:
    return outputs[0].elements * _product(_shape(inputs, 1)[1:3])


def _transpose_conv(inputs: Tensors, _outputs: Sequence[Tensor]) -> int:
    return _product(_shape(inputs, 2)) * _product(_shape(inputs, 1)[:3])


def _batch_matmul(inputs: Tensors, outputs: Sequence[Tensor]) -> int:
    left, rows = _shape(inputs, 0), outputs[0].shape[-2] if len(outputs[0].shape) > 1 else 1
    return outputs[0].elements * (_product(left[-2:]) // max(rows, 1))


def _conv_3d(inputs: Tensors, outputs: Sequence[Tensor]) -> int:
    return outputs[0].elements * _product(_shape(inputs, 1)[:4])


def _lstm(inputs: Tensors, _outputs: Sequence[Tensor]) -> int:
    """All weight matrices of the cell, once per step: inputs 1–8 are the gates, 16 the projection."""
    steps = _product(_shape(inputs, 0)[:-1])
    return steps * sum(_product(_shape(inputs, i)) for i in (*range(1, 9), 16) if _shape(inputs, i))


def _basic_lstm(inputs: Tensors, outputs: Sequence[Tensor]) -> int:
    if len(inputs) > 5:
        return _lstm(inputs, outputs)
    return _product(_shape(inputs, 0)[:-1]) * _product(_shape(inputs, 2))


def _rnn(inputs: Tensors, _outputs: Sequence[Tensor]) -> int:
    steps = _product(_shape(inputs, 0)[:-1])
    return steps * (_product(_shape(inputs, 1)) + _product(_shape(inputs, 2)))


def _svdf(inputs: Tensors, _outputs: Sequence[Tensor]) -> int:
    return _product(_shape(inputs, 0)[:-1]) * (_product(_shape(inputs, 1)) + _product(_shape(inputs, 2)))


def _product(shape: Sequence[int]) -> int:
    total = 1
    for size in shape:
        total *= max(size, 1) if size < 0 else size
    return total


_MACS: dict[str, Callable[[Tensors, Sequence[Tensor]], int]] = {
    "BATCH_MATMUL": _batch_matmul,
    "CONV_2D": _per_output,
    "CONV_3D": _conv_3d,
    "DEPTHWISE_CONV_2D": _depthwise,
    "FULLY_CONNECTED": _per_output,
    "LSTM": _basic_lstm,
    "RNN": _rnn,
    "SVDF": _svdf,
    "TRANSPOSE_CONV": _transpose_conv,
    "UNIDIRECTIONAL_SEQUENCE_LSTM": _lstm,
    "UNIDIRECTIONAL_SEQUENCE_RNN": _rnn,
}
