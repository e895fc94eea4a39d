# SPDX-License-Identifier: Apache-2.0
"""Quantize a model: plan, rewrite, check with LiteRT, and say what was done."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from litesmith.errors import OptimizeError, SessionError, UsageError
from litesmith.model import Buffer, Model, Operator, Signature
from litesmith.optimize._calibrate import DEFAULT_METHOD, calibrate, entry_points
from litesmith.optimize._check import Failure, first_failure
from litesmith.optimize._coverage import (
    Coverage,
    OperatorCoverage,
    bytes_by_type,
    constant_bytes,
    operator_coverage,
    predicted_partitions,
)
from litesmith.optimize._data_free import data_free_ranges
from litesmith.optimize._plan import Decision, decide, fallback
from litesmith.optimize._ranges import Ranges
from litesmith.optimize._rewrite import Rewritten, Settings, rewrite
from litesmith.optimize._run import Data
from litesmith.optimize._scheme import Rule, find_scheme
from litesmith.optimize._weights import Overrides

RECOVERY_MODULES = {
    "equalize": "litesmith.optimize._equalize",
    "bias": "litesmith.optimize._bias",
}
"""Accuracy recovery passes by name; see ``quantize`` for what each module must offer."""
DEFAULT_RECOVERY = ("equalize", "bias")
_IO = {"float": "float32", "int8": "int8", "int16": "int16"}
_HEADS = ("auto", "same", "float", "dynamic", "weights8")


@dataclass(frozen=True)
class Quantized:
    """The quantized model, what became of each operator, and the ranges that were used."""

    model: Model
    coverage: Coverage
    ranges: Ranges | None


@dataclass(frozen=True, eq=False)
class Request:
    """Everything that a quantization was asked for, as a recovery pass sees it."""

    scheme: str
    rules: tuple[Rule, ...]
    io: str
    per_channel: bool
    weight_ranges: str
    method: str
    samples: int | None
    head: str
    strict: bool
    min_weight_elements: int
    recover: tuple[str, ...] = ()
    weights: Overrides | None = None


def quantize(
    model: Model,
    *,
    scheme: str = "int8",
    data: Data | None = None,
    ranges: Ranges | None = None,
    rules: Sequence[Rule | str] = (),
    io: str = "float",
    per_channel: bool = True,
    method: str = DEFAULT_METHOD,
    samples: int | None = None,
    weight_ranges: str = "minmax",
    head: str = "auto",
    min_weight_elements: int | None = None,
    recover: Sequence[str] | None = None,
    weights: Overrides | None = None,
    strict: bool = False,
    allow_unused_rules: bool = False,
    check: bool = True,
) -> Quantized:
    """Return a model in another number format, with a report of what became of each operator.

    Tensor i of the float model is tensor i of the quantized one, in the type in which its producer writes it; what
    is added comes behind. So recovery passes and diagnosis compare tensors by index.

    Args:
        model: a float model; ``dequantize`` makes one of a quantized model.
        scheme: "int8", "int16x8", "int8w4", "dynamic", "dynamic4", "float16", "weights8", "weights4",
            "weights4-block32" (64, 128, 256), or "float", which with rules quantizes only what they match.
        data: samples for calibration, and for recovery passes that need them.
        ranges: of the activations, where they are known already; with neither data nor ranges, integer schemes take
            data-free ranges and say so.
        rules: other schemes for single operators, as Rule or ``scheme:match``; later ones win.
        io: the type of the model's inputs and outputs: "float", "int8" or "int16".
        per_channel: whether weights have a scale for each output channel.
        method: of the calibration, see ``calibrate``.
        samples: how many the calibration takes at most.
        weight_ranges: "minmax", "mse" or "octav".
        head: the scheme of the last layer, whose int8 results would tie: "auto" keeps its results float where outputs
            are float and ``strict`` is off; "same" treats it like the rest; else a scheme with float activations.
        min_weight_elements: smaller weights stay float in schemes with float activations; by default 1024 for
            dynamic schemes, which quantize the input each time, and 0 for the others.
        recover: accuracy recovery passes by name, in order; by default ``DEFAULT_RECOVERY`` for 8-bit activations
            that are calibrated on data, none otherwise. A module of ``RECOVERY_MODULES`` has a ``STAGE``:
            "model": ``apply(model, request, ranges, data) -> Model`` before calibration, same structure (``ranges``
            is None there unless given); "weights": ``apply(model, request, ranges, data) -> Overrides``, weights
            already quantized by (subgraph, tensor); "result": ``apply(model, quantized, request, data) -> Model``,
            which adjusts the quantized model, such as its biases: every layer then has one.
        weights: weights already quantized, by (subgraph, tensor) of the float weights; see ``WeightOverride``.
        strict: raise where anything that was to be quantized stays float.
        allow_unused_rules: do not raise where a rule matches nothing; the report has it.
        check: compile and run the result in LiteRT, with and without XNNPACK; an operator that it refuses becomes
            float again, with LiteRT's words as the reason.

    Raises:
        OptimizeError: the model is quantized already, a rule matches nothing, or ``strict`` is not met.
    """
    if recover is None and data is not None and ranges is None and scheme in ("int8", "int8w4"):
        return _with_default_recovery(
            model,
            check=check,
            scheme=scheme,
            data=data,
            rules=rules,
            io=io,
            per_channel=per_channel,
            method=method,
            samples=samples,
            weight_ranges=weight_ranges,
            head=head,
            min_weight_elements=min_weight_elements,
            weights=weights,
            strict=strict,
            allow_unused_rules=allow_unused_rules,
        )
    request = _request(
        scheme,
        rules,
        io,
        per_channel,
        weight_ranges,
        method,
        samples,
        head,
        strict,
        min_weight_elements,
        recover or (),
        weights,
    )
    refuse_quantized(model)
    source = model
    for apply in _passes(request, "model"):
        source = apply(source, request, ranges, data)
    used = ranges if ranges is not None and source is model else None
    if used is None and _needs_ranges(request):
        used = data_free_ranges(source) if data is None else calibrate(source, data, method=method, samples=samples)
    overrides: dict[tuple[int, int], Any] = dict(weights or {})
    for apply in _passes(request, "weights"):
        overrides.update(apply(source, request, used, data))
    result = _build(source, replace(request, weights=overrides), used, check=check)
    _complain(result.coverage, strict=strict, allow_unused_rules=allow_unused_rules)
    for apply in _passes(request, "result"):
        result = replace(result, model=apply(source, result, request, data))
    return result


def _with_default_recovery(model: Model, *, check: bool, **options: Any) -> Quantized:
    """Quantize with the default passes; where LiteRT does not run what they make of a model, without, and say so."""
    refuse_quantized(model)
    entries = [subgraph for _, subgraph in entry_points(model)]
    try:
        result = quantize(model, recover=DEFAULT_RECOVERY, check=check, **options)
        failure = first_failure(result.model, entries) if check else None
        reason = "" if failure is None else failure.message
    except SessionError as error:
        result, reason = None, str(error)
    if result is not None and (not reason or first_failure(model, entries) is not None):
        return result
    plain = quantize(model, recover=(), check=check, **options)
    note = f"without recovery of accuracy, as LiteRT does not run the recovered model: {reason}"
    return replace(plain, coverage=replace(plain.coverage, notes=(*plain.coverage.notes, note)))


def _request(
    scheme: str,
    rules: Sequence[Rule | str],
    io: str,
    per_channel: bool,
    weight_ranges: str,
    method: str,
    samples: int | None,
    head: str,
    strict: bool,
    min_weight_elements: int | None,
    recover: Sequence[str],
    weights: Overrides | None,
) -> Request:
    base = find_scheme(scheme)
    if io not in _IO:
        raise UsageError(f"inputs and outputs cannot be {io!r}; choose one of {', '.join(_IO)}")
    if head not in _HEADS:
        raise UsageError(f"the head cannot be {head!r}; choose one of {', '.join(_HEADS)}")
    unknown = [name for name in recover if name not in RECOVERY_MODULES]
    if unknown:
        raise UsageError(f"there is no recovery pass {unknown[0]!r}; choose from {', '.join(RECOVERY_MODULES)}")
    parsed = tuple(rule if isinstance(rule, Rule) else Rule.parse(rule) for rule in rules)
    if head == "auto":
        head = "same" if strict or io != "float" else "dynamic"
    least = (1024 if base.hybrid else 0) if min_weight_elements is None else min_weight_elements
    return Request(
        scheme, parsed, io, per_channel, weight_ranges, method, samples, head, strict, least, tuple(recover), weights
    )


def _needs_ranges(request: Request) -> bool:
    names = [request.scheme, *(rule.scheme for rule in request.rules)]
    return any(find_scheme(name).is_static for name in names)


def _passes(request: Request, stage: str) -> list[Any]:
    modules = [importlib.import_module(RECOVERY_MODULES[name]) for name in request.recover]
    return [module.apply for module in modules if stage == module.STAGE]


def refuse_quantized(model: Model) -> None:
    """Raise where a model is quantized already."""
    for graph in model.subgraphs:
        for tensor in graph.tensors:
            half = tensor.dtype in ("float16", "bfloat16") and tensor.is_constant
            if half or (tensor.is_quantized and tensor.dtype in ("int8", "uint8", "int16", "int4", "int2", "int32")):
                raise OptimizeError(
                    f"the model is quantized already: tensor {tensor.name!r} is {tensor.dtype}; give the float model, "
                    "or make one of it with dequantize(model) (--dequantize)"
                )


def _build(model: Model, request: Request, ranges: Ranges | None, *, check: bool) -> Quantized:
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
    coverage = _coverage(model, built, request, ranges, planned, done, used_rules, notes, check=check)
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
            io=_IO[request.io] if number in entries else "float32",
            per_channel=request.per_channel,
            weight_method=request.weight_ranges,
            overrides=request.weights or {},
            add_biases=bool(_passes(request, "result")),
            min_elements=request.min_weight_elements,
        )
        planned[number] = decisions
        done[number] = rewrite(model, number, decisions, ranges, settings, buffers)
    return _assembled(model, done), planned, done, used_rules


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
    check: bool,
) -> Coverage:
    operators: list[OperatorCoverage] = []
    conversions: dict[str, int] = {}
    for number, graph in enumerate(model.subgraphs):
        operators += operator_coverage(graph, number, planned[number], done[number].operator_indices)
        for kind, count in done[number].conversions.items():
            conversions[kind] = conversions.get(kind, 0) + count
    if ranges is not None and ranges.data_free and _needs_ranges(request):
        notes.append("no data was given: the ranges come from bounds of activations and propagation")
    return Coverage(
        scheme=" + ".join([request.scheme, *map(str, request.rules)]),
        ranges="" if ranges is None else ranges.method,
        operators=tuple(operators),
        conversions=conversions,
        unused_rules=tuple(str(rule) for i, rule in enumerate(request.rules) if i not in used_rules),
        widened=tuple(sorted({name for result in done.values() for name in result.widened})),
        predicted_partitions=predicted_partitions(built.main),
        actual_partitions=_actual_partitions(built) if check and not notes[:1] else None,
        size_bytes=(constant_bytes(model), constant_bytes(built)),
        bytes_by_type=bytes_by_type(built),
        notes=tuple(notes),
    )


def _actual_partitions(model: Model) -> int:
    from litesmith.runtime import partitions

    return sum(piece.delegate is not None for piece in partitions(model, verify=False))


def _complain(coverage: Coverage, *, strict: bool, allow_unused_rules: bool) -> None:
    if coverage.unused_rules and not allow_unused_rules:
        raise OptimizeError(
            f"the rule {coverage.unused_rules[0]!r} matches no operator; correct it, or allow unused rules"
        )
    if strict and coverage.left_float:
        first = coverage.left_float[0]
        raise OptimizeError(
            f"{len(coverage.left_float)} operators would stay float, first #{first.index} {first.kind} {first.name!r}: "
            f"{first.reason}; drop strict, or change the model"
        )
