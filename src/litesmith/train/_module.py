# SPDX-License-Identifier: Apache-2.0
"""A `.tflite` graph as a ``torch.nn.Module``: same layout, same names, gradients through all of it.

Four places are open to what is trained in: what a weight becomes before it is used (masks, clusters, fake
quantization), what happens to a tensor when it is written, what happens to it when one operator reads it, and what
stands between a layer and its activation (normalization that is folded away at the end).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from litesmith.errors import UsageError
from litesmith.model import ABSENT, Buffer, Model, Subgraph
from litesmith.optimize import dequantize
from litesmith.optimize._run import input_names
from litesmith.train._operators import ACTIVATIONS, check_known
from litesmith.train._steps import Step, steps_of

LAYERS: dict[str, tuple[int, ...]] = {
    "BATCH_MATMUL": (0, 1),
    "CONV_2D": (1, 2),
    "Convolution2DTransposeBias": (1, 2),
    "DEPTHWISE_CONV_2D": (1, 2),
    "EMBEDDING_LOOKUP": (1,),
    "FULLY_CONNECTED": (1, 2),
    "GATHER": (0,),
    "GATHER_ND": (0,),
    "PRELU": (1,),
    "TRANSPOSE_CONV": (1, 3),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": (*range(1, 18),),
}
"""Positions of the inputs that are weights, by kind of operator."""
_CHANNELWISE = frozenset({"ADD", "MUL", "SUB"})


class GraphModule(nn.Module):
    """The main graph of a float model; inputs and outputs in the order and layout of the file, any batch size.

    Example:
        >>> import litesmith, torch
        >>> module = GraphModule(litesmith.samples.model())
        >>> module(torch.zeros(4, 28, 28, 1)).shape
        torch.Size([4, 10])
        >>> same = module.to_model()
        >>> [t.name for t in same.main.tensors] == [t.name for t in litesmith.samples.model().main.tensors]
        True
    """

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model
        graph = self.graph = model.main
        check_known(graph, model.subgraphs)
        self.input_names = input_names(model)
        self.weights = nn.ParameterDict()
        self.weight_transforms = nn.ModuleDict()
        self.write_transforms = nn.ModuleDict()
        self.read_transforms = nn.ModuleDict()
        self.norms = nn.ModuleDict()
        self._keys: dict[int, str] = {}  # constants by the name of their parameter; shared ones share it
        self._fixed: dict[int, Tensor] = {}
        self._add_constants(graph)
        self._steps = steps_of(graph, model.subgraphs)

    def _add_constants(self, graph: Subgraph) -> None:
        trained = trainable_constants(graph)
        owners: dict[int, str] = {}
        used = {t for op in graph.operators for t in op.inputs if t != ABSENT} | set(graph.outputs)
        for index in sorted(used):
            tensor = graph.tensors[index]
            if tensor.buffer is None or tensor.dtype == "string":
                continue
            if index in trained:
                key = owners.setdefault(id(tensor.buffer), str(index))
                self._keys[index] = key
                if key == str(index):
                    self.weights[key] = nn.Parameter(torch.from_numpy(np.array(tensor.array(), np.float32)))
            else:
                self._fixed[index] = torch.from_numpy(np.array(tensor.array()))

    # ---------------------------------------------------------------- running

    def forward(self, *inputs: Tensor | Mapping[str, Tensor]) -> Any:
        """Return the output, or a tuple of them, for tensors in the order of the inputs or one dict by name."""
        values = self.run(self.feed(*inputs))
        outputs = tuple(values[t] for t in self.graph.outputs)
        return outputs[0] if len(outputs) == 1 else outputs

    def feed(self, *inputs: Tensor | Mapping[str, Tensor]) -> dict[int, Tensor]:
        """Return the values of the graph's inputs, by tensor."""
        if len(inputs) == 1 and isinstance(inputs[0], Mapping):
            named = inputs[0]
            return {index: named[name] for name, index in self.input_names.items()}
        if len(inputs) != len(self.graph.inputs):
            raise UsageError(f"the model has {len(self.graph.inputs)} inputs, and {len(inputs)} are given")
        return {i: x for i, x in zip(self.graph.inputs, inputs, strict=True) if isinstance(x, Tensor)}

    def run(self, feed: Mapping[int, Tensor], keep: Collection[int] = ()) -> dict[int, Tensor]:
        """Run the graph; return its outputs and the tensors to ``keep``, by index."""
        wanted = {*self.graph.outputs, *keep}
        values: dict[int, Tensor] = {t: self._written(t, x) for t, x in feed.items()}
        ready: dict[int, Tensor] = {}
        for step in self._steps:
            arguments = [self._read(step.index, p, t, values, ready) for p, t in enumerate(step.inputs)]
            results = step.compute(*arguments)
            if not isinstance(results, (tuple, list)):
                results = (results,)
            for target, result in zip(step.outputs, results, strict=False):
                key = str(step.index)
                value = self.norms[key](result) if key in self.norms else result
                if step.activation != "NONE" and not self._is_cut_anyway(step.activation, target):
                    value = ACTIVATIONS[step.activation](value)
                values[target] = self._written(target, value)
            for done in step.last:
                if done not in wanted:
                    values.pop(done, None)
        for t in wanted - values.keys():
            values[t] = self.constant(t)
        return {t: values[t] for t in wanted}

    def _is_cut_anyway(self, activation: str, tensor: int) -> bool:
        """Say whether rounding does what the activation would: one pass over the data less."""
        key = str(tensor)
        if key not in self.write_transforms:
            return False
        rounds: Any = self.write_transforms[key]
        return bool(rounds.covers(activation))

    def _written(self, tensor: int, value: Tensor) -> Tensor:
        key = str(tensor)
        return self.write_transforms[key](value) if key in self.write_transforms else value

    def _read(
        self, operator: int, position: int, tensor: int, values: Mapping[int, Tensor], ready: dict[int, Tensor]
    ) -> Tensor | None:
        if tensor == ABSENT:
            return None
        value = values.get(tensor)
        if value is None:
            if self.graph.tensors[tensor].is_variable:
                return None
            value = ready.get(tensor)
            if value is None:
                value = ready[tensor] = self.constant(tensor)
        key = f"{operator}_{position}"
        return self.read_transforms[key](value) if key in self.read_transforms else value

    def constant(self, tensor: int) -> Tensor:
        """Return a constant as it is used now: a weight after what is done to it."""
        key = self._keys.get(tensor)
        if key is None:
            return self._fixed[tensor]
        weight: Tensor = self.weights[key]
        return self.weight_transforms[key](weight) if key in self.weight_transforms else weight

    # ---------------------------------------------------------------- weights

    def key(self, tensor: int) -> str | None:
        """Return the name in ``weights`` of a constant, None where it is not trained."""
        return self._keys.get(tensor)

    @property
    def steps(self) -> tuple[Step, ...]:
        """The operators in order."""
        return self._steps

    def arrays(self) -> dict[int, np.ndarray[Any, Any]]:
        """Return every trained constant as it is used now, by tensor."""
        with torch.no_grad():
            return {t: self.constant(t).detach().numpy().astype(np.float32) for t in self._keys}

    def to_model(self) -> Model:
        """Return the file with the weights of now, everything else as it was; normalization is folded."""
        arrays = self.arrays()
        for key, norm in self.norms.items():
            _fold(self.graph, int(key), norm, arrays)
        return with_constants(self.model, arrays)


