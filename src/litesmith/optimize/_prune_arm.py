# SPDX-License-Identifier: Apache-2.0
"""Which convolutions XNNPACK would run with its sparse kernels on Arm: those of a net that is made for them as a whole.

XNNPACK takes a sparse path for a part of the graph that starts with a 3x3 convolution of stride 2 on 3 channels, padded by 1
on each side, ends with a mean over the image or DEPTH_TO_SPACE, and has nothing between but 1x1 convolutions, depthwise ones
padded alike on both sides, and what works on single values; weights must be float, stored sparse, and two thirds or more of
those of the 1x1 convolutions zero (tflite/delegates/xnnpack/README.md of LiteRT 2.3.0, "Sparse Inference").
"""

from __future__ import annotations

import numpy as np

from litesmith.model import Model, Operator, Subgraph, same_padding
from litesmith.optimize._prune_store import unpack_sparse

_LEAST_ZEROS = 2 / 3
_VALUEWISE = frozenset({
    "ABS", "CEIL", "ELU", "FLOOR", "HARD_SWISH", "LEAKY_RELU", "LOGISTIC", "NEG", "RELU", "RELU6", "RELU_N1_TO_1", "ROUND",
    "SQUARE",
})  # fmt: skip


def expected_on_arm(model: Model) -> str:
    """Return in words what speed stock LiteRT gains from the zeros of a model on Arm."""
    stored = {tensor.dtype for tensor in model.main.tensors if tensor.sparsity is not None}
    if not stored & {"float32", "float16"}:
        return (
            "none: XNNPACK has sparse kernels for float weights only"
            if stored
            else "none: no weights are stored sparse"
        )
    graph = unpack_sparse(model).main
    pointwise = [i for i, op in enumerate(graph.operators) if op.kind == "CONV_2D" and _kernel(graph, op) == (1, 1)]
    stems = [i for i, op in enumerate(graph.operators) if _is_stem(graph, op)]
    if not stems:
        return (
            "none: XNNPACK's sparse kernels want a net that starts with a 3x3 convolution of stride 2 on 3 channels, "
            "padded by 1 on each side, which Keras pads on one side only"
        )
    reached, obstacle = _reached(graph, stems[0])
    if obstacle:
        return f"none: XNNPACK's sparse kernels stop at {obstacle}"
    weights = [graph.tensors[graph.operators[i].inputs[1]].array() for i in pointwise if i in reached]
    count = sum(array.size for array in weights)
    zeros = sum(int(array.size - np.count_nonzero(array)) for array in weights) / max(count, 1)
    if zeros < _LEAST_ZEROS:
        return f"none: of the weights of 1x1 convolutions {100 * zeros:.0f} % are zero, and XNNPACK wants two thirds"
    return (
        f"some: XNNPACK has sparse kernels for {len(weights)} of {len(pointwise)} 1x1 convolutions, {100 * zeros:.0f} % of "
        "whose weights are zero"
    )


def _reached(graph: Subgraph, stem: int) -> tuple[set[int], str]:
    """Return the operators that belong to the part behind a stem, and what does not fit there; empty where all does."""
    consumers, producers = graph.consumers(), graph.producers()
    reached, ahead = {stem}, [stem]
    while ahead:
        output = graph.operators[ahead.pop()].outputs[0]
        if output in graph.outputs:
            return reached, f"the output {graph.tensors[output].name!r}, which is no mean over the image"
        for index in consumers.get(output, []):
            op = graph.operators[index]
            if op.kind == "DEPTH_TO_SPACE" or _is_mean_over_image(graph, op):
                continue
            if not _fits(graph, index):
                return reached, f"#{index} {op.kind} {graph.tensors[op.outputs[0]].name!r}"
            if index not in reached:
                reached.add(index)
                ahead.append(index)
    for index in sorted(reached - {stem}):
        op = graph.operators[index]
        outside = [t for t in op.inputs if t in producers and producers[t] not in reached]
        if outside:
            return reached, f"#{index} {op.kind} {graph.tensors[op.outputs[0]].name!r}, which also reads from elsewhere"
    return reached, ""


def _fits(graph: Subgraph, index: int) -> bool:
    op = graph.operators[index]
    if op.kind in _VALUEWISE or op.kind == "RESIZE_BILINEAR":
        return True
    if op.kind in ("ADD", "MUL"):
        return all(len(graph.tensors[t].shape) == 4 for t in op.inputs)
    if op.kind == "PAD":
        readers = [graph.operators[i] for i in graph.consumers().get(op.outputs[0], [])]
        return all(reader.kind == "DEPTHWISE_CONV_2D" for reader in readers)
    if op.kind not in ("CONV_2D", "DEPTHWISE_CONV_2D") or not _is_plain(graph, op):
        return False
    kernel = _kernel(graph, op)
    if op.kind == "CONV_2D":
        return kernel == (1, 1) and _strides(op) == (1, 1)
    side = kernel[0] // 2
    return kernel in ((3, 3), (5, 5)) and _strides(op) in ((1, 1), (2, 2)) and _padding(graph, op) == (side,) * 4


def _is_stem(graph: Subgraph, op: Operator) -> bool:
    if op.kind != "CONV_2D" or not _is_plain(graph, op) or _kernel(graph, op) != (3, 3) or _strides(op) != (2, 2):
        return False
    return graph.tensors[op.inputs[0]].shape[-1] == 3 and _padding(graph, op) == (1, 1, 1, 1)


def _is_mean_over_image(graph: Subgraph, op: Operator) -> bool:
    if op.kind != "MEAN" or graph.tensors[op.inputs[1]].buffer is None:
        return False
    return sorted(axis % 4 for axis in graph.tensors[op.inputs[1]].array().reshape(-1).tolist()) == [1, 2]


def _is_plain(graph: Subgraph, op: Operator) -> bool:
    weights, options = graph.tensors[op.inputs[1]], op.options
    dilation = (1, 1) if options is None else (options.dilation_h_factor, options.dilation_w_factor)
    return weights.dtype == "float32" and weights.buffer is not None and dilation == (1, 1)


def _kernel(graph: Subgraph, op: Operator) -> tuple[int, int]:
    shape = graph.tensors[op.inputs[1]].shape
    return shape[1], shape[2]


def _strides(op: Operator) -> tuple[int, int]:
    return (1, 1) if op.options is None else (op.options.stride_h, op.options.stride_w)


def _padding(graph: Subgraph, op: Operator) -> tuple[int, ...]:
    """Return by how much the image is padded above, below, left and right; a PAD before the operator counts as its own."""
    source = op.inputs[0]
    if op.options is not None and op.options.padding == "VALID":
        before = graph.producers().get(source)
        if before is None or graph.operators[before].kind != "PAD":
            return (0, 0, 0, 0)
        pads = graph.tensors[graph.operators[before].inputs[1]]
        return () if pads.buffer is None else tuple(pads.array()[1:3].reshape(-1).tolist())
    sizes = graph.tensors[source].shape[1:3]
    found = [same_padding(size, k, s) for size, k, s in zip(sizes, _kernel(graph, op), _strides(op), strict=True)]
    return tuple(side for pair in found for side in pair)
