# SPDX-License-Identifier: Apache-2.0
"""Fold pixels into channels: thin convolutions become wide ones, for hardware that multiplies whole tiles.

Neighbours of a row lie side by side in memory, so that an image of 32 x 16 channels a row is one of 8 x 64 as well: a
RESHAPE that moves nothing. A convolution over the one is a convolution over the other, whose weights are the same numbers in
other places, among zeros. It multiplies more and calls kernels less often: matrix units, such as AMX or those of an NPU,
are idle in layers of 16 channels, and then take less time. Outputs stay the same but for rounding.

The first convolution of a net for sounds reads one channel, of which instructions for 8-bit integers take four at a time. A
row of ten such pixels as one pixel of ten channels needs one tap where there were four.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from litesmith.errors import OptimizeError, UsageError
from litesmith.model import Model, Operator, Record, Subgraph, Tensor, constant, modernize
from litesmith.optimize._calibrate import entry_points
from litesmith.optimize._equal import TOLERANCE, difference
from litesmith.result import Result

Array = np.ndarray[Any, Any]
DEFAULT_WIDTH = 64
_DOT_PRODUCT = 4
"""Channels that an instruction for 8-bit integers multiplies and adds up, be they there or not."""
_ELEMENTWISE = frozenset(
    {"ADD", "SUB", "MUL", "MAXIMUM", "MINIMUM", "RELU", "RELU6", "RELU_N1_TO_1", "LEAKY_RELU", "HARD_SWISH", "LOGISTIC",
     "TANH", "ELU", "ABS", "SQUARE"}
)  # fmt: skip


@dataclass(frozen=True)
class FoldedLayer:
    """An operator of the model as it was, and how many pixels of its output are one now."""

    index: int
    kind: str
    name: str
    pixels: int


@dataclass(frozen=True)
class FoldCoverage(Result, kind="fold", schema=1):
    """What folding did.

    Attributes:
        width: channels that an output may have afterwards.
        layers: those that were folded.
        macs, parameters: before and after.
        difference: of the outputs of both models on random inputs, as a share of their span.
    """

    width: int
    layers: tuple[FoldedLayer, ...]
    macs: tuple[int, int]
    parameters: tuple[int, int]
    difference: float


@dataclass(frozen=True)
class Folded:
    """A model whose thin layers are wide, and what was done."""

    model: Model
    coverage: FoldCoverage


def fold(model: Model, *, width: int = DEFAULT_WIDTH) -> Folded:
    """Make thin convolutions wide by folding pixels into channels; outputs stay the same.

    Args:
        model: in float; quantize it afterwards.
        width: channels that an output may have afterwards; a layer that has more than half of them stays, but for one
            that reads so few channels that a whole row of them is one pixel better.

    Raises:
        OptimizeError: no layer can be folded, or the outputs would change.

    Example:
        >>> from litesmith import zoo
        >>> folded = fold(zoo.build("resnet_8"))
        >>> [layer.pixels for layer in folded.coverage.layers]
        [4, 4, 4, 4, 2, 2, 2, 2]
    """
    check_width(width)
    if not _has_one_way_in(model):
        raise OptimizeError(
            "only a model with one entry can be folded; this has several signatures, each a graph of its own"
        )
    layers = thin_layers(model, width)
    if not layers:
        raise OptimizeError(
            f"no layer can be folded to {width} channels: this takes float convolutions with SAME padding, of at most "
            f"{width // 2} channels on images whose width is even, or with fewer than 4 inputs on rows not much wider than "
            "the window"
        )
    graph = model.main
    made = modernize(replace(model.with_main(_Folding(graph).run(layers)), source=None), drop_orphans=True)
    made.verify()
    found = difference(model, made, delegate="off")  # whose kernels for pruned weights would take the zeros for some
    if not found <= TOLERANCE:
        raise OptimizeError(f"folding to {width} channels would change the outputs by {found:.2g} of their span")
    named = [(i, graph.operators[i], pixels) for i, pixels in layers.items()]
    before, after = model.cost(), made.cost()
    coverage = FoldCoverage(
        width=width,
        layers=tuple(FoldedLayer(i, op.kind, graph.tensors[op.outputs[0]].name, p) for i, op, p in named),
        macs=(before.macs, after.macs),
        parameters=(before.parameters, after.parameters),
        difference=found,
    )
    return Folded(made, coverage)


def check_width(width: int) -> None:
    """Refuse a width that no folded layer can have."""
    if width < 2:
        raise UsageError(f"the width must be 2 or more channels, not {width}")


def thin_layers(model: Model, width: int = DEFAULT_WIDTH) -> dict[int, int]:
    """Return the operators that can be folded, with how many pixels of their output become one.

    Those that work on each value alone follow the convolutions that they read.
    """
    graph = model.main
    if not _has_one_way_in(model):
        return {}
    found: dict[int, int] = {}
    made: dict[int, int] = {}
    for index, op in enumerate(graph.operators):
        pixels = max((made.get(i, 1) for i in op.inputs), default=1) if _is_elementwise(graph, op) else 1
        if _stride(graph, op):
            pixels = _pixels(graph, op, width)
        if pixels > 1:
            found[index] = made[op.outputs[0]] = pixels
    return found


def _has_one_way_in(model: Model) -> bool:
    return [subgraph for _, subgraph in entry_points(model)] == [0]


def _is_elementwise(graph: Subgraph, op: Operator) -> bool:
    tensors = [graph.tensors[i] for i in (*op.inputs, *op.outputs) if i >= 0]
    alike = len({t.shape for t in tensors}) == 1 and not any(t.is_constant for t in tensors)
    return op.kind in _ELEMENTWISE and alike and all(map(_is_image, tensors))


def _pixels(graph: Subgraph, op: Operator, width: int) -> int:
    """Return how many pixels of its output a convolution can make one; 1 where it stays as it is."""
    source, made, stride = graph.tensors[op.inputs[0]], graph.tensors[op.outputs[0]], _stride(graph, op)
    pixels = min(_most(made, width), _most(source, width * stride) // stride)
    while pixels > 1 and source.shape[2] % (pixels * stride):
        pixels //= 2
    return made.shape[2] if pixels <= 1 and _whole_row_saves(graph, op, width) else max(pixels, 1)


def _whole_row_saves(graph: Subgraph, op: Operator, width: int) -> bool:
    """Say whether a tap that reads a whole row takes fewer lanes than the taps side by side that read a pixel each."""
    source, made, stride = graph.tensors[op.inputs[0]], graph.tensors[op.outputs[0]], _stride(graph, op)
    columns, depth = source.shape[2:]
    window = graph.tensors[op.inputs[1]].shape[2]
    saves = _lanes(columns * depth) < window * _lanes(depth)
    return saves and columns == made.shape[2] * stride and columns * depth <= width


def _lanes(channels: int) -> int:
    return -(-channels // _DOT_PRODUCT) * _DOT_PRODUCT


def _is_image(tensor: Tensor) -> bool:
    """Whether it has rows and columns of floats, and nothing but the batch may change."""
    fixed = -1 not in (tensor.shape_signature or tensor.shape)[1:]
    return (
        tensor.dtype == "float32"
        and len(tensor.shape) == 4
        and fixed
        and tensor.elements > 0
        and not tensor.is_constant
    )


def _most(tensor: Tensor, width: int) -> int:
    """Return the largest power of two of pixels that have at most ``width`` channels together and fill the rows."""
    columns, depth, pixels = tensor.shape[2], tensor.shape[3], 1
    while 2 * pixels * depth <= width and columns % (2 * pixels) == 0:
        pixels *= 2
    return pixels


def _stride(graph: Subgraph, op: Operator) -> int:
    """Return the steps of a convolution along the rows; 0 for what is no convolution that can be folded."""
    if op.kind != "CONV_2D" or op.options is None or len(op.inputs) != 3 or -1 in op.inputs:
        return 0
    source, weight, bias = (graph.tensors[i] for i in op.inputs)
    if not _is_image(source) or not _is_image(graph.tensors[op.outputs[0]]):
        return 0
    plain = all(t.buffer is not None and t.dtype == "float32" and t.sparsity is None for t in (weight, bias))
    if not plain or op.options.dilation_w_factor != 1 or weight.shape[3] != source.shape[3]:
        return 0
    same = op.options.padding == "SAME" or weight.shape[1:3] == (1, 1)
    return int(op.options.stride_w) if same else 0


def folded_weight(weight: Array, pixels: int, stride: int, before: int, *, whole_row: bool = False) -> Array:
    """Return the weights of a convolution whose output has ``pixels`` in one, and whose input ``stride`` times as many.

    ``before`` is how many columns of zeros it pads an image with on the left. The window is as wide as it takes for SAME
    padding to put it in the same place: one more on the right than on the left, or as many. Beside a whole row there is
    nothing but padding.
    """
    filters, rows, columns, depth = weight.shape
    together = pixels * stride
    taps = [
        (pixel, tap, *divmod(stride * pixel + tap - before, together))
        for pixel in range(pixels)
        for tap in range(columns)
        if not whole_row or 0 <= stride * pixel + tap - before < together
    ]
    left = max(0, -min(place for _, _, place, _ in taps))
    right = max(left, max(place for _, _, place, _ in taps))
    left = max(left, right - 1)
    result = np.zeros((pixels, filters, rows, left + 1 + right, together, depth), weight.dtype)
    for pixel, tap, place, inner in taps:
        result[pixel, :, :, left + place, inner] = weight[:, :, tap]
    return result.reshape(pixels * filters, rows, left + 1 + right, together * depth)


@dataclass
class _Folding:
    """A graph being folded: every tensor may exist with several numbers of pixels in one."""

    graph: Subgraph
    tensors: list[Tensor] = field(default_factory=list)
    operators: list[Operator] = field(default_factory=list)
    views: dict[tuple[int, int], int] = field(default_factory=dict)  # (tensor, pixels in one): tensor

    def run(self, layers: dict[int, int]) -> Subgraph:
        """Return the graph with some operators folded."""
        graph = self.graph
        self.tensors = list(graph.tensors)
        made_folded = {graph.operators[index].outputs[0] for index in layers}
        self.views = {(tensor, 1): tensor for tensor in range(len(self.tensors)) if tensor not in made_folded}
        for index, op in enumerate(graph.operators):
            pixels = layers.get(index, 1)
            if pixels > 1:
                self._fold(op, pixels)
            else:
                for tensor in op.inputs:
                    self._view(tensor, 1)
                self.operators.append(op)
        for tensor in graph.outputs:
            self._view(tensor, 1)
        return replace(graph, tensors=tuple(self.tensors), operators=tuple(self.operators))

    def _fold(self, op: Operator, pixels: int) -> None:
        made = self._new(op.outputs[0], pixels)
        if op.kind != "CONV_2D":
            inputs = tuple(self._view(tensor, pixels) for tensor in op.inputs)
            self.operators.append(replace(op, inputs=inputs, outputs=(made,)))
            return
        source, weight, bias = (self.graph.tensors[i] for i in op.inputs)
        options = op.options
        assert options is not None
        stride = int(options.stride_w)
        columns = source.shape[2]
        before = _padding(columns, weight.shape[2], stride, options)
        whole_row = columns == pixels * stride
        wide = folded_weight(weight.array(), pixels, stride, before, whole_row=whole_row)
        constants = (
            self._add(replace(weight, name=f"{weight.name}/folded").with_array(wide)),
            self._add(replace(bias, name=f"{bias.name}/folded").with_array(np.tile(bias.array(), pixels))),
        )
        inputs = (self._view(op.inputs[0], pixels * stride), *constants)
        self.operators.append(
            replace(op, inputs=inputs, outputs=(made,), options=options.replace(stride_w=1, padding="SAME"))
        )

    def _view(self, tensor: int, pixels: int) -> int:
        """Return a tensor with so many pixels in one, reshaped from what there is where it is not there yet."""
        if tensor < 0 or (tensor, pixels) in self.views:
            return self.views.get((tensor, pixels), tensor)
        source = next(view for (of, _), view in self.views.items() if of == tensor)
        made = self._new(tensor, pixels) if pixels > 1 else tensor
        self.views[tensor, pixels] = made
        shape = self.tensors[made].shape
        sizes = (-1, *shape[1:])
        wanted = self._add(constant(f"{self.tensors[made].name}/shape", np.array(sizes, np.int32)))
        self.operators.append(Operator("RESHAPE", (source, wanted), (made,), Record("ReshapeOptions", new_shape=sizes)))
        return made

    def _new(self, tensor: int, pixels: int) -> int:
        like = self.graph.tensors[tensor]

        def folded(shape: Sequence[int]) -> tuple[int, ...]:
            return (*shape[:2], shape[2] // pixels, shape[3] * pixels)

        signature = None if like.shape_signature is None else folded(like.shape_signature)
        self.views[tensor, pixels] = self._add(
            replace(like, name=f"{like.name}/folded", shape=folded(like.shape), shape_signature=signature)
        )
        return self.views[tensor, pixels]

    def _add(self, tensor: Tensor) -> int:
        self.tensors.append(tensor)
        return len(self.tensors) - 1


def _padding(size: int, window: int, stride: int, options: Record) -> int:
    """Return how many columns of zeros come before an image of a width."""
    if options.padding != "SAME":
        return 0
    steps = -(-size // stride)
    return int(max(0, (steps - 1) * stride + window - size) // 2)
