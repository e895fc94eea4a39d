# SPDX-License-Identifier: Apache-2.0
"""The plan: what each operator will compute in and how its weights are stored, with the reason where it stays float."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from litesmith.model import ABSENT, Model, Operator, Subgraph
from litesmith.optimize._head import pooled_heads
from litesmith.optimize._ranges import Ranges
from litesmith.optimize._rules import (
    CONTROL_FLOW,
    HYBRID_WEIGHTS,
    LSTM_KINDS,
    RULES,
    STORED_WEIGHTS,
    TYPE_BLIND,
    KernelRule,
)
from litesmith.optimize._scheme import RELAXED, SCHEMES, Rule, Scheme, find_scheme

_MASK = 1e6
"""An activation beyond this holds a mask (such as -1e9 for "never"), whose range would leave nothing for the data."""


@dataclass(frozen=True)
class Decision:
    """What becomes of one operator.

    Attributes:
        scheme: what is done.
        wanted: what was asked for.
        reason: why it is not done as asked for; empty where it is, and where a scheme of weights finds none.
        real: whether the operator works on reals at all; integer bookkeeping is neither quantized nor left float.
        forced: a rule asked for this scheme by name or index.
    """

    scheme: Scheme
    wanted: Scheme
    reason: str = ""
    real: bool = True
    forced: bool = False

    def refuse(self, reason: str, scheme: Scheme | None = None) -> Decision:
        """Return the decision to do something else, because of ``reason``."""
        return replace(self, scheme=scheme or SCHEMES["float"], reason=reason)

    def stayed_float(self, reason: str, *, partly: bool) -> Decision:
        """Return the decision after weights were not, or not all, stored smaller: for a reason, or as there are none."""
        return replace(self, scheme=self.scheme if partly else SCHEMES["float"], reason=self.reason or reason)


KnownRange = tuple[float, float]


INT16_HEADROOM = 1.5
"""How much wider than what was seen an int16 range is: half a bit of precision for room that unseen data may need."""


def known_ranges(
    graph: Subgraph, ranges: Ranges | None, subgraph: int, *, domain: str = "int8"
) -> dict[int, KnownRange]:
    """Return the range of each float tensor: as observed, of its values where constant, or of what is moved into it.

    For int8 it is the range that was chosen. int16 has no need to cut tails: there it is all that was seen, and more.
    """
    known: dict[int, KnownRange] = {}
    if ranges is None:
        return known
    for index, tensor in enumerate(graph.tensors):
        entry = ranges.find(index, subgraph=subgraph)
        if entry is not None and tensor.dtype == "float32":
            known[index] = (entry.low, entry.high)
            if domain == "int16":
                seen = min(entry.low, entry.seen_low), max(entry.high, entry.seen_high)
                known[index] = seen[0] * INT16_HEADROOM, seen[1] * INT16_HEADROOM
    for op in graph.operators:
        rule = RULES.get(op.kind)
        if rule is None or not rule.tied:
            continue
        sources = [op.inputs[i] for i in real_inputs(op, rule)]
        found = [known[t] if t in known else constant_range(graph, t) for t in sources]
        bounds = [b for b in found if b is not None]
        if bounds and len(bounds) == len(found):
            merged = min(b[0] for b in bounds), max(b[1] for b in bounds)
            for output in real_outputs(op, rule):
                known.setdefault(output, merged)
    return known


def constant_range(graph: Subgraph, tensor: int) -> KnownRange | None:
    """Return the extremes of a float constant, None where the tensor is none."""
    import numpy as np

    found = graph.tensors[tensor]
    if found.buffer is None or found.dtype != "float32" or found.sparsity is not None:
        return None
    values = found.array()
    finite = values[np.isfinite(values)]
    return (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)


def real_inputs(op: Operator, rule: KernelRule) -> list[int]:
    """Return the positions of the inputs that are quantized like activations."""
    positions = range(len(op.inputs)) if rule.inputs is None else rule.inputs
    return [p for p in positions if p < len(op.inputs) and op.inputs[p] != ABSENT]


def real_outputs(op: Operator, rule: KernelRule) -> list[int]:
    """Return the tensors of the outputs that are real."""
    return list(op.outputs) if rule.outputs is None else [op.outputs[p] for p in rule.outputs]


def decide(
    model: Model,
    subgraph: int,
    scheme: str,
    rules: Sequence[Rule],
    *,
    ranges: Ranges | None,
    float_outputs: bool,
    head: str,
    strict: bool,
    refused: Mapping[int, str],
) -> tuple[list[Decision], set[int]]:
    """Return a decision for each operator of a subgraph, and the positions of the rules that matched something."""
    graph = model.subgraphs[subgraph]
    base = SCHEMES["float"] if scheme == RELAXED else find_scheme(scheme)
    decisions, used = _wanted(model, subgraph, base, rules)
    known = known_ranges(graph, ranges, subgraph)
    heads = pooled_heads(graph) if float_outputs and head != "same" else {}
    for index, op in enumerate(graph.operators):
        decision = decisions[index]
        if not _is_real(graph, op):
            decisions[index] = replace(decision, scheme=SCHEMES["float"], real=False)
        elif index in refused:
            decisions[index] = decision.refuse(refused[index])
        elif decision.scheme.is_static:
            if _is_head(decisions, heads, index):
                decisions[index] = decision.refuse(
                    "output head: stays float, so that close scores do not tie", _head_scheme(head, op)
                )
                continue
            obstacle = _obstacle(graph, op, decision.scheme, known, allow_fragile=strict or decision.forced)
            if obstacle:
                decisions[index] = decision.refuse(obstacle, fallback(op))
    _demote_movers(graph, decisions, float_outputs=float_outputs)
    return decisions, used


def wanted_schemes(model: Model, subgraph: int, scheme: str, rules: Sequence[Rule]) -> list[Scheme]:
    """Return what each operator of a subgraph is asked to be, whether that is possible or not."""
    return [decision.scheme for decision in _wanted(model, subgraph, find_scheme(scheme), rules)[0]]


def _is_head(decisions: Sequence[Decision], heads: Mapping[int, int], index: int) -> bool:
    """Say whether an operator belongs to a head that would be int8, and no rule wants it or the head's layer so."""
    if index not in heads or decisions[index].scheme.domain != "int8":
        return False
    return not (decisions[index].forced or decisions[heads[index]].forced)


