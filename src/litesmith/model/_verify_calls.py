# SPDX-License-Identifier: Apache-2.0
"""Operators that run other subgraphs: what goes in and comes out must fit what those say of themselves."""

from __future__ import annotations

from collections.abc import Iterator

from litesmith.model._graph import Operator, Subgraph, Tensor
from litesmith.model._verify_node import Node


def called_subgraphs(operator: Operator) -> Iterator[int]:
    """Yield the index of each subgraph that an operator runs."""
    if operator.options is None:
        return
    for name, value in operator.options.asdict().items():
        if name.endswith("subgraph_index") or name == "subgraph":
            yield value
        elif name in ("branch_subgraph_indices", "called_computations"):
            yield from value or ()


def calls_fit(node: Node) -> bool:
    """Check a call of subgraphs; return whether the shapes of its outputs are known before it runs."""
    kind, options, operator = node.operator.kind, node.options, node.operator
    if kind == "CALL_ONCE":
        _arity_fits(node, options.init_subgraph_index, 0, 0)
        return True
    if kind == "STABLEHLO_COMPOSITE":
        if not operator.inputs:
            raise node.error("it has no inputs, but LiteRT's composites need one")
        return _branches_fit(node, 0, (options.decomposition_subgraph_index,))
    if kind == "IF":
        _selector_is(node, "bool")
        return _branches_fit(node, 1, (options.then_subgraph_index, options.else_subgraph_index))
    if kind == "STABLEHLO_CASE":
        return _case_fits(node)
    return _loop_fits(node)


def _case_fits(node: Node) -> bool:
    _selector_is(node, "int32")
    branches = tuple(node.options.branch_subgraph_indices or ())
    others = tuple(range(1, len(node.model.subgraphs)))
    if node.subgraph_index or branches != others:  # LiteRT's kernel takes every other subgraph for a branch
        raise node.error(f"its branches {list(branches)} must be all subgraphs but the first, {list(others)}, in order")
    index = node.values(0)
    if index is not None and not 0 <= int(index.ravel()[0]) < len(branches):
        raise node.error(f"takes branch {index.ravel()[0]} of {len(branches)}", input=0)
    return _branches_fit(node, 1, branches)


def _loop_fits(node: Node) -> bool:
    options, operator = node.options, node.operator
    count = len(operator.inputs)
    if len(operator.outputs) != count:
        raise node.error(f"it has {count} inputs and {len(operator.outputs)} outputs; a loop has as many")
    condition, _ = _called(node, options.cond_subgraph_index, count, 1)
    verdict = condition.tensors[condition.outputs[0]]
    certain = condition.outputs[0] not in node.all_uncertain[options.cond_subgraph_index]
    if verdict.dtype != "bool" or (certain and verdict.elements != 1):
        raise node.error(f"the condition of the loop is {verdict.dtype} of shape {list(verdict.shape)}, not one bool")
    _inputs_fit(node, 0, options.cond_subgraph_index)
    known = _branches_fit(node, 0, (options.body_subgraph_index,))
    body = node.model.subgraphs[options.body_subgraph_index]
    for source, target in zip(body.outputs, body.inputs, strict=True):
        before, after = body.tensors[target], body.tensors[source]
        if before.dtype != after.dtype:
            raise node.error(f"its body turns {before.name!r} from {before.dtype} into {after.dtype}")
        if before.shape != after.shape:
            if source not in node.all_uncertain[options.body_subgraph_index] and not _may_change(before):
                shapes = f"from shape {list(before.shape)} into {list(after.shape)}"
                raise node.error(f"its body turns {before.name!r} {shapes}; mark it as changing in shape_signature")
            known = False
    return known


def _selector_is(node: Node, dtype: str) -> None:
    if not node.operator.inputs or node.operator.inputs[0] < 0:
        raise node.error("it has no input that says which subgraph to run")
    selector = node.inputs[0]
    assert selector is not None
    if selector.dtype != dtype or (selector.elements != 1 and node.operator.inputs[0] not in node.uncertain):
        raise node.error(f"is {selector.dtype} of shape {list(selector.shape)}, but must be one {dtype}", input=0)


def _arity_fits(node: Node, target: int, inputs: int, outputs: int) -> Subgraph:
    called = node.model.subgraphs[target]
    if len(called.inputs) != inputs or len(called.outputs) != outputs:
        raise node.error(
            f"it calls subgraph {target} with {inputs} inputs for {outputs} outputs, but that has {len(called.inputs)} "
            f"and {len(called.outputs)}"
        )
    return called


def _called(node: Node, target: int, inputs: int, outputs: int) -> tuple[Subgraph, set[int]]:
    return _arity_fits(node, target, inputs, outputs), node.all_uncertain[target]


def _may_change(tensor: Tensor) -> bool:
    return -1 in (tensor.shape_signature or ())


def _inputs_fit(node: Node, first: int, target: int) -> bool:
    """Return whether the called subgraph gets the shapes that it was checked with."""
    called, known = node.model.subgraphs[target], True
    for offset, inner in enumerate(called.inputs):
        given, expected = node.inputs[first + offset], called.tensors[inner]
        if given is None:
            raise node.error(f"input {first + offset} is absent, but subgraph {target} reads it")
        if given.dtype != expected.dtype:
            raise node.error(f"is {given.dtype}, but subgraph {target} takes {expected.dtype}", input=first + offset)
        if node.operator.inputs[first + offset] in node.uncertain:
            known = False
        elif given.shape != expected.shape:
            if not _may_change(expected):
                shapes = f"has shape {list(given.shape)}, but subgraph {target} takes {list(expected.shape)}"
                raise node.error(shapes, input=first + offset)
            known = False
    return known


def _branches_fit(node: Node, first: int, targets: tuple[int, ...]) -> bool:
    known, shapes = True, set[tuple[tuple[int, ...], ...]]()
    for target in targets:
        called, uncertain = _called(node, target, len(node.operator.inputs) - first, len(node.operator.outputs))
        known &= _inputs_fit(node, first, target)
        for position, inner in enumerate(called.outputs):
            result, said = called.tensors[inner], node.outputs[position]
            known &= inner not in uncertain
            if result.dtype != said.dtype:
                raise node.error(f"is {said.dtype}, but subgraph {target} gives {result.dtype}", output=position)
        shapes.add(tuple(called.tensors[inner].shape for inner in called.outputs))
    if not known or len(shapes) != 1:
        return False
    for position, shape in enumerate(shapes.pop()):
        said = node.outputs[position]
        if said.shape != shape:
            raise node.error(
                f"has shape {list(said.shape)}, but subgraph {targets[0]} gives {list(shape)}", output=position
            )
    return True
