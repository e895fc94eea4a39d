# SPDX-License-Identifier: Apache-2.0
"""The page of a choice: the two trade-off plots, and every variant."""

from __future__ import annotations

from litesmith.report._drawing import Drawing
from litesmith.report._machine import machine_rows
from litesmith.report._page import Page, Section, Table
from litesmith.report._plots import Mark, scatter
from litesmith.tune import Choice, Variant


def choose_page(result: Choice) -> Page:
    """Return the page of a choice."""
    pick = None if result.pick is None else result.variants[result.pick]
    known = [(n, v) for n, v in enumerate(result.variants) if v.measured is not None]
    figures: list[Drawing] = []
    if known:
        size_bound = None if result.max_size_bytes is None else result.max_size_bytes / 1e6
        options = {"y_label": f"{result.metric}, {result.dataset}", "y_bound": result.min_accuracy}
        options["more_is_better"] = result.higher_is_better
        figures = [
            scatter(
                "Model size vs accuracy",
                [_mark(n, v, _size_mb(v), result) for n, v in known],
                x_label="size of the file in MB",
                x_bound=size_bound,
                **options,  # type: ignore[arg-type]
            ),
            scatter(
                "Accuracy vs latency",
                [_mark(n, v, _latency_ms(v), result) for n, v in known],
                x_label=f"latency here in ms, {result.threads} thread(s)",
                x_bound=result.max_latency_ms,
                **options,  # type: ignore[arg-type]
            ),
        ]
    summary = f"{result.reasons[0]}."
    if pick is not None:
        accuracy = f"{pick.accuracy:g} {result.metric} on {result.dataset}, as published"
        summary = f"Take {pick.name} as {pick.precision}: {accuracy}; {result.reasons[1]}."
    return Page(
        title=f"Which model for {result.task}",
        summary=summary[0].upper() + summary[1:],
        facts=(
            ("bounds", _bounds(result)),
            ("next", result.command),
            *machine_rows(result.machine),
        ),
        sections=(
            Section(
                "The trade-off",
                text="★ the pick, ● the Pareto front, ○ the others. Accuracy is as published; the rest was measured here.",
                figures=tuple(figures),
                filters=tuple(dict.fromkeys(tag for _, v in known for tag in _tags(v))),
                data="Every variant",
            ),
            Section("Why", items=result.reasons),
            Section("Every variant", table=_table(result)),
        ),
    )


def _mark(number: int, variant: Variant, x: float, result: Choice) -> Mark:
    role = "winner" if number == result.pick else "front" if variant.front else "dot"
    label = (
        f"{variant.name} as {variant.precision}\n{variant.accuracy:g} {result.metric}\n{_latency_ms(variant):.2f} ms, "
        f"{_size_mb(variant):.1f} MB"
    )
    name = f"{variant.precision} {variant.name}"  # in this order, as the plot cuts the ends of long names
    return Mark(x, variant.accuracy, name, label, role, f"variant-{number}", _tags(variant))


def _tags(variant: Variant) -> tuple[str, ...]:
    return variant.precision, variant.architecture


def _size_mb(variant: Variant) -> float:
    return 0.0 if variant.measured is None else variant.measured.size_bytes / 1e6


def _latency_ms(variant: Variant) -> float:
    return 0.0 if variant.measured is None else variant.measured.latency_ms


def _bounds(result: Choice) -> str:
    words = [] if result.min_accuracy is None else [f"accuracy ≥ {result.min_accuracy:g}"]
    words += [] if result.max_latency_ms is None else [f"latency ≤ {result.max_latency_ms:g} ms"]
    words += [] if result.max_size_bytes is None else [f"size ≤ {result.max_size_bytes / 1e6:g} MB"]
    return ", ".join(words) or "none"


def _table(result: Choice) -> Table:
    rows = []
    for number, v in enumerate(result.variants):
        m = v.measured
        sign = "★ pick" if number == result.pick else "● front" if v.front else ""
        rows.append(
            (
                v.name,
                v.precision,
                sign,
                v.reason,
                f"{v.accuracy:g}",
                "" if m is None else f"{m.latency_ms:.2f}",
                "" if m is None else f"{m.size_bytes / 1e6:.2f} MB",
                "" if m is None else f"{m.memory_bytes / 1e6:.1f} MB",
                v.source,
            )
        )
    return Table(
        ("variant", "precision", "", "out of bounds", "accuracy", "ms", "size", "memory", "source of the accuracy"),
        tuple(rows),
        left=4,
        ids=tuple(f"variant-{n}" for n in range(len(rows))),
        tags=tuple(_tags(v) for v in result.variants),
    )
