# SPDX-License-Identifier: Apache-2.0
"""Fake quantization of a whole graph, taken from the file that ``quantize`` would write, and put back into that file.

The planned integer file says everything: which tensors are integers, which share a scale because a kernel demands it,
which are read through a conversion, which weights are stored how. The simulation rounds exactly there. After training
the same file gets the learned scales, integers and biases, so that it is the simulation in integers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import nn

from litesmith.errors import OptimizeError
from litesmith.model import ABSENT, Model, Operator, Quantization, Subgraph, Tensor
from litesmith.optimize._arithmetic import Affine, per_channel, quantize_array, quantize_bias
from litesmith.optimize._plan import real_inputs, real_outputs
from litesmith.optimize._rules import RULES
from litesmith.train._fake_quantize import (
    ActivationQuantizer,
    BiasQuantizer,
    DynamicQuantizer,
    ShortMultiplier,
    WeightQuantizer,
)
from litesmith.train._module import GraphModule
from litesmith.train._weight_transforms import chain

Array = np.ndarray[Any, Any]
_EXACT = frozenset({"MAX_POOL_2D", "MAXIMUM", "MINIMUM", "REDUCE_MAX", "REDUCE_MIN", "TOPK_V2", "EMBEDDING_LOOKUP"})
_ROUNDS = frozenset({"RESIZE_BILINEAR"})
_WEIGHT_BITS = {"int8": 8, "int4": 4}
_SHORT_MULTIPLIER = frozenset({"CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV"})
"""Layers whose kernels for int16 keep 15 bits of their multiplier; that of FULLY_CONNECTED computes in double."""


@dataclass(frozen=True)
class _Use:
    """A constant of the planned file: whose float source it is, and how it is read."""

    operator: int  # in the float graph
    position: int
    source: int  # the float constant
    stored: int  # the constant of the planned file
    kind: str  # "weight", "bias" or "operand"


class QuantizedGraph:
    """The planned integer file beside the float graph that is trained."""

    def __init__(self, module: GraphModule, planned: Model, *, shared_scales: bool = False) -> None:
        self.module, self.planned = module, planned
        self._graph, self._target = module.graph, planned.main
        self._parent: dict[int, int] = {}
        self._fixed: dict[int, bool] = {}
        self._quantizers: dict[int, ActivationQuantizer] = {}
        self._weights: dict[str, WeightQuantizer] = {}
        self._pairs = _matching_operators(self._graph, self._target)
        self._makers = self._target.producers()
        self._tie()
        self._uses = self._constants()
        self._attach_weights(shared_scales)
        self._attach_activations()

    # ---------------------------------------------------------------- what shares a scale

    def _find(self, tensor: int) -> int:
        self._parent.setdefault(tensor, tensor)
        while self._parent[tensor] != tensor:
            self._parent[tensor] = self._parent[self._parent[tensor]]
            tensor = self._parent[tensor]
        return tensor

    def _tie(self) -> None:
        for op in self._target.operators:
            rule = RULES.get(op.kind)
            if rule is None or not _is_integer(self._target, op.outputs[0]):
                continue
            if rule.tied:
                members = [op.inputs[p] for p in real_inputs(op, rule)] + real_outputs(op, rule)
                for member in members[1:]:
                    self._parent[self._find(member)] = self._find(members[0])
        for op in self._target.operators:
            rule = RULES.get(op.kind)
            domain = self._target.tensors[op.outputs[0]].dtype
            if rule is not None and domain in ("int8", "int16") and rule.fixed(domain) is not None:
                for output in real_outputs(op, rule):
                    self._fixed[self._find(output)] = True

    def quantizer(self, tensor: int) -> ActivationQuantizer:
        """Return what rounds a tensor of the planned file, the same one for all that share its scale."""
        root = self._find(tensor)
        if root not in self._quantizers:
            stored = self._target.tensors[tensor]
            assert stored.quantization is not None
            self._quantizers[root] = ActivationQuantizer(
                stored.dtype,
                stored.quantization.scale[0],
                stored.quantization.zero_point[0],
                learned=not self._fixed.get(root, False),
            )
        return self._quantizers[root]

    # ---------------------------------------------------------------- attaching

    def _attach_activations(self) -> None:
        for index, tensor in enumerate(self._graph.tensors):
            if tensor.is_constant or not _is_integer(self._target, index):
                continue
            maker = self._makers.get(index)
            if maker is None or not _keeps_grid(self._target.operators[maker]):
                self.module.write_transforms[str(index)] = self.quantizer(index)
        for index, (ours, theirs) in self._pairs.items():
            for position, source in enumerate(ours.inputs):
                if position >= len(theirs.inputs) or source == ABSENT or self._graph.tensors[source].is_constant:
                    continue
                read = theirs.inputs[position]
                if read != source and _is_integer(self._target, read):
                    self.module.read_transforms[f"{index}_{position}"] = self.quantizer(read)

    def _constants(self) -> list[_Use]:
        uses = []
        for index, (ours, theirs) in self._pairs.items():
            rule = RULES.get(ours.kind)
            for position, source in enumerate(ours.inputs):
                if position >= len(theirs.inputs) or source == ABSENT or not self._graph.tensors[source].is_constant:
                    continue
                stored = self._through_dequantize(theirs.inputs[position])
                tensor = self._target.tensors[stored]
                if self._graph.tensors[source].dtype != "float32" or tensor.dtype == "float32":
                    continue
                is_operand = rule is not None and rule.weight is None and _is_integer(self._target, theirs.outputs[0])
                kind = "operand" if is_operand else "bias" if tensor.dtype in ("int32", "int64") else "weight"
                uses.append(_Use(index, position, source, stored, kind))
        return uses

    def _through_dequantize(self, tensor: int) -> int:
        maker = self._makers.get(tensor)
        if maker is not None and self._target.operators[maker].kind == "DEQUANTIZE":
            return self._target.operators[maker].inputs[0]
        return tensor

    def _attach_weights(self, shared: bool) -> None:
        for use in self._uses:
            if use.kind == "operand":
                self.module.read_transforms[f"{use.operator}_{use.position}"] = self.quantizer(use.stored)
            if use.kind != "weight":
                continue
            stored = self._target.tensors[use.stored]
            key = self.module.key(use.source)
            if key is None or stored.quantization is None or stored.dtype not in _WEIGHT_BITS:
                continue
            if not stored.quantization.scale:
                raise OptimizeError(
                    f"{stored.name} is to have a scale for each block, which cannot be trained; leave out the rule, or "
                    "take weights4 without blocks"
                )
            if key not in self._weights:
                scales = torch.tensor(stored.quantization.scale, dtype=torch.float32)
                bits = _WEIGHT_BITS[stored.dtype]
                quantizer = WeightQuantizer(scales, stored.quantization.axis, bits, shared=shared)
                self._weights[key] = quantizer
                self.module.weight_transforms[key] = chain(self.module, key, quantizer)
            self._attach_dynamic(use)

        for use in self._uses:
            if use.kind == "bias":
                self._attach_bias(use)
            if use.kind in ("weight", "bias"):
                self._attach_short_multiplier(use)

    def _attach_bias(self, use: _Use) -> None:
        ours, theirs = self._pairs[use.operator]
        rule = RULES[ours.kind]
        weight = self._weights.get(self.module.key(ours.inputs[rule.weight or 1]) or "")
        data = theirs.inputs[(rule.inputs or (0,))[0]]
        if weight is not None and self._graph.tensors[use.source].elements == weight.channels:
            self.module.read_transforms[f"{use.operator}_{use.position}"] = BiasQuantizer(self.quantizer(data), weight)

    def _attach_short_multiplier(self, use: _Use) -> None:
        """Multiply the sums of a layer as its kernel does; weights and bias alike, as the kernel does it behind both."""
        ours, theirs = self._pairs[use.operator]
        output = theirs.outputs[0]
        if ours.kind not in _SHORT_MULTIPLIER or self._target.tensors[output].dtype != "int16":
            return
        rule = RULES[ours.kind]
        weight = self._weights.get(self.module.key(ours.inputs[rule.weight or 1]) or "")
        if weight is None:
            return
        data = self.quantizer(theirs.inputs[(rule.inputs or (0,))[0]])
        axis = weight.axis if use.kind == "weight" else 0
        multiplier = ShortMultiplier(data, weight, self.quantizer(output), axis)
        key = f"{use.operator}_{use.position}"
        transforms = self.module.read_transforms
        transforms[key] = nn.Sequential(transforms[key], multiplier) if key in transforms else multiplier

    def _attach_dynamic(self, use: _Use) -> None:
        """Round the input of a layer whose kernel quantizes it on the fly."""
        ours, theirs = self._pairs[use.operator]
        direct = theirs.inputs[use.position] == use.stored
        if direct and not _is_integer(self._target, theirs.outputs[0]) and ours.kind in ("FULLY_CONNECTED", "CONV_2D"):
            self.module.read_transforms[f"{use.operator}_0"] = DynamicQuantizer()

    # ---------------------------------------------------------------- writing

    @torch.no_grad()
    def to_model(self) -> Model:
        """Return the planned file with the scales, weights and biases of now."""
        tensors = list(self._target.tensors)
        for index, tensor in enumerate(tensors):
            if self._find(index) in self._quantizers and not tensor.is_constant:
                tensors[index] = replace(tensor, quantization=self._affine(index).quantization())
        floats = self.module.arrays()
        for use in self._uses:
            if use.kind == "weight":
                tensors[use.stored] = self._stored_weight(use, tensors[use.stored], floats)
        for use in self._uses:
            values = floats.get(use.source)
            if values is None:
                values = self._graph.tensors[use.source].array()
            if use.kind == "operand":
                affine = self._affine(use.stored)
                made = replace(tensors[use.stored], quantization=affine.quantization())
                tensors[use.stored] = made.with_array(quantize_array(values, affine))
            elif use.kind == "bias":
                tensors[use.stored] = self._stored_bias(use, tensors, values)
        for index in self._unchanged_floats():
            if index in floats:
                tensors[index] = tensors[index].with_array(floats[index])
        self._scale_missing_biases(tensors)
        return self.planned.with_main(replace(self._target, tensors=tuple(tensors)))

    def _affine(self, tensor: int) -> Affine:
        quantizer = self.quantizer(tensor)
        return Affine(quantizer.dtype, quantizer.scale, quantizer.zero_point)

    def _stored_weight(self, use: _Use, stored: Tensor, floats: Mapping[int, Array]) -> Tensor:
        if stored.dtype == "float16":
            values = floats.get(use.source)
            return stored if values is None else stored.with_array(values.astype(np.float16).reshape(stored.shape))
        key = self.module.key(use.source)
        quantizer = self._weights.get(key or "")
        if key is None or quantizer is None:
            return stored
        integers = quantizer.integers(_before_rounding(self.module, key)).numpy()
        scales = quantizer.scales().numpy()
        axis = stored.quantization.axis if stored.quantization else 0
        dtype = "int4" if stored.dtype == "int4" else None
        return replace(stored, quantization=per_channel(scales, axis)).with_array(integers, dtype)

    def _stored_bias(self, use: _Use, tensors: list[Tensor], values: Array) -> Tensor:
        stored = tensors[use.stored]
        scales = self._bias_scales(use.operator, tensors)
        integers = quantize_bias(np.ravel(values), scales, stored.dtype).reshape(stored.shape)
        return replace(stored, quantization=per_channel(scales, 0)).with_array(integers)

    def _bias_scales(self, operator: int, tensors: list[Tensor]) -> Array:
        ours, theirs = self._pairs[operator]
        rule = RULES[ours.kind]
        data, weight = theirs.inputs[(rule.inputs or (0,))[0]], theirs.inputs[rule.weight or 1]
        found: list[Quantization | None] = [tensors[t].quantization for t in (data, weight)]
        assert found[0] is not None
        assert found[1] is not None
        scales: Array = np.float32(found[0].scale[0]) * np.asarray(found[1].scale, np.float32)
        return scales

    def _scale_missing_biases(self, tensors: list[Tensor]) -> None:
        """Give the zeros that stand for an absent bias the scale of their layer."""
        for index, (ours, theirs) in self._pairs.items():
            rule = RULES.get(ours.kind)
            if (
                rule is None
                or rule.weight is None
                or rule.bias is None
                or not _is_integer(self._target, theirs.outputs[0])
            ):
                continue
            absent = rule.bias >= len(ours.inputs) or ours.inputs[rule.bias] == ABSENT
            if absent and rule.bias < len(theirs.inputs) and theirs.inputs[rule.bias] != ABSENT:
                place = theirs.inputs[rule.bias]
                tensors[place] = replace(tensors[place], quantization=per_channel(self._bias_scales(index, tensors), 0))

    def _unchanged_floats(self) -> list[int]:
        """Return the constants that the planned file holds in float, at the same place as the float file."""
        return [
            index
            for index, tensor in enumerate(self._graph.tensors)
            if tensor.is_constant and tensor.dtype == "float32" and self._target.tensors[index].dtype == "float32"
        ]


def _before_rounding(module: GraphModule, key: str) -> torch.Tensor:
    """Return a weight after masks and clusters, but before it is rounded."""
    weight: torch.Tensor = module.weights[key]
    transform: Any = module.weight_transforms[key]
    for part in list(transform)[:-1]:
        weight = part(weight)
    return weight


def _is_integer(graph: Subgraph, tensor: int) -> bool:
    found = graph.tensors[tensor]
    return found.dtype in ("int8", "int16") and found.quantization is not None


def _keeps_grid(op: Operator) -> bool:
    """Say whether what an operator writes lies on the grid of what it reads."""
    rule = RULES.get(op.kind)
    return rule is not None and rule.tied and (op.kind in _EXACT or (rule.moves and op.kind not in _ROUNDS))


def _matching_operators(ours: Subgraph, theirs: Subgraph) -> dict[int, tuple[Operator, Operator]]:
    """Return the operators of both graphs that write the same tensors, by index in ours."""
    found = {op.outputs: op for op in theirs.operators if op.kind not in ("QUANTIZE", "DEQUANTIZE")}
    return {i: (op, found[op.outputs]) for i, op in enumerate(ours.operators) if op.outputs in found}
