# SPDX-License-Identifier: Apache-2.0
"""The layers that have weights, which of them come first and last, and rules that treat single ones differently.

Pruning, clustering and channel removal ask the same two questions of a model: where are its weights, and which of them
does the user want treated how.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from litesmith.errors import OptimizeError, UsageError
from litesmith.model import ABSENT, Model, Operator, Subgraph
from litesmith.optimize._scheme import Rule
from litesmith.optimize._shared_constants import shared_places

WEIGHT_KINDS = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV")
_DATA_POSITION = {"TRANSPOSE_CONV": 2}
_BIAS_POSITION = {"TRANSPOSE_CONV": 3}


@dataclass(frozen=True)
class WeightLayer:
    """A layer with constant weights.

    Attributes:
        subgraph, operator, kind: which operator.
        name: of the tensor that it writes.
        weight: the tensor of its weights.
        is_first, is_last: no other layer stands before it, or behind it.
        is_shared: a layer before it has the same weights, and was asked in its place.
    """

    subgraph: int
    operator: int
    kind: str
    name: str
    weight: int
    is_first: bool
    is_last: bool
    is_shared: bool

    @property
    def label(self) -> str:
        """How messages call it."""
        return f"#{self.operator} {self.kind} {self.name!r}"


@dataclass(frozen=True)
class LayerRule:
    """What to do with the layers that match: ``skip``, ``include``, or a number of their own.

    ``match`` is a kind of operator, ``#index``, ``#first-last``, or a pattern for the name of the tensor it writes.

    Example:
        >>> LayerRule.parse("0.9:FULLY_CONNECTED")
        LayerRule(match='FULLY_CONNECTED', action='include', number=0.9)
    """

    match: str
    action: str
    number: float | None = None

    def __str__(self) -> str:
        return f"{self.action if self.number is None else f'{self.number:g}'}:{self.match}"

    @classmethod
    def parse(cls, text: str) -> LayerRule:
        """Return the rule written as ``action:match``."""
        action, colon, match = (part.strip() for part in text.partition(":"))
        if not colon or not match:
            raise UsageError(f"{text!r} is not a rule; write skip:MATCH, include:MATCH or NUMBER:MATCH")
        if action in ("skip", "include"):
            return cls(match, action)
        try:
            return cls(match, "include", float(action))
        except ValueError:
            raise UsageError(f"a rule says skip, include or a number, not {action!r}, before {match!r}") from None

    def matches(self, graph: Subgraph, index: int, op: Operator, *, is_main: bool) -> bool:
        """Say whether the rule is for this operator."""
        return Rule(self.match, "float").matches(graph, index, op, is_main=is_main)


def weight_layers(model: Model) -> list[WeightLayer]:
    """Return the layers whose weights are constants, in order of execution; the subgraphs one after the other."""
    found = []
    seen: set[int] = set()
    for number, graph in enumerate(model.subgraphs):
        before, behind = _reached(graph)
        for index, op in enumerate(graph.operators):
            if op.kind not in WEIGHT_KINDS or not graph.tensors[op.inputs[1]].is_constant:
                continue
            buffer = graph.tensors[op.inputs[1]].buffer
            name = graph.tensors[op.outputs[0]].name
            first, last = op_input(op) not in before, op.outputs[0] not in behind
            found.append(WeightLayer(number, index, op.kind, name, op.inputs[1], first, last, id(buffer) in seen))
            seen.add(id(buffer))
    return found


def sharing_layers(model: Model, layers: Iterable[WeightLayer]) -> list[WeightLayer]:
    """Return the layers whose weights other tensors hold too."""
    shared = shared_places(model)
    return [layer for layer in layers if (layer.subgraph, layer.weight) in shared]


def sharing_notes(layers: Sequence[WeightLayer], done: str) -> list[str]:
    """Return that layers are not fitted to samples, and what was done instead; nothing where there are none."""
    why = "other tensors share their weights, which a fit to what one layer reads would not suit"
    return [f"{len(layers)} layers, first {layers[0].label}, are {done}: {why}"] if layers else []


def op_input(op: Operator) -> int:
    """Return the tensor that a layer works on."""
    return op.inputs[_DATA_POSITION.get(op.kind, 0)]


def op_bias(op: Operator) -> int:
    """Return the tensor of a layer's bias, ABSENT where it has none."""
    position = _BIAS_POSITION.get(op.kind, 2)
    return op.inputs[position] if position < len(op.inputs) else ABSENT


def bias_position(op: Operator) -> int:
    """Return where among a layer's inputs its bias stands."""
    return _BIAS_POSITION.get(op.kind, 2)


def parse_rules(rules: Iterable[LayerRule | str]) -> tuple[LayerRule, ...]:
    """Return the rules, read where they are text."""
    return tuple(rule if isinstance(rule, LayerRule) else LayerRule.parse(rule) for rule in rules)


def matching_rules(
    model: Model, layers: Sequence[WeightLayer], rules: Sequence[LayerRule]
) -> dict[tuple[int, int], LayerRule]:
    """Return the last rule that matches each layer; raise where a rule matches none."""
    chosen: dict[tuple[int, int], LayerRule] = {}
    for rule in rules:
        matched = False
        for layer in layers:
            graph = model.subgraphs[layer.subgraph]
            op = graph.operators[layer.operator]
            if rule.matches(graph, layer.operator, op, is_main=layer.subgraph == 0):
                chosen[layer.subgraph, layer.operator] = rule
                matched = True
        if not matched:
            raise OptimizeError(
                f"the rule {str(rule)!r} matches no layer with weights; there are, for example, "
                f"{', '.join(layer.label for layer in layers[:3]) or 'none'}"
            )
    return chosen


def _reached(graph: Subgraph) -> tuple[set[int], set[int]]:
    """Return the tensors that some layer stands before, and those that some layer stands behind."""
    before: set[int] = set()
    for op in graph.operators:
        if op.kind in WEIGHT_KINDS or any(t in before for t in op.inputs):
            before.update(op.outputs)
    behind: set[int] = set()
    for op in reversed(graph.operators):
        if op.kind in WEIGHT_KINDS or any(t in behind for t in op.outputs):
            behind.update(t for t in op.inputs if t != ABSENT and not graph.tensors[t].is_constant)
    return before, behind
