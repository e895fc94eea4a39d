# SPDX-License-Identifier: Apache-2.0
"""Build the quantized model: plan, rewrite, let LiteRT try it, and leave in float what it refuses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from litesmith.errors import OptimizeError
from litesmith.model import Buffer, Metadata, Model, Operator, Signature
from litesmith.optimize._calibrate import entry_points
from litesmith.optimize._check import Failure, first_failure
from litesmith.optimize._coverage import (
    Coverage,
    OperatorCoverage,
    bytes_by_type,
    constant_bytes,
    operator_coverage,
    predicted_partitions,
)
from litesmith.optimize._plan import Decision, decide, fallback
from litesmith.optimize._ranges import Ranges
from litesmith.optimize._request import IO, Request
from litesmith.optimize._rewrite import Rewritten, Settings, rewrite
from litesmith.optimize._scheme import RELAXED
from litesmith.runtime import REDUCED_PRECISION


@dataclass(frozen=True)
class Quantized:
    """The quantized model, what became of each operator, and the ranges that were used."""

    model: Model
    coverage: Coverage
    ranges: Ranges | None


def build(model: Model, request: Request, ranges: Ranges | None, *, check: bool) -> Quantized:
    """Plan and rewrite; where LiteRT refuses an operator, leave that one float and try again."""
    refused: dict[tuple[int, int], str] = {}
    entries = [subgraph for _, subgraph in entry_points(model)]
    notes: list[str] = []
    while True:
        built, planned, done, used_rules = _attempt(model, request, ranges, refused, entries)
        failure = first_failure(built, entries) if check else None
        if failure is None:
            break
        if first_failure(model, entries) is not None:
            notes.append(f"not checked, as LiteRT does not run the float model either: {failure.message}")
            break
        place = _culprit(failure, done.get(failure.subgraph))
        where = failure.subgraph
        if place is None or (where, place) in refused or not _is_quantized(planned[where][place]):
            found = _bisect(model, request, ranges, refused, entries, planned)
            if found is None:
                raise OptimizeError(f"the quantized model does not run in LiteRT: {failure.message}")
            where, place = found
        refused[where, place] = failure.message
    coverage = _coverage(
        model, built, request, ranges, planned, done, used_rules, notes, runs=check and failure is None
    )
    return Quantized(built, coverage, ranges)


def _is_quantized(decision: Decision) -> bool:
    return decision.scheme.name != "float"


def _bisect(
    model: Model,
    request: Request,
    ranges: Ranges | None,
    refused: Mapping[tuple[int, int], str],
    entries: list[int],
    planned: Mapping[int, list[Decision]],
) -> tuple[int, int] | None:
    """Return the first operator with which the model fails when only those before it are quantized as well."""
    candidates = [(s, o) for s, decisions in planned.items() for o, d in enumerate(decisions) if _is_quantized(d)]

    def fails(count: int) -> bool:
        left = dict.fromkeys(candidates[count:], "not tried")
        return first_failure(_attempt(model, request, ranges, {**refused, **left}, entries)[0], entries) is not None

    if not candidates or fails(0) or not fails(len(candidates)):
        return None
    good, bad = 0, len(candidates)
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (good, middle) if fails(middle) else (middle, bad)
    return candidates[bad - 1]


def _attempt(
    model: Model, request: Request, ranges: Ranges | None, refused: Mapping[tuple[int, int], str], entries: list[int]
) -> tuple[Model, dict[int, list[Decision]], dict[int, Rewritten], set[int]]:
    buffers: dict[Any, Buffer] = {}
    planned: dict[int, list[Decision]] = {}
    done: dict[int, Rewritten] = {}
    used_rules: set[int] = set()
    for number, graph in enumerate(model.subgraphs):
        decisions, used = decide(
            model,
            number,
            request.scheme,
            request.rules,
            ranges=ranges,
            float_outputs=request.io == "float" or number not in entries,
            head=request.head,
            strict=request.strict,
            refused={op: reason for (where, op), reason in refused.items() if where == number},
        )
        used_rules |= used
        if number not in entries:
            decisions = [_inner(*pair) for pair in zip(graph.operators, decisions, strict=True)]
        settings = Settings(
            io=IO[request.io] if number in entries else "float32",
            per_channel=request.per_channel,
            weight_method=request.weight_ranges,
            overrides=request.weights or {},
            add_biases=request.add_biases,
            min_elements=request.min_weight_elements,
        )
        done[number] = rewrite(model, number, decisions, ranges, settings, buffers)
        planned[number] = list(done[number].decisions)
    return _permitting(_assembled(model, done), request.scheme), planned, done, used_rules


def _permitting(model: Model, scheme: str) -> Model:
    """Return the model; if it is relaxed or has weights of float16, with the word that less precision will do.

    LiteRT's converter writes the same entry. It says that sums take 32 bits; XNNPACK uses half precision only where they
    take 16.
    """
    halves = any(t.dtype == "float16" and t.is_constant for graph in model.subgraphs for t in graph.tensors)
    if not (halves or scheme == RELAXED) or any(m.name == REDUCED_PRECISION for m in model.metadata):
        return model
    return replace(model, metadata=(*model.metadata, Metadata(REDUCED_PRECISION, Buffer(b"fp16accfp32"))))


def _inner(op: Operator, decision: Decision) -> Decision:
    """Return the decision for an operator inside a loop, a branch or a composite: its activations stay float."""
    if not decision.scheme.is_static:
        return decision
    return decision.refuse("inside a subgraph that control flow calls, where ranges cannot be observed", fallback(op))


def _assembled(model: Model, done: Mapping[int, Rewritten]) -> Model:
    def mapped(signature: Signature) -> Signature:
        outputs = done[signature.subgraph_index].outputs
        return replace(signature, outputs=tuple((name, outputs.get(t, t)) for name, t in signature.outputs))

    return replace(
        model,
        subgraphs=tuple(done[number].graph for number in range(len(model.subgraphs))),
        signatures=tuple(map(mapped, model.signatures)),
        source=None,
    )


def _culprit(failure: Failure, done: Rewritten | None) -> int | None:
    """Return the operator of the float model behind the one LiteRT names: itself, or the next one for a conversion."""
    if failure.operator is None or done is None:
        return None
    return next((i for i, place in enumerate(done.operator_indices) if place >= failure.operator), None)


def _coverage(
    model: Model,
    built: Model,
    request: Request,
    ranges: Ranges | None,
    planned: Mapping[int, list[Decision]],
    done: Mapping[int, Rewritten],
    used_rules: set[int],
    notes: list[str],
    *,
    runs: bool,
) -> Coverage:
    operators: list[OperatorCoverage] = []
    conversions: dict[str, int] = {}
    for number, graph in enumerate(model.subgraphs):
        operators += operator_coverage(graph, number, planned[number], done[number].operator_indices)
        notes += [f"{count} {said}" for said, count in done[number].composed.items()]
        for kind, count in done[number].conversions.items():
            conversions[kind] = conversions.get(kind, 0) + count
    if ranges is not None and ranges.data_free:
        notes.append("no data was given: the ranges come from bounds of activations and propagation")
    if request.scheme == RELAXED:
        notes.append(
            "the file now says that less precision will do; kernels that can use this round to 12 bits or more"
        )
    return Coverage(
        scheme=" + ".join([request.scheme, *map(str, request.rules)]),
        ranges="" if ranges is None else ranges.method,
        operators=tuple(operators),
        conversions=conversions,
        unused_rules=tuple(str(rule) for i, rule in enumerate(request.rules) if i not in used_rules),
        widened=tuple(sorted({name for result in done.values() for name in result.widened})),
        predicted_partitions=predicted_partitions(built.main),
        actual_partitions=_actual_partitions(built) if runs else None,
        size_bytes=(constant_bytes(model), constant_bytes(built)),
        bytes_by_type=bytes_by_type(built),
        notes=tuple(notes),
    )


def _actual_partitions(model: Model) -> int:
    from litesmith.runtime import partitions

    return sum(piece.delegate == "XNNPACK" for piece in partitions(model, kernels="xnnpack", verify=False))
