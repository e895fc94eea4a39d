# SPDX-License-Identifier: Apache-2.0
"""A classifier for other classes: the last layer replaced, everything before it as it was."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from litesmith.errors import ModelError
from litesmith.model import Model, Operator, Subgraph, Tensor
from litesmith.train._head_chain import head_chains


@dataclass(frozen=True)
class Head:
    """The last layer of a classifier.

    Attributes:
        operator: its index.
        features: the tensor that it reads.
        weight: the constant of its weights.
        bias: the constant of its bias.
    """

    operator: int
    features: int
    weight: int
    bias: int


def find_head(graph: Subgraph) -> Head:
    """Return the last layer of a classifier with one output; raise where there is none."""
    chains = head_chains(graph)
    if not chains or len(graph.outputs) != 1:
        last = graph.operators[-1].kind if graph.operators else "nothing"
        raise ModelError(
            f"the model is no classifier whose last layer can be replaced: it has {len(graph.outputs)} outputs and ends "
            f"with {last}; give a model that ends with a FULLY_CONNECTED or 1×1 CONV_2D, and a SOFTMAX at most"
        )
    layer = chains[0][0]
    op = graph.operators[layer]
    bias = op.inputs[2] if len(op.inputs) > 2 else -1
    return Head(layer, op.inputs[0], op.inputs[1], bias)


def with_classes(model: Model, classes: int) -> Model:
    """Return the classifier with a last layer for so many classes, its weights zero."""
    graph = model.main
    head = find_head(graph)
    chain = head_chains(graph)[0]
    tensors = list(graph.tensors)
    operators = list(graph.operators)
    old = tensors[head.weight].shape[0]
    weight = np.zeros((classes, *tensors[head.weight].shape[1:]), np.float32)
    tensors[head.weight] = tensors[head.weight].with_array(weight)
    bias = np.zeros(classes, np.float32)
    if head.bias >= 0:
        tensors[head.bias] = tensors[head.bias].with_array(bias)
    else:
        tensors.append(Tensor(f"{tensors[head.weight].name}/bias", ()).with_array(bias))
        op = operators[head.operator]
        operators[head.operator] = replace(op, inputs=(*op.inputs[:2], len(tensors) - 1))
    for index in chain:
        operators[index] = _resized(operators[index], tensors, old, classes)
    return replace(
        model.with_main(replace(graph, tensors=tuple(tensors), operators=tuple(operators))),
        metadata=tuple(m for m in model.metadata if m.name != "TFLITE_METADATA"),
        associated_files=(),
        source=None,
    )


def _resized(op: Operator, tensors: list[Tensor], old: int, new: int) -> Operator:
    """Set the number of classes in what an operator writes, and in the shape that it may name."""

    def changed(shape: tuple[int, ...]) -> tuple[int, ...]:
        places = [i for i, d in enumerate(shape) if d == old]
        return tuple(new if places and i == places[-1] else d for i, d in enumerate(shape))

    for output in op.outputs:
        tensor = tensors[output]
        signature = tensor.shape_signature
        tensors[output] = replace(
            tensor, shape=changed(tensor.shape), shape_signature=None if signature is None else changed(signature)
        )
    if op.kind != "RESHAPE":
        return op
    if len(op.inputs) > 1 and tensors[op.inputs[1]].is_constant:
        wanted = np.array(changed(tuple(int(d) for d in tensors[op.inputs[1]].array())), np.int32)
        tensors.append(replace(tensors[op.inputs[1]]).with_array(wanted))
        op = replace(op, inputs=(op.inputs[0], len(tensors) - 1))
    if op.options is not None and op.options.new_shape is not None:
        op = replace(op, options=op.options.replace(new_shape=changed(tuple(int(d) for d in op.options.new_shape))))
    return op