def to_torch(model: Model) -> GraphModule:
    """Return a model's main graph as a ``torch.nn.Module``; a quantized or sparse model becomes float first."""
    return GraphModule(as_float(model))


def as_float(model: Model) -> Model:
    """Return the model in float32, as it is where it is so already."""
    packed = any(
        (t.is_quantized and t.dtype != "float32") or t.sparsity is not None or t.dtype in ("float16", "bfloat16")
        for t in model.main.tensors
    )
    return dequantize(model) if packed else model


def with_constants(model: Model, arrays: Mapping[int, np.ndarray[Any, Any]]) -> Model:
    """Return the model with other values for constants of its main graph; tensors that shared a buffer still do."""
    graph = model.main
    tensors = list(graph.tensors)
    made: dict[int, Buffer] = {}
    for index, values in arrays.items():
        old = tensors[index]
        new = old.with_array(np.ascontiguousarray(values, np.float32))
        buffer = made.setdefault(id(old.buffer), new.buffer or Buffer(b""))
        tensors[index] = replace(new, buffer=buffer)
    return replace(model.with_main(replace(graph, tensors=tuple(tensors))), source=None)


def trainable_constants(graph: Subgraph) -> set[int]:
    """Return the constants that training may change: weights, biases, and factors or offsets of channels."""
    found: set[int] = set()
    for op in graph.operators:
        for position in LAYERS.get(op.name, ()):
            if position < len(op.inputs):
                found.add(op.inputs[position])
        if op.kind in _CHANNELWISE:
            channels = graph.tensors[op.outputs[0]].shape[-1:]
            found.update(t for t in op.inputs if t != ABSENT and (graph.tensors[t].elements,) == channels != (1,))
    return {t for t in found if t != ABSENT and graph.tensors[t].buffer is not None and _is_float(graph, t)}


def _is_float(graph: Subgraph, tensor: int) -> bool:
    return graph.tensors[tensor].dtype == "float32"


def _fold(graph: Subgraph, index: int, norm: Any, arrays: dict[int, np.ndarray[Any, Any]]) -> None:
    """Fold the normalization behind a layer into its weights and bias."""
    op = graph.operators[index]
    factor, offset = norm.folded()
    weight, bias = op.inputs[1], op.inputs[2]
    shape = [1] * graph.tensors[weight].shape.__len__()
    shape[3 if op.kind == "DEPTHWISE_CONV_2D" else 0] = -1
    arrays[weight] = arrays[weight] * factor.reshape(shape)
    arrays[bias] = arrays[bias] * factor + offset


def tensors_of(arrays: Mapping[str, np.ndarray[Any, Any]] | Iterable[np.ndarray[Any, Any]]) -> Any:
    """Return arrays as tensors, sharing their memory where it is writable."""
    if isinstance(arrays, Mapping):
        return {name: torch.from_numpy(np.ascontiguousarray(a)) for name, a in arrays.items()}
    return [torch.from_numpy(np.ascontiguousarray(a)) for a in arrays]