def fallback(op: Operator) -> Scheme:
    """Return what an operator that must compute in float becomes: its weights, if it has any, are int8 all the same."""
    return SCHEMES["dynamic" if op.kind in STORED_WEIGHTS or HYBRID_WEIGHTS.get(op.kind) else "float"]


def _head_scheme(head: str, op: Operator) -> Scheme:
    rule = RULES.get(op.kind)
    return SCHEMES[head] if rule is not None and rule.weight is not None else SCHEMES["float"]


def _wanted(model: Model, subgraph: int, base: Scheme, rules: Sequence[Rule]) -> tuple[list[Decision], set[int]]:
    graph = model.subgraphs[subgraph]
    used: set[int] = set()
    decisions = []
    for index, op in enumerate(graph.operators):
        scheme, forced = base, False
        for number, rule in enumerate(rules):
            if rule.matches(graph, index, op, is_main=subgraph == 0):
                scheme, forced = find_scheme(rule.scheme), True
                used.add(number)
        decisions.append(Decision(scheme, scheme, forced=forced))
    return decisions, used


def _is_real(graph: Subgraph, op: Operator) -> bool:
    if op.kind in TYPE_BLIND:
        return False
    touched = [graph.tensors[t] for t in (*op.inputs, *op.outputs) if t != ABSENT]
    return any(t.dtype == "float32" for t in touched)


