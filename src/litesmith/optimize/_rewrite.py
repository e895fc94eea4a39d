# SPDX-License-Identifier: Apache-2.0
"""Rewrite one subgraph by a plan: integer tensors and operators, and the conversions between types.

Tensor i of the float subgraph stays tensor i of the new one, in the type in which its producer now writes it; copies
in other types and further constants come behind. So anything known about a float tensor can be compared by index.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from litesmith.model import ABSENT, Buffer, Model, Operator, Quantization, Record, Subgraph, Tensor
from litesmith.optimize._arithmetic import Affine, affine, per_channel, quantize_array
from litesmith.optimize._groups import Groups, Node
from litesmith.optimize._plan import Decision, known_ranges, real_outputs
from litesmith.optimize._ranges import Ranges
from litesmith.optimize._rules import LSTM_KINDS, RULES, TYPE_BLIND, KernelRule
from litesmith.optimize._stored import StoredWeights
from litesmith.optimize._weights import Overrides, layer_weights

Array = np.ndarray[Any, Any]
_BIAS_NEEDED = frozenset({"CONV_2D", "DEPTHWISE_CONV_2D"})  # LiteRT's integer kernels read it without looking


@dataclass(frozen=True)
class Settings:
    """How a plan is carried out."""

    io: str = "float32"
    per_channel: bool = True
    weight_method: str = "minmax"
    overrides: Overrides = field(default_factory=dict)
    add_biases: bool = False
    min_elements: int = 0


@dataclass(frozen=True)
class Rewritten:
    """The new subgraph and what was done.

    Attributes:
        graph: the new subgraph.
        outputs: the new index of each output tensor, by the old one.
        operator_indices: where each operator of the float subgraph went.
        conversions: how many conversions were added, by kind.
        composed: how many operators without a kernel in their type are now several that have one, by what was done.
        widened: names of tensors whose scale was widened beyond their range.
        decisions: what really became of the operators.
    """

    graph: Subgraph
    outputs: dict[int, int]
    operator_indices: tuple[int, ...]
    conversions: dict[str, int]
    composed: dict[str, int]
    widened: tuple[str, ...]
    decisions: tuple[Decision, ...]


def rewrite(
    model: Model,
    subgraph: int,
    decisions: Sequence[Decision],
    ranges: Ranges | None,
    settings: Settings,
    buffers: dict[Any, Buffer],
) -> Rewritten:
    """Return a subgraph rewritten by the decisions; ``buffers`` lets equal constants be stored once."""
    return Rewriter(model, subgraph, decisions, ranges, settings, buffers).run()


class Rewriter:
    """One subgraph under reconstruction."""

    def __init__(
        self,
        model: Model,
        subgraph: int,
        decisions: Sequence[Decision],
        ranges: Ranges | None,
        settings: Settings,
        buffers: dict[Any, Buffer],
    ) -> None:
        self.graph = model.subgraphs[subgraph]
        self.subgraph, self.decisions, self.settings = subgraph, decisions, settings
        self.known = known_ranges(self.graph, ranges, subgraph)
        wide = known_ranges(self.graph, ranges, subgraph, domain="int16")
        self.groups = Groups(self.graph, decisions, self.known, wide, io=settings.io)
        self.tensors = list(self.graph.tensors)
        self.operators: list[Operator] = []
        self.buffers = buffers
        self.conversions: dict[str, int] = {}
        self.composed: dict[str, int] = {}
        self.widened: set[str] = set()
        self._copies: dict[tuple[Any, ...], int] = {}
        self._home: dict[int, Affine] = {}  # integer tensors, as their producer writes them
        self._claimed: set[int] = set()  # float constants whose index now holds an integer one
        self._stored = StoredWeights(self)
        self.float_users: set[int] = set()  # constants that stay in the file as float
        self.float_users = self._constants_in_float()

    def run(self) -> Rewritten:
        """Carry out the plan."""
        self._type_inputs()
        places, decisions = [], list(self.decisions)
        for index, op in enumerate(self.graph.operators):
            decision = self.decisions[index]
            if op.kind in LSTM_KINDS and decision.scheme.is_static:
                from litesmith.optimize._lstm import integer_lstm

                new = integer_lstm(self, op)
            elif decision.scheme.is_static:
                new = self._integer(index, op, RULES[op.kind], decision)
            else:
                new, decisions[index] = self._float(op, decision)
            places.append(len(self.operators))
            self.operators.append(new)
        outputs = {t: self._output(t) for t in dict.fromkeys(self.graph.outputs)}
        graph = replace(
            self.graph,
            tensors=tuple(self.tensors),
            operators=tuple(self.operators),
            outputs=tuple(outputs[t] for t in self.graph.outputs),
        )
        names = self.widened | {self.graph.tensors[t].name for t in self.groups.widened}
        widened = tuple(sorted(names))
        conversions, composed = dict(self.conversions), dict(self.composed)
        return Rewritten(graph, outputs, tuple(places), conversions, composed, widened, tuple(decisions))

    # ---------------------------------------------------------------- tensors

    def _constants_in_float(self) -> set[int]:
        """Return the constants that some operator with float activations reads as they are."""
        users: set[int] = set(self.graph.outputs)
        for op, decision in zip(self.graph.operators, self.decisions, strict=True):
            if not decision.scheme.is_static:
                replaced, _ = self._stored.replaced(op, decision.scheme)
                users.update(t for position, t in enumerate(op.inputs) if position not in replaced)
        return users

    def add(self, tensor: Tensor) -> int:
        """Add a tensor and return its index."""
        self.tensors.append(tensor)
        return len(self.tensors) - 1

    def place_constant(self, source: int, tensor: Tensor, suffix: str) -> int:
        """Put a constant in the place of the float one it stands for; behind, where that is still needed."""
        if source in self._claimed or source in self.float_users or source in self.graph.inputs:
            return self.add(replace(tensor, name=f"{tensor.name}/{suffix}"))
        self._claimed.add(source)
        self.tensors[source] = tensor
        return source

    def constant(
        self, source: int, values: Array, quantization: Quantization | None, *, dtype: str | None = None, key: Any
    ) -> int:
        """Return the index of a constant made from a float one; the same one again for the same ``key``."""
        known = self._copies.get((source, key))
        if known is not None:
            return known
        original = self.graph.tensors[source]
        made = replace(original, sparsity=None, quantization=quantization).with_array(values, dtype)
        shared = self.buffers.setdefault((id(original.buffer), made.dtype, made.shape, key), made.buffer or Buffer(b""))
        made = replace(made, buffer=shared)
        index = self.place_constant(source, made, str(made.dtype))
        self._copies[source, key] = index
        return index

    def _type_inputs(self) -> None:
        if self.settings.io == "float32":
            return
        for tensor in self.graph.inputs:
            if tensor in self.known and self.graph.tensors[tensor].dtype == "float32":
                self.settle(tensor, self.groups.parameters(Node(tensor, self.settings.io)))

    def settle(self, tensor: int, parameters: Affine) -> None:
        """Give a computed tensor its integer type."""
        self._home[tensor] = parameters
        self.tensors[tensor] = replace(
            self.tensors[tensor], dtype=parameters.dtype, quantization=parameters.quantization()
        )

    def read(self, tensor: int, wanted: Affine | None) -> int:
        """Return the tensor that holds the values of ``tensor`` in the wanted form; None is float32."""
        home = self._home.get(tensor)
        if tensor == ABSENT or self.graph.tensors[tensor].is_constant or home == wanted:
            return tensor
        if self.graph.tensors[tensor].dtype != "float32":
            return tensor
        key = (tensor, wanted)
        if key not in self._copies:
            self._copies[key] = self._convert(tensor, home, wanted)
        return self._copies[key]

    def _convert(self, tensor: int, home: Affine | None, wanted: Affine | None) -> int:
        original = self.graph.tensors[tensor]
        suffix = "float32" if wanted is None else wanted.dtype
        copy = self.add(
            replace(
                original,
                name=f"{original.name}/{suffix}",
                dtype=suffix,
                quantization=None if wanted is None else wanted.quantization(),
            )
        )
        if wanted is None:
            assert home is not None
            self.operators.append(conversion("DEQUANTIZE", tensor, copy, 3 if home.dtype == "int16" else 2))
            self._count("DEQUANTIZE")
        else:
            self.operators.append(conversion("QUANTIZE", tensor, copy, 2 if wanted.dtype == "int16" else 1))
            self._count("QUANTIZE" if home is None else "QUANTIZE (rescale)")
        return copy

    def _count(self, kind: str) -> None:
        self.conversions[kind] = self.conversions.get(kind, 0) + 1

    def _output(self, tensor: int) -> int:
        """Return the tensor that the subgraph returns for ``tensor``; it keeps the name."""
        original = self.graph.tensors[tensor]
        if original.dtype != "float32" or original.is_constant or tensor in self.graph.inputs:
            return tensor
        wanted = None
        if self.settings.io != "float32":
            if tensor not in self.known:
                return self.read(tensor, None)
            wanted = self.groups.parameters(Node(tensor, self.settings.io))
        index = self.read(tensor, wanted)
        if index != tensor:
            inner = self._home[tensor].dtype if tensor in self._home else "float32"
            self.tensors[index] = replace(self.tensors[index], name=original.name)
            self.tensors[tensor] = replace(self.tensors[tensor], name=f"{original.name}/{inner}")
        return index

    # ---------------------------------------------------------------- operators

    def _float(self, op: Operator, decision: Decision) -> tuple[Operator, Decision]:
        if op.kind in TYPE_BLIND:
            return op, decision
        op = replace(op, inputs=tuple(self.read(t, None) for t in op.inputs))
        new, reason = self._stored.apply(op, decision.scheme)
        return new, decision if new is not op and not reason else decision.stayed_float(reason, partly=new is not op)

    def _integer(self, index: int, op: Operator, rule: KernelRule, decision: Decision) -> Operator:
        domain = decision.scheme.domain
        inputs = []
        for position, tensor in enumerate(op.inputs):
            node = self.groups.inputs.get((index, position))
            inputs.append(self.read(tensor, None) if node is None else self._operand(node))
        if rule.weight is not None:
            self._layer(index, op, rule, decision, inputs)
        for tensor in real_outputs(op, rule):
            self.settle(tensor, self.groups.parameters(Node(tensor, domain)))
        if op.kind == "HARD_SWISH" and domain == "int16":
            return self._hard_swish(op, inputs[0])
        version = max(rule.version(domain) or 1, op.version)
        return _adapted(replace(op, inputs=tuple(inputs), version=version), domain)

    def _hard_swish(self, op: Operator, x: int) -> Operator:
        """Return the last of ADD, MUL and MUL, which are HARD_SWISH in int16: x · (min(max(x + 3, 0), 6) / 6).

        The gate is divided, not the product: so the last rounding is that of the result, and its integers use all bits.
        """
        name = self.graph.tensors[op.outputs[0]].name
        like = self.tensors[op.outputs[0]]

        def number(value: float) -> int:
            parameters = affine(0.0, value, "int16")
            stored = quantize_array(np.array(value), parameters)
            made = Tensor(f"{name}/{value:.3g}", (), quantization=parameters.quantization()).with_array(stored)
            shared = self.buffers.setdefault(("number", made.dtype, stored.tobytes()), made.buffer or Buffer(b""))
            return self.add(replace(made, buffer=shared))

        def step(kind: str, inputs: tuple[int, int], high: float, word: str, options: Record) -> int:
            parameters = affine(0.0, high, "int16")
            made = self.add(replace(like, name=f"{name}/{word}", quantization=parameters.quantization()))
            self.operators.append(Operator(kind, inputs, (made,), options, version=RULES[kind].int16 or 1))
            return made

        fused = Record("AddOptions", fused_activation_function="RELU6", pot_scale_int16=False)
        shifted = step("ADD", (x, number(3.0)), 6.0, "shifted", fused)
        gate = step("MUL", (shifted, number(1 / 6)), 1.0, "gate", Record("MulOptions"))
        said = "HARD_SWISH as ADD, MUL and MUL, as LiteRT has no int16 kernel for it"
        self.composed[said] = self.composed.get(said, 0) + 1
        return Operator("MUL", (x, gate), op.outputs, Record("MulOptions"), version=RULES["MUL"].int16 or 1)

    def _operand(self, node: Node) -> int:
        parameters = self.groups.parameters(node)
        if not self.graph.tensors[node.tensor].is_constant:
            return self.read(node.tensor, parameters)
        values = quantize_array(self.graph.tensors[node.tensor].array(), parameters)
        return self.constant(node.tensor, values, parameters.quantization(), key=parameters)

    def _layer(self, index: int, op: Operator, rule: KernelRule, decision: Decision, inputs: list[int]) -> None:
        """Put integer weights and bias into ``inputs``."""
        assert rule.weight is not None
        domain = decision.scheme.domain
        source = op.inputs[rule.weight]
        data = next(self.groups.inputs[index, p] for p in rule.inputs or (0,))
        bias_index = op.inputs[rule.bias] if rule.bias is not None and rule.bias < len(op.inputs) else ABSENT
        has_bias = bias_index != ABSENT
        axis = rule.axis if self.settings.per_channel else None
        output = Node(real_outputs(op, rule)[0], domain)
        input_scale = self.groups.parameters(data).scale
        override = self.settings.overrides.get((self.subgraph, source))
        layer = layer_weights(
            self.graph.tensors[source],
            self.graph.tensors[bias_index] if has_bias else None,
            axis=axis,
            bits=decision.scheme.bits,
            input_scale=input_scale,
            output_scale=self.groups.parameters(output).scale,
            bias_dtype="int64" if domain == "int16" else "int32",
            method=self.settings.weight_method,
            override=override if override and override.fits(rule.axis, decision.scheme.bits) else None,
            taps=rule.taps,
        )
        if layer.widened:
            self.widened.add(self.graph.tensors[source].name)
        key = (decision.scheme.weights, layer.scales.tobytes())
        stored = "int4" if decision.scheme.bits == 4 else None
        inputs[rule.weight] = self.constant(
            source, layer.integers, per_channel(layer.scales, rule.axis), dtype=stored, key=key
        )
        if layer.bias is not None:
            quantization = per_channel(layer.bias_scales, 0)
            bias_key = (str(layer.bias.dtype), layer.bias_scales.tobytes())
            shaped = layer.bias.reshape(self.graph.tensors[bias_index].shape)
            inputs[rule.bias or 0] = self.constant(bias_index, shaped, quantization, key=bias_key)
        elif rule.bias is not None and (self.settings.add_biases or op.kind in _BIAS_NEEDED):
            channels = self.graph.tensors[source].shape[rule.axis]
            zeros = np.zeros(channels, np.int64 if domain == "int16" else np.int32)
            zero = Tensor(f"{self.graph.tensors[source].name}/bias", (), quantization=per_channel(layer.bias_scales, 0))
            inputs[:] = [*inputs[: rule.bias], *[ABSENT] * (rule.bias - len(inputs))]
            inputs.append(self.add(zero.with_array(zeros)))


def conversion(kind: str, source: int, target: int, version: int) -> Operator:
    """Return an operator that changes the type of a tensor."""
    return Operator(kind, (source,), (target,), version=version)


def _adapted(op: Operator, domain: str) -> Operator:
    """Return an operator in the form of its integer kernel."""
    if op.kind in ("ADD", "SUB") and domain == "int16":
        options = op.options or Record(f"{op.kind.title()}Options")
        return replace(op, options=options.replace(pot_scale_int16=False))
    if op.kind == "SQUARE":
        return replace(op, kind="MUL", inputs=(op.inputs[0], op.inputs[0]), options=Record("MulOptions"))
    return op
