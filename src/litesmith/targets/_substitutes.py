# SPDX-License-Identifier: Apache-2.0
"""Operators written as others that more targets have, with the same outputs.

A substitute is a function that adds tensors and operators for one operator, or says that this one cannot be replaced. The
last operator it adds writes the outputs of the one it replaces. What it uses must be on the target.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from litesmith.model import Operator, Record, Subgraph, Tensor, constant

ACTIVATIONS = {"RELU": "RELU", "RELU6": "RELU6", "RELU_N1_TO_1": "RELU_N1_TO_1"}
_FLOATS = ("float32",)


@dataclass
class Draft:
    """A graph that grows: operators are appended in order, tensors get the next index."""

    graph: Subgraph
    tensors: list[Tensor] = field(default_factory=list)
    operators: list[Operator] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tensors = list(self.graph.tensors)

    def add(self, tensor: Tensor) -> int:
        """Add a tensor and return its index."""
        self.tensors.append(tensor)
        return len(self.tensors) - 1

    def like(self, index: int, suffix: str) -> int:
        """Add a tensor that is as another but for its name."""
        model = self.tensors[index]
        return self.add(replace(model, name=f"{model.name}/{suffix}", buffer=None))

    def number(self, name: str, value: float) -> int:
        """Add a float constant."""
        return self.add(constant(name, np.array(value, np.float32)))

    def op(self, kind: str, inputs: tuple[int, ...], output: int, options: Record | None = None) -> None:
        """Append an operator with one output."""
        self.operators.append(Operator(kind, inputs, (output,), options))


Substitute = Callable[[Draft, Operator], bool]


@dataclass(frozen=True)
class Substitution:
    """How operators of a kind are replaced, and the kinds that it takes."""

    kind: str
    says: str
    uses: frozenset[str]
    apply: Substitute


def _as_reshape(draft: Draft, op: Operator) -> bool:
    made = draft.tensors[op.outputs[0]]
    if any(d < 0 for d in made.shape_signature or made.shape):
        return False
    shape = draft.add(constant(f"{made.name}/shape", np.array(made.shape, np.int32)))
    draft.op("RESHAPE", (op.inputs[0], shape), op.outputs[0], Record("ReshapeOptions", new_shape=made.shape))
    return True


def _square(draft: Draft, op: Operator) -> bool:
    draft.op("MUL", (op.inputs[0], op.inputs[0]), op.outputs[0], Record("MulOptions"))
    return draft.tensors[op.inputs[0]].dtype in _FLOATS


def _hard_swish(draft: Draft, op: Operator) -> bool:
    (x,), (y,) = op.inputs, op.outputs
    name = draft.tensors[y].name
    shifted, scaled = draft.like(y, "shifted"), draft.like(y, "scaled")
    three, sixth = draft.number(f"{name}/three", 3.0), draft.number(f"{name}/sixth", 1 / 6)
    draft.op("ADD", (x, three), shifted, Record("AddOptions", fused_activation_function="RELU6"))
    draft.op("MUL", (x, shifted), scaled, Record("MulOptions"))
    draft.op("MUL", (scaled, sixth), y, Record("MulOptions"))
    return draft.tensors[x].dtype in _FLOATS


def _leaky_relu(draft: Draft, op: Operator) -> bool:
    (x,), (y,) = op.inputs, op.outputs
    slope = 0.0 if op.options is None else float(op.options.alpha)
    scaled = draft.like(y, "scaled")
    draft.op("MUL", (x, draft.number(f"{draft.tensors[y].name}/slope", slope)), scaled, Record("MulOptions"))
    draft.op("MAXIMUM", (x, scaled), y, Record("MaximumMinimumOptions"))
    return draft.tensors[x].dtype in _FLOATS and 0 <= slope <= 1


def _relu6(draft: Draft, op: Operator) -> bool:
    (x,), (y,) = op.inputs, op.outputs
    positive = draft.like(y, "positive")
    draft.op("RELU", (x,), positive)
    draft.op(
        "MINIMUM", (positive, draft.number(f"{draft.tensors[y].name}/six", 6.0)), y, Record("MaximumMinimumOptions")
    )
    return draft.tensors[x].dtype in _FLOATS


def _relu_n1_to_1(draft: Draft, op: Operator) -> bool:
    (x,), (y,) = op.inputs, op.outputs
    raised, name = draft.like(y, "raised"), draft.tensors[y].name
    draft.op("MAXIMUM", (x, draft.number(f"{name}/least", -1.0)), raised, Record("MaximumMinimumOptions"))
    draft.op("MINIMUM", (raised, draft.number(f"{name}/most", 1.0)), y, Record("MaximumMinimumOptions"))
    return draft.tensors[x].dtype in _FLOATS


def _pad_v2(draft: Draft, op: Operator) -> bool:
    if len(op.inputs) < 3:
        return False
    fill, made = draft.tensors[op.inputs[2]], draft.tensors[op.outputs[0]]
    if fill.buffer is None or fill.sparsity is not None:
        return False
    quantization = made.quantization
    zero = quantization.zero_point[0] if quantization is not None and quantization.zero_point else 0
    draft.operators.append(Operator("PAD", op.inputs[:2], op.outputs, Record("PadOptions"), version=_pad_version(made)))
    return bool((fill.array() == zero).all())


def _pad_version(tensor: Tensor) -> int:
    return 2 if tensor.dtype in ("int8", "int16") else 1


def _unfused_pool(draft: Draft, op: Operator) -> bool:
    activation = "NONE" if op.options is None else op.options.fused_activation_function
    if op.options is None or activation not in ACTIVATIONS:
        return False
    plain = draft.like(op.outputs[0], "plain")
    options = op.options.replace(fused_activation_function="NONE")
    draft.operators.append(replace(op, outputs=(plain,), options=options))
    version = 2 if draft.tensors[plain].dtype in ("int8", "int16") else 1
    draft.operators.append(Operator(ACTIVATIONS[activation], (plain,), op.outputs, version=version))
    return True


def _kept_axes(draft: Draft, op: Operator) -> bool:
    """Keep the axes that a STRIDED_SLICE drops, and drop them with a RESHAPE."""
    made, source = draft.tensors[op.outputs[0]], draft.tensors[op.inputs[0]]
    starts = draft.tensors[op.inputs[1]]
    if op.options is None or not op.options.shrink_axis_mask or starts.buffer is None:
        return False
    if op.options.ellipsis_mask or op.options.new_axis_mask or any(d < 0 for d in made.shape_signature or made.shape):
        return False
    dropped = [axis for axis in range(len(source.shape)) if op.options.shrink_axis_mask >> axis & 1]
    begin = starts.array().copy()
    ends, steps = draft.tensors[op.inputs[2]], draft.tensors[op.inputs[3]]
    if ends.buffer is None or steps.buffer is None:
        return False
    end, step = ends.array().copy(), steps.array().copy()
    for axis in dropped:
        begin[axis] = begin[axis] % source.shape[axis]
        end[axis], step[axis] = begin[axis] + 1, 1
    remaining = list(made.shape)
    kept_shape = [1 if axis in dropped else remaining.pop(0) for axis in range(len(source.shape))]
    kept = draft.add(replace(made, name=f"{made.name}/kept", shape=tuple(kept_shape), shape_signature=None))
    mask = ~sum(1 << axis for axis in dropped)
    options = op.options.replace(
        shrink_axis_mask=0, begin_mask=op.options.begin_mask & mask, end_mask=op.options.end_mask & mask
    )
    cut = tuple(
        draft.add(constant(f"{made.name}/{word}", values))
        for word, values in (("begin", begin), ("end", end), ("step", step))
    )
    draft.operators.append(replace(op, inputs=(op.inputs[0], *cut), outputs=(kept,), options=options))
    return _as_reshape(draft, replace(op, inputs=(kept,)))


def cut(tensors: Sequence[Tensor], op: Operator) -> tuple[range, ...] | None:
    """Return what a STRIDED_SLICE takes along each axis; None where the file does not tell, or axes come or go."""
    options, source = op.options, tensors[op.inputs[0]]
    bounds = [tensors[index] for index in op.inputs[1:4]]
    if options is None or options.ellipsis_mask or options.new_axis_mask or options.shrink_axis_mask or options.offset:
        return None
    if any(d < 0 for d in source.shape_signature or source.shape) or any(t.buffer is None for t in bounds):
        return None
    begin, end, step = ([int(v) for v in t.array()] for t in bounds)
    if not len(begin) == len(end) == len(step) == len(source.shape) or any(s < 1 for s in step):
        return None
    taken = [
        range(size)[
            slice(
                None if options.begin_mask >> axis & 1 else begin[axis],
                None if options.end_mask >> axis & 1 else end[axis],
                step[axis],
            )
        ]
        for axis, size in enumerate(source.shape)
    ]
    return tuple(taken) if all(taken) else None


def _picked_pixels(draft: Draft, op: Operator) -> bool:
    """Take every second or third pixel with a convolution of one pixel that moves on as far, and changes nothing."""
    source, name = draft.tensors[op.inputs[0]], draft.tensors[op.outputs[0]].name
    taken = cut(draft.tensors, op) if source.dtype in _FLOATS and len(source.shape) == 4 else None
    if taken is None:
        return False
    (_, rows, columns, depth), whole = taken, [range(0, n, r.step) for n, r in zip(source.shape, taken, strict=True)]
    ones = draft.add(constant(f"{name}/ones", np.ones((1, 1, 1, len(depth)), np.float32)))
    zeros = draft.add(constant(f"{name}/zeros", np.zeros(len(depth), np.float32)))
    options = Record(
        "DepthwiseConv2DOptions",
        padding="VALID",
        stride_h=rows.step,
        stride_w=columns.step,
        depth_multiplier=1,
        dilation_h_factor=1,
        dilation_w_factor=1,
    )
    draft.op("DEPTHWISE_CONV_2D", (op.inputs[0], ones, zeros), op.outputs[0], options)
    return list(taken) == whole and taken[0].step == taken[3].step == 1


SUBSTITUTIONS = (
    Substitution("SQUEEZE", "SQUEEZE as RESHAPE", frozenset({"RESHAPE"}), _as_reshape),
    Substitution("EXPAND_DIMS", "EXPAND_DIMS as RESHAPE", frozenset({"RESHAPE"}), _as_reshape),
    Substitution("SQUARE", "SQUARE as MUL", frozenset({"MUL"}), _square),
    Substitution("HARD_SWISH", "HARD_SWISH as ADD and MUL", frozenset({"ADD", "MUL"}), _hard_swish),
    Substitution("LEAKY_RELU", "LEAKY_RELU as MUL and MAXIMUM", frozenset({"MUL", "MAXIMUM"}), _leaky_relu),
    Substitution("RELU6", "RELU6 as RELU and MINIMUM", frozenset({"RELU", "MINIMUM"}), _relu6),
    Substitution(
        "RELU_N1_TO_1", "RELU_N1_TO_1 as MAXIMUM and MINIMUM", frozenset({"MAXIMUM", "MINIMUM"}), _relu_n1_to_1
    ),
    Substitution("PADV2", "PADV2 with zeros as PAD", frozenset({"PAD"}), _pad_v2),
    Substitution(
        "MAX_POOL_2D", "the activation of MAX_POOL_2D on its own", frozenset({"RELU", "RELU6"}), _unfused_pool
    ),
    Substitution(
        "AVERAGE_POOL_2D", "the activation of AVERAGE_POOL_2D on its own", frozenset({"RELU", "RELU6"}), _unfused_pool
    ),
    Substitution("STRIDED_SLICE", "axes kept by STRIDED_SLICE, dropped by RESHAPE", frozenset({"RESHAPE"}), _kept_axes),
    Substitution(
        "STRIDED_SLICE", "STRIDED_SLICE as DEPTHWISE_CONV_2D", frozenset({"DEPTHWISE_CONV_2D"}), _picked_pixels
    ),
)
