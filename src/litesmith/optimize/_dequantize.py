# SPDX-License-Identifier: Apache-2.0
"""Back to float: every quantized tensor becomes float32, conversions vanish, integer kernels become float ones.

Values of constants are what their integers stood for. What rounding and clipping took away stays lost; a clip that the
quantized range made on purpose (a RELU6 that the converter folded into the range) stays through fused activations.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from litesmith.errors import OptimizeError
from litesmith.model import ABSENT, Model, Operator, Quantization, Record, Signature, Subgraph, Tensor
from litesmith.model._sparsity import densify
from litesmith.optimize._arithmetic import dequantize_array
from litesmith.optimize._rules import LSTM_KINDS

Array = np.ndarray[Any, Any]
_FLOAT_VERSIONS = {
    "FULLY_CONNECTED": 5, "DEPTHWISE_CONV_2D": 2, "TRANSPOSE_CONV": 3, "STRIDED_SLICE": 1, "BROADCAST_TO": 2,
    "RESIZE_BILINEAR": 3, "RESIZE_NEAREST_NEIGHBOR": 3, "BATCH_TO_SPACE_ND": 3, "SPACE_TO_BATCH_ND": 3,
}  # fmt: skip
_INTEGERS = frozenset({"int2", "int4", "int8", "uint8", "int16", "int32", "int64"})


def dequantize(model: Model) -> Model:
    """Return a float32 model of an int8, uint8, int16x8, dynamic, weight-only or float16 one; sparse weights are dense.

    Inputs and outputs become float32 as well. Tensors keep their index; a float model is returned as it is.
    """
    done = [_graph(graph) for graph in model.subgraphs]
    signatures = tuple(_signature(signature, done[signature.subgraph_index][1]) for signature in model.signatures)
    return replace(model, subgraphs=tuple(graph for graph, _ in done), signatures=signatures, source=None)


def _signature(signature: Signature, names: dict[int, int]) -> Signature:
    def mapped(entries: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
        return tuple((name, names.get(index, index)) for name, index in entries)

    return replace(signature, inputs=mapped(signature.inputs), outputs=mapped(signature.outputs))


def _graph(graph: Subgraph) -> tuple[Subgraph, dict[int, int]]:
    tensors = [_tensor(graph, tensor) for tensor in graph.tensors]
    alias: dict[int, int] = {}
    operators: list[Operator] = []
    for op in graph.operators:
        inputs = tuple(alias.get(t, t) for t in op.inputs)
        if op.kind in ("DEQUANTIZE", "QUANTIZE", "DENSIFY") and inputs[0] != ABSENT:
            source, target = inputs[0], op.outputs[0]
            if target in graph.outputs and (source in graph.inputs or tensors[source].is_constant or target == source):
                same = Record("ReshapeOptions", new_shape=tensors[source].shape)  # an input cannot be an output itself
                operators.append(replace(op, kind="RESHAPE", inputs=(source,), options=same, version=1))
            else:
                alias[target] = source
            continue
        if op.kind in LSTM_KINDS and any(graph.tensors[t].dtype == "int16" for t in op.inputs if t != ABSENT):
            raise OptimizeError(f"a full-integer {op.kind} cannot be turned back into float")
        operators.append(_operator(replace(op, inputs=inputs)))
    outputs = tuple(alias.get(t, t) for t in graph.outputs)
    for old, new in zip(graph.outputs, outputs, strict=True):
        if new != old:  # the output keeps its name
            tensors[new] = replace(tensors[new], name=graph.tensors[old].name)
    for old, new in alias.items():  # what a DEQUANTIZE wrote is not written any more
        if not tensors[old].is_constant and old not in graph.inputs:
            tensors[old] = replace(tensors[old], name=f"{tensors[old].name}/unused")
        if old in graph.inputs:
            raise OptimizeError(f"tensor {graph.tensors[new].name!r} is written into an input")
    return replace(graph, tensors=tuple(tensors), operators=tuple(operators), outputs=outputs), alias


def _operator(op: Operator) -> Operator:
    version = min(op.version, _FLOAT_VERSIONS.get(op.kind, 1)) if op.kind != "CUSTOM" else op.version
    if op.kind == "FULLY_CONNECTED":
        version = 6 if len(op.inputs) == 2 else version
    return replace(op, version=max(version, 1), intermediates=())


def _tensor(graph: Subgraph, tensor: Tensor) -> Tensor:
    quantization = tensor.quantization
    if tensor.sparsity is not None:
        tensor = densify(tensor)
    if tensor.dtype in ("float16", "bfloat16"):
        if tensor.buffer is None:
            return replace(tensor, dtype="float32", quantization=None)
        values = tensor.array()
        reals = values.astype(np.float32) if tensor.dtype == "float16" else _from_bfloat16(values)
        return replace(tensor, quantization=None).with_array(reals)
    if quantization is None or not tensor.is_quantized or tensor.dtype not in _INTEGERS:
        return replace(tensor, quantization=None) if tensor.dtype == "float32" else tensor
    if tensor.buffer is None:
        return replace(tensor, dtype="float32", quantization=None)
    return replace(tensor, quantization=None).with_array(_reals(graph, tensor, quantization))


def _from_bfloat16(bits: Array) -> Array:
    wide: Array = (bits.astype(np.uint32) << 16).view(np.float32)
    return wide


def _reals(graph: Subgraph, tensor: Tensor, quantization: Quantization) -> Array:
    integers = tensor.array()
    details = quantization.details
    if details is None:
        return dequantize_array(integers, quantization)
    if details.table != "BlockwiseQuantization":
        raise OptimizeError(f"tensor {tensor.name!r} is quantized with {details.table}, which cannot be undone here")
    scales = graph.tensors[details.scales].array().astype(np.float32)
    rows = integers.reshape(integers.shape[0], -1, details.block_size).astype(np.float32)
    reals: Array = (rows * scales.reshape(integers.shape[0], -1, 1)).reshape(integers.shape)
    return reals
