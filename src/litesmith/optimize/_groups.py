# SPDX-License-Identifier: Apache-2.0
"""Scales and zero points for every activation, such that what the kernels demand of them holds.

Tensors that a kernel wants on one scale form a group (union-find). A tensor that cannot join, because its own scale is
fixed or because it would lose too much precision elsewhere, enters the operator as a private, requantized copy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from litesmith.model import Subgraph
from litesmith.optimize._arithmetic import SMALLEST_SCALE, Affine, affine
from litesmith.optimize._plan import Decision, KnownRange, constant_range, real_inputs, real_outputs
from litesmith.optimize._rules import RULES, KernelRule

_COARSER = 1.5  # how much wider a tensor's range may become before it is rather requantized for one reader


class Node(NamedTuple):
    """A tensor in one type; ``owner`` is -1, or the operator that a private copy or a constant is for."""

    tensor: int
    domain: str
    owner: int = -1


class Groups:
    """Which nodes share a scale, and which scale that is."""

    def __init__(
        self,
        graph: Subgraph,
        decisions: Sequence[Decision],
        known: Mapping[int, KnownRange],
        wide: Mapping[int, KnownRange],
        *,
        io: str,
    ) -> None:
        self._graph, self._known = graph, {"int8": known, "int16": wide}
        self._parent: dict[Node, Node] = {}
        self._fixed: dict[Node, tuple[float, int]] = {}
        self._range: dict[Node, KnownRange] = {}
        self._smallest: dict[Node, float] = {}
        self.inputs: dict[tuple[int, int], Node] = {}
        self.widened: set[int] = set()
        self._consumers = graph.consumers()
        if io != "float32":
            for tensor in (*graph.inputs, *graph.outputs):
                if tensor in known and graph.tensors[tensor].dtype == "float32":
                    self._find(Node(tensor, io))
        for index, decision in enumerate(decisions):
            rule = RULES.get(graph.operators[index].kind)
            if decision.scheme.is_static and rule is not None:
                self._add(index, decision.scheme.domain, rule)
        for index, decision in enumerate(decisions):
            rule = RULES.get(graph.operators[index].kind)
            if decision.scheme.is_static and rule is not None and not rule.tied:
                self._guard(index, decision.scheme.domain, rule)

    def parameters(self, node: Node) -> Affine:
        """Return the scale and zero point of a node."""
        root = self._find(node)
        fixed = self._fixed.get(root)
        if fixed is not None:
            return Affine(node.domain, *fixed)
        low, high = self._range.get(root, (0.0, 0.0))
        return affine(low, high, node.domain, smallest_scale=self._smallest.get(root, SMALLEST_SCALE))

    def require_scale(self, node: Node, smallest: float) -> None:
        """Widen the group of a node until its scale is at least ``smallest``."""
        root = self._find(node)
        if root not in self._fixed and self.parameters(node).scale < smallest:
            self._smallest[root] = smallest
            self.widened.add(node.tensor)

    def _find(self, node: Node) -> Node:
        if node not in self._parent:
            self._parent[node] = node
            found = self._known[node.domain].get(node.tensor) or constant_range(self._graph, node.tensor)
            if found is not None:
                self._range[node] = found
        while self._parent[node] != node:
            self._parent[node] = self._parent[self._parent[node]]
            node = self._parent[node]
        return node

    def _unite(self, first: Node, second: Node) -> bool:
        a, b = self._find(first), self._find(second)
        if a == b:
            return True
        if a in self._fixed and b in self._fixed and self._fixed[a] != self._fixed[b]:
            return False
        self._parent[b] = a
        ranges = [self._range[n] for n in (a, b) if n in self._range]
        if ranges:
            self._range[a] = min(r[0] for r in ranges), max(r[1] for r in ranges)
        if b in self._fixed:
            self._fixed[a] = self._fixed[b]
        return True

    def _add(self, index: int, domain: str, rule: KernelRule) -> None:
        op = self._graph.operators[index]
        outputs = [Node(t, domain) for t in real_outputs(op, rule)]
        fixed = rule.fixed(domain)
        for node in outputs:
            root = self._find(node)
            if fixed is not None:
                self._fixed[root] = fixed
        positions = real_inputs(op, rule)
        for position in positions:
            tensor = op.inputs[position]
            is_constant = self._graph.tensors[tensor].is_constant
            self.inputs[index, position] = Node(tensor, domain, index if is_constant else -1)
        if rule.tied:
            self._tie(index, rule, positions, outputs)

    def _tie(self, index: int, rule: KernelRule, positions: list[int], outputs: list[Node]) -> None:
        nodes = {p: self.inputs[index, p] for p in positions}
        for other in outputs[1:]:
            self._unite(outputs[0], other)
        moving = [p for p in positions if nodes[p].owner < 0]
        fixed = {self._fixed.get(self._find(nodes[p])) for p in moving}
        one_source = len(moving) == 1
        for position in moving:
            node = nodes[position]
            joins = one_source or len(fixed) == 1 or self._find(node) not in self._fixed
            if joins and not one_source and self._loses_precision(node, outputs[0]):
                joins = False
            if not (joins and self._unite(outputs[0], node)):
                private = Node(node.tensor, node.domain, index)
                self.inputs[index, position] = private
                self._unite(outputs[0], private)
        for position in positions:
            node = nodes[position]
            if node.owner >= 0:  # a constant takes the scale; it widens the range unless saturating changes nothing
                if rule.limits:
                    self._parent.setdefault(node, node)
                self._unite(outputs[0], node)

    def _loses_precision(self, node: Node, target: Node) -> bool:
        """Say whether a tensor with other readers would become much coarser on the scale of the operator's output."""
        if len(self._consumers.get(node.tensor, [])) < 2:
            return False
        own, joint = self._range.get(self._find(node)), self._range.get(self._find(target))
        if own is None or joint is None:
            return False
        return max(joint[1], 0) - min(joint[0], 0) > _COARSER * (max(own[1], 0) - min(own[0], 0))

    def _guard(self, index: int, domain: str, rule: KernelRule) -> None:
        """Keep the multipliers of an operator inside what kernels can represent, by a coarser scale of its output."""
        op = self._graph.operators[index]
        if rule.fixed(domain) is not None:
            return
        scales = [self.parameters(self.inputs[index, p]).scale for p in real_inputs(op, rule)]
        if not scales:
            return
        if rule.weight is not None:
            low, high = constant_range(self._graph, op.inputs[rule.weight]) or (0.0, 0.0)
            needed = scales[0] * (max(-low, high) or 1.0) / 7 / 128  # an all-zero layer has the scale of 1
        elif op.kind in ("MUL", "BATCH_MATMUL", "SQUARE", "SQUARED_DIFFERENCE"):
            needed = scales[0] * scales[-1] / 128
        else:
            needed = max(scales) / 128
        for tensor in real_outputs(op, rule):
            self.require_scale(Node(tensor, domain), needed)
