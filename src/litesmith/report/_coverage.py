# SPDX-License-Identifier: Apache-2.0
"""What quantization made of a model: as a page, and as a section of the page of a search."""

from __future__ import annotations

from collections import Counter

from litesmith.optimize import Coverage
from litesmith.report._layers import decibels
from litesmith.report._page import Bars, Page, Section, Table, table


def coverage_page(coverage: Coverage) -> Page:
    """Return the page of a coverage: what is quantized, what stayed float and why, what was added, how large it is."""
    before, after = coverage.size_bytes
    smaller = f"; the constants go from {_size(before)} to {_size(after)}" if before else ""
    widened = [("wider scales", ", ".join(coverage.widened))] if coverage.widened else []
    unused = [("rules that match nothing", ", ".join(coverage.unused_rules))] if coverage.unused_rules else []
    recovery = [_recovery(coverage)] if coverage.recovery else []
    notes = [Section("Notes", items=coverage.notes)] if coverage.notes else []
    return Page(
        title=f"What {coverage.scheme} made of the model",
        summary=f"Of {len(coverage.operators)} operators: {coverage.counts}{smaller}.",
        facts=(
            ("scheme", coverage.scheme),
            *([("ranges", coverage.ranges)] if coverage.ranges else []),
            ("conversions added", _conversions(coverage)),
            ("XNNPACK", _partitions(coverage)),
            *widened,
            *unused,
        ),
        sections=(
            _kinds("What is quantized, and what stayed float", coverage),
            *recovery,
            _sizes(coverage),
            *notes,
            _operators(coverage),
        ),
    )


def coverage_section(coverage: Coverage) -> Section:
    """Return a coverage as one section."""
    return _kinds(
        "Coverage: what is quantized, and what stayed float",
        coverage,
        items=(
            f"Conversions added: {_conversions(coverage)}",
            f"XNNPACK: {_partitions(coverage)}",
            *(f"Recovery of accuracy, {report}" for report in coverage.recovery),
            *coverage.notes,
        ),
    )


def _kinds(title: str, coverage: Coverage, items: tuple[str, ...] = ()) -> Section:
    """Return how many operators of each kind became what, those that are not as asked for first."""
    found = Counter((op.kind, op.scheme, op.reason) for op in coverage.operators)
    order = sorted(found.items(), key=lambda item: (not item[0][2], -item[1], item[0]))
    rows = [(kind, scheme, reason, count) for (kind, scheme, reason), count in order]
    rest = "" if coverage.left_float else " Every operator is as asked for."
    return Section(
        title,
        text=f"{coverage.scheme}: {coverage.counts}.{rest}",
        items=items,
        table=table(["kind", "is", "why it is not as asked for", "operators"], rows, left=3),
    )


def _recovery(coverage: Coverage) -> Section:
    rows = [
        (p.name, "kept" if p.kept else "left out", p.reason, p.changed, decibels(p.before_db), decibels(p.after_db))
        for p in coverage.recovery
    ]
    return Section(
        "Recovery of accuracy",
        text="Signal over error of the outputs on some of the samples, without each pass and with it.",
        table=table(["pass", "", "why not", "changed", "dB before", "dB after"], rows, left=3),
    )


def _sizes(coverage: Coverage) -> Section:
    total = sum(coverage.bytes_by_type.values()) or 1
    sizes = [(kind, size, f"{100 * size / total:.1f} %") for kind, size in coverage.bytes_by_type.items()]
    return Section(
        "Constants by type",
        bars=Bars("Bytes of constants", tuple((kind, size, _size(size)) for kind, size, _ in sizes)),
        table=table(["type", "bytes", "share"], [(kind, f"{size:,}", share) for kind, size, share in sizes]),
    )


def _operators(coverage: Coverage) -> Section:
    rows = [
        (op.index, op.kind, op.name, op.wanted, op.scheme, op.reason, op.new_index, op.subgraph)
        for op in coverage.operators
    ]
    grid: Table = table(["#", "kind", "name", "asked for", "is", "why", "new #", "subgraph"], rows, left=6)
    return Section("Every operator", text="Numbers are those of the float model, then of the new one.", table=grid)


def _conversions(coverage: Coverage) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in coverage.conversions.items()) or "none"


def _partitions(coverage: Coverage) -> str:
    found = "not known" if coverage.actual_partitions is None else str(coverage.actual_partitions)
    return f"partitions: {coverage.predicted_partitions} predicted, {found} found"


def _size(size: int) -> str:
    return f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{size / 1000:.1f} kB"
