# SPDX-License-Identifier: Apache-2.0
"""Coverage: what a quantized file really is. What is integer, what stayed float and why, what was added, how large."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from litesmith.model import Model, Operator, Subgraph, cost
from litesmith.optimize._plan import Decision
from litesmith.optimize._rules import XNNPACK_FLOAT, XNNPACK_INT8
from litesmith.result import Result


@dataclass(frozen=True)
class OperatorCoverage:
    """One operator of the float model, and what it became.

    Attributes:
        subgraph, index, kind, name: which one; the name is that of the tensor it writes.
        new_index: where it stands in the new model.
        wanted: the scheme that was asked for.
        scheme: the scheme it has; "float" also where that is one of weights and it has none.
        reason: why it is not as asked for; empty where it is.
    """

    subgraph: int
    index: int
    kind: str
    name: str
    new_index: int
    wanted: str
    scheme: str
    reason: str


@dataclass(frozen=True)
class PassReport:
    """What a recovery pass did.

    Attributes:
        name: of the pass.
        kept: whether the result has it.
        changed: how many constants or ranges it changed.
        before_db, after_db: signal over error of the outputs on some of the samples, without it and with it; None
            where there is none to measure.
        reason: why it is not kept; empty where it is.
    """

    name: str
    kept: bool
    changed: int
    before_db: float | None
    after_db: float | None
    reason: str = ""

    def __str__(self) -> str:
        gain = ""
        if self.before_db is not None and self.after_db is not None:
            gain = f", outputs {self.before_db:.1f} → {self.after_db:.1f} dB ({self.after_db - self.before_db:+.1f})"
        return (
            f"{self.name}: {self.changed} changed{gain}" if self.kept else f"{self.name}: left out{gain}: {self.reason}"
        )


@dataclass(frozen=True)
class Coverage(Result, kind="coverage", schema=1):
    """What became of a model.

    Attributes:
        scheme: the scheme and rules, as text.
        ranges: where the ranges come from: a method, "data-free", or "" where none are needed.
        operators: every operator on reals.
        conversions: conversion operators that were added, by kind.
        unused_rules: rules that matched nothing.
        widened: tensors whose scale had to be wider than their range, so that biases and multipliers fit.
        partitions: pieces that XNNPACK takes the main subgraph in: as predicted, and as LiteRT did it (None: unknown).
        size_bytes: of the constants before and after; ``bytes_by_type`` splits the latter.
        notes: what else one should know.
        recovery: what each recovery pass did, in order.
    """

    scheme: str
    ranges: str
    operators: tuple[OperatorCoverage, ...]
    conversions: dict[str, int]
    unused_rules: tuple[str, ...]
    widened: tuple[str, ...]
    predicted_partitions: int
    actual_partitions: int | None
    size_bytes: tuple[int, int]
    bytes_by_type: dict[str, int]
    notes: tuple[str, ...]
    recovery: tuple[PassReport, ...] = ()

    @property
    def left_float(self) -> tuple[OperatorCoverage, ...]:
        """Operators that were to be quantized and are not."""
        return tuple(op for op in self.operators if op.wanted != "float" and op.reason)

    @property
    def quantized(self) -> tuple[OperatorCoverage, ...]:
        """Operators that are as asked for."""
        return tuple(op for op in self.operators if op.scheme != "float" and not op.reason)

    @property
    def without_weights(self) -> tuple[OperatorCoverage, ...]:
        """Operators that a scheme of weights leaves as they are, as they have none."""
        return tuple(op for op in self.operators if op.wanted != "float" and op.scheme == "float" and not op.reason)

    @property
    def counts(self) -> str:
        """How many operators there are of each kind, as text."""
        counts = f"{len(self.quantized)} quantized, {len(self.left_float)} left float"
        return counts + (f", {len(self.without_weights)} without weights" if self.without_weights else "")

    def table(self) -> str:
        """Return the coverage as text for people."""
        before, after = self.size_bytes
        found = "unknown" if self.actual_partitions is None else str(self.actual_partitions)
        share = f" ({100 * after / before:.1f} %)" if before else ""
        lines = [
            f"scheme      {self.scheme}",
            f"operators   {self.counts}",
            f"conversions {', '.join(f'{n} {kind}' for kind, n in self.conversions.items()) or 'none'}",
            f"constants   {before:,} → {after:,} bytes{share}",
            f"XNNPACK     {self.predicted_partitions} partitions predicted, {found} found",
        ]
        lines += [f"recovery    {report}" for report in self.recovery]
        lines += [f"left float  #{op.index} {op.kind} {op.name!r}: {op.reason}" for op in self.left_float]
        lines += [f"note        {note}" for note in self.notes]
        return "\n".join(lines)


def operator_coverage(
    graph: Subgraph, subgraph: int, decisions: Sequence[Decision], places: Sequence[int]
) -> list[OperatorCoverage]:
    """Return what became of the operators of a subgraph that work on reals."""
    found = []
    for index, (op, decision) in enumerate(zip(graph.operators, decisions, strict=True)):
        if not decision.real:
            continue
        name = graph.tensors[op.outputs[0]].name if op.outputs else ""
        found.append(
            OperatorCoverage(
                subgraph,
                index,
                op.name,
                name,
                places[index],
                decision.wanted.name,
                decision.scheme.name,
                decision.reason,
            )
        )
    return found


def bytes_by_type(model: Model) -> dict[str, int]:
    """Return the bytes of constants by element type, shared ones once."""
    sizes: dict[str, int] = {}
    seen: set[int] = set()
    for graph in model.subgraphs:
        for tensor in graph.tensors:
            if tensor.buffer is not None and id(tensor.buffer) not in seen:
                seen.add(id(tensor.buffer))
                sizes[tensor.dtype] = sizes.get(tensor.dtype, 0) + len(tensor.buffer)
    return dict(sorted(sizes.items(), key=lambda item: -item[1]))


def constant_bytes(model: Model) -> int:
    """Return the bytes of all constants."""
    return cost(model).constant_bytes


def predicted_partitions(graph: Subgraph) -> int:
    """Return in how many pieces XNNPACK will take a subgraph: runs of operators that it has kernels for."""
    return _runs([_xnnpack_takes(graph, op) for op in graph.operators])


def _runs(taken: list[bool]) -> int:
    return sum(now and not before for before, now in zip([False, *taken], taken, strict=False))


def _xnnpack_takes(graph: Subgraph, op: Operator) -> bool:
    types = {graph.tensors[t].dtype for t in (*op.inputs[:1], *op.outputs) if t >= 0}
    if "int16" in types or types & {"int64", "bool", "string"}:
        return False
    if op.kind in ("QUANTIZE", "DEQUANTIZE"):
        return types <= {"float32", "float16", "int8"}
    if op.kind == "DEPTHWISE_CONV_2D" and "float32" in types and graph.tensors[op.inputs[1]].dtype == "int8":
        return False
    return op.kind in (XNNPACK_INT8 if "int8" in types else XNNPACK_FLOAT)
