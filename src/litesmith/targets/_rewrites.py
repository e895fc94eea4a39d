# SPDX-License-Identifier: Apache-2.0
"""Safe rewrites of a whole graph: a fixed batch, shapes that are constants, integers at the border, substitutes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from litesmith.model import ABSENT, Model, Operator, Record, Signature, Subgraph, constant
from litesmith.targets._substitutes import Draft, Substitution, cut

_STATEFUL = frozenset({"CALL_ONCE", "ASSIGN_VARIABLE", "CUSTOM", "IF", "WHILE", "VAR_HANDLE", "READ_VARIABLE"})
_BYTES = ("int8", "uint8")


def fix_batch(model: Model) -> Model | None:
    """Return the model with the batch it was stored with as its only one; None where it is fixed already.

    Only the first dimension of inputs may be open: what a length in the middle should be is for a person to say.
    """
    graph = model.main
    opened = [s for i in graph.inputs if (s := graph.tensors[i].shape_signature) is not None and -1 in s]
    if not any(t.shape_signature is not None and -1 in t.shape_signature for t in graph.tensors):
        return None
    if any(-1 in signature[1:] for signature in opened):
        return None
    tensors = tuple(replace(t, shape_signature=None) for t in graph.tensors)
    return model.with_main(replace(graph, tensors=tensors))


def fold_shapes(model: Model) -> Model | None:
    """Return the model with constants for the shapes that RESHAPE computes, where all shapes are fixed."""
    graph = model.main
    if any(t.shape_signature is not None and -1 in t.shape_signature for t in graph.tensors):
        return None
    draft = Draft(graph)
    changed = False
    for op in graph.operators:
        made = graph.tensors[op.outputs[0]] if op.outputs else None
        computed = op.kind == "RESHAPE" and len(op.inputs) > 1 and not graph.tensors[op.inputs[1]].is_constant
        if computed and made is not None and all(d > 0 for d in made.shape):
            shape = draft.add(constant(f"{made.name}/shape", np.array(made.shape, np.int32)))
            op = replace(op, inputs=(op.inputs[0], shape))
            changed = True
        draft.operators.append(op)
    if not changed:
        return None
    made_graph = replace(graph, tensors=tuple(draft.tensors), operators=tuple(draft.operators))
    return model.with_main(_without_dead(made_graph))


def _without_dead(graph: Subgraph) -> Subgraph:
    """Drop the operators whose outputs nothing reads any more."""
    wanted, kept = set(graph.outputs), list[Operator]()
    for op in reversed(graph.operators):
        if op.kind in _STATEFUL or wanted & set(op.outputs):
            wanted.update(op.inputs)
            kept.append(op)
    return replace(graph, operators=tuple(reversed(kept)))


def integer_border(model: Model) -> Model | None:
    """Return the model with integer inputs and outputs, where it quantizes and dequantizes them itself."""
    graph = model.main
    consumers, producers = graph.consumers(), graph.producers()
    moved: dict[int, int] = {}
    gone: set[int] = set()
    for index in graph.inputs:
        readers = consumers.get(index, [])
        op = graph.operators[readers[0]] if len(readers) == 1 and graph.tensors[index].dtype == "float32" else None
        if op is not None and op.kind == "QUANTIZE" and index not in graph.outputs and _is_byte(graph, op.outputs[0]):
            moved[index] = op.outputs[0]
            gone.add(readers[0])
    for index in graph.outputs:
        maker = producers.get(index)
        op = graph.operators[maker] if maker is not None else None
        if maker is None or op is None or op.kind != "DEQUANTIZE" or consumers.get(index):
            continue
        source = op.inputs[0]
        if _is_byte(graph, source) and source in producers and source not in graph.outputs:
            moved[index] = source
            gone.add(maker)
    if not moved or len({*moved.values()}) < len(moved):
        return None
    operators = tuple(op for index, op in enumerate(graph.operators) if index not in gone)
    changed = replace(
        graph,
        operators=operators,
        inputs=tuple(moved.get(i, i) for i in graph.inputs),
        outputs=tuple(moved.get(i, i) for i in graph.outputs),
    )
    signatures = tuple(_moved(s, moved) if s.subgraph_index == 0 else s for s in model.signatures)
    return replace(model.with_main(changed), signatures=signatures)


def _is_byte(graph: Subgraph, index: int) -> bool:
    tensor = graph.tensors[index]
    return tensor.dtype in _BYTES and tensor.is_quantized and not tensor.is_constant


def _moved(signature: Signature, moved: dict[int, int]) -> Signature:
    def entries(pairs: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
        return tuple((name, moved.get(index, index)) for name, index in pairs)

    return replace(signature, inputs=entries(signature.inputs), outputs=entries(signature.outputs))


def merge_slices(model: Model, where: Collection[int]) -> Model | None:
    """Return the model with one STRIDED_SLICE where one follows another, each on an axis of its own, say; else None."""
    graph, changed = model.main, False
    readers = graph.consumers()
    draft = Draft(graph)
    made_by: dict[int, int] = {}  # tensor: place in the draft of the slice that writes it
    for index, op in enumerate(graph.operators):
        first = made_by.get(op.inputs[0]) if op.kind == "STRIDED_SLICE" and index in where else None
        alone = first is not None and len(readers[op.inputs[0]]) == 1 and op.inputs[0] not in graph.outputs
        merged = _merged(draft, draft.operators[first], op) if first is not None and alone else None
        if merged is not None:
            changed = True
        draft.operators.append(merged or op)
        if op.kind == "STRIDED_SLICE":
            made_by[op.outputs[0]] = len(draft.operators) - 1
    if not changed:
        return None
    made = replace(graph, tensors=tuple(draft.tensors), operators=tuple(draft.operators))
    return model.with_main(_without_dead(made))


def _merged(draft: Draft, first: Operator, second: Operator) -> Operator | None:
    """Return the slice that takes what one slice leaves of what another takes; None where the file does not tell."""
    outer, inner = cut(draft.tensors, first), cut(draft.tensors, second)
    if outer is None or inner is None:
        return None
    taken = [whole[part.start : part.stop : part.step] for whole, part in zip(outer, inner, strict=True)]
    name = draft.tensors[second.outputs[0]].name
    bounds = tuple(
        draft.add(constant(f"{name}/{word}", np.array(values, np.int32)))
        for word, values in (
            ("begin", [r.start for r in taken]),
            ("end", [r[-1] + 1 for r in taken]),
            ("step", [r.step for r in taken]),
        )
    )
    return replace(second, inputs=(first.inputs[0], *bounds), options=Record("StridedSliceOptions"))


def substitute(model: Model, substitution: Substitution, where: Collection[int]) -> Model | None:
    """Return the model with some operators replaced; None where none of them can be."""
    graph, changed = model.main, False
    draft = Draft(graph)
    for index, op in enumerate(graph.operators):
        tensors, operators = len(draft.tensors), len(draft.operators)
        whole = ABSENT not in op.inputs
        if index in where and op.kind == substitution.kind and whole and substitution.apply(draft, op):
            changed = True
            continue
        del draft.tensors[tensors:], draft.operators[operators:]
        draft.operators.append(op)
    if not changed:
        return None
    return model.with_main(replace(graph, tensors=tuple(draft.tensors), operators=tuple(draft.operators)))