def _obstacle(
    graph: Subgraph, op: Operator, scheme: Scheme, known: Mapping[int, KnownRange], *, allow_fragile: bool
) -> str:
    """Return why an operator cannot be computed in integers; empty where it can."""
    if op.kind in LSTM_KINDS:
        from litesmith.optimize._lstm import lstm_obstacle

        return lstm_obstacle(graph, op, scheme, known)
    if op.kind == "CUSTOM":
        return f"custom operator {op.custom_code}"
    if op.kind in CONTROL_FLOW:
        return "control flow: the subgraphs it calls stay float"
    rule = RULES.get(op.kind)
    if rule is None:
        return f"LiteRT has no integer kernel for {op.kind}"
    if rule.version(scheme.domain) is None:
        return f"LiteRT has no {scheme.domain} kernel for {op.kind}"
    if rule.fragile and not allow_fragile:
        return f"{op.kind} spans too many orders of magnitude for integers; a rule for it overrides this"
    return _tensor_obstacle(graph, op, rule, known) or _weight_obstacle(graph, op, rule, scheme)


def _tensor_obstacle(graph: Subgraph, op: Operator, rule: KernelRule, known: Mapping[int, KnownRange]) -> str:
    inputs = [op.inputs[p] for p in real_inputs(op, rule)]
    for index in (*inputs, *real_outputs(op, rule)):
        tensor = graph.tensors[index]
        if tensor.dtype != "float32":
            return f"{tensor.name!r} is {tensor.dtype}"
        if tensor.is_variable:
            return f"{tensor.name!r} is a variable"
        if tensor.sparsity is not None:
            return f"{tensor.name!r} is stored sparse"
        if tensor.is_constant:
            continue
        if index not in known:
            return f"no range is known for {tensor.name!r}"
        if max(map(abs, known[index])) >= _MASK:
            return f"{tensor.name!r} reaches {max(known[index], key=abs):.3g}: a mask, or too wide for integers"
    if inputs and all(graph.tensors[i].is_constant for i in inputs):
        return "works on constants only"
    return ""


def _weight_obstacle(graph: Subgraph, op: Operator, rule: KernelRule, scheme: Scheme) -> str:
    if rule.weight is None:
        return ""
    weight = graph.tensors[op.inputs[rule.weight]]
    if weight.buffer is None or weight.dtype != "float32" or weight.sparsity is not None:
        return f"its weights {weight.name!r} are computed at run time or stored in another form"
    if rule.bias is not None and len(op.inputs) > rule.bias and op.inputs[rule.bias] != ABSENT:
        bias = graph.tensors[op.inputs[rule.bias]]
        if bias.buffer is None or bias.dtype != "float32":
            return f"its bias {bias.name!r} is computed at run time"
        if bias.elements != weight.shape[rule.axis]:
            return f"its bias {bias.name!r} has {bias.elements} values for {weight.shape[rule.axis]} channels"
    fused = getattr(op.options, "fused_activation_function", "NONE") if op.options is not None else "NONE"
    if fused not in ("NONE", "RELU", "RELU6", "RELU_N1_TO_1"):
        return f"its fused activation {fused} has no integer form"
    if scheme.weights == "int4" and op.kind not in ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"):
        return f"LiteRT has no {op.kind} with int4 weights"
    return ""


def _demote_movers(graph: Subgraph, decisions: list[Decision], *, float_outputs: bool) -> None:
    """Leave operators that only move data in float where everything around them is float."""
    producers, consumers = graph.producers(), graph.consumers()

    def is_float(index: int) -> bool:
        return not decisions[index].scheme.is_static

    changed = True
    while changed:
        changed = False
        for index, op in enumerate(graph.operators):
            rule = RULES.get(op.kind)
            if is_float(index) or decisions[index].forced or rule is None or not rule.moves:
                continue
            sources = [op.inputs[p] for p in real_inputs(op, rule)]
            made_float = all(
                graph.tensors[t].is_constant or (t in producers and is_float(producers[t])) for t in sources
            )
            outputs = real_outputs(op, rule)
            used_float = all(is_float(user) for t in outputs for user in consumers.get(t, []))
            if made_float and used_float and (float_outputs or not set(outputs) & set(graph.outputs)):
                decisions[index] = decisions[index].refuse("only moves data between float operators")
                changed = True
