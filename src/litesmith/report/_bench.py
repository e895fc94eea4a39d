# SPDX-License-Identifier: Apache-2.0
"""The page of latencies."""

from __future__ import annotations

import numpy as np

from litesmith.measure import Bench, Latency
from litesmith.report._machine import machine_rows
from litesmith.report._page import Page, Section, table
from litesmith.report._plots import spreads


def bench_page(result: Bench) -> Page:
    """Return the page of a bench: the distribution of each configuration, its figures, and what makes them unsure."""
    medians = [(latency.summary.median, latency.configuration.label) for latency in result.latencies]
    best, name = min(medians)
    worst = max(medians)[0]
    lead = f"; the slowest takes {worst / best:.2f} times as long" if len(medians) > 1 else ""
    doubts = [f"{x.configuration.label}: {doubt}" for x in result.latencies for doubt in x.doubts()]
    return Page(
        title="Latency",
        summary=f"{name} takes {best:.3f} ms{lead}.",
        facts=(
            ("inputs", result.inputs),
            *machine_rows(result.machine),
            ("command", " ".join(result.command)),
        ),
        sections=(
            Section(
                "How long a run takes",
                text="The box holds the middle half of the runs, the bar is the median, the line ends at one run in 20.",
                figures=(
                    spreads(
                        "Latency of each configuration",
                        [(x.configuration.label, _five(x)) for x in result.latencies],
                        x_label="latency in ms",
                    ),
                ),
                table=table(
                    [
                        "configuration",
                        "median ms",
                        "interval",
                        "p95",
                        "p99",
                        "first",
                        "compile ms",
                        "size",
                        "memory",
                        "runs",
                    ],
                    [_row(x) for x in result.latencies],
                ),
            ),
            Section(
                "What makes it unsure",
                text="" if doubts else "Nothing: the figures are stable.",
                items=tuple(doubts),
            ),
        ),
    )


def _five(latency: Latency) -> tuple[float, float, float, float, float]:
    low, q1, median, q3, high = np.quantile(latency.samples_ms, [0, 0.25, 0.5, 0.75, 0.95])
    return float(low), float(q1), float(median), float(q3), float(high)


def _row(latency: Latency) -> tuple[str, ...]:
    s = latency.summary
    return (
        latency.configuration.label,
        f"{s.median:.3f}",
        f"{s.low:.3f} – {s.high:.3f}",
        f"{s.p95:.3f}",
        f"{s.p99:.3f}",
        f"{latency.first_ms:.3f}",
        f"{latency.compile_ms:.1f}",
        f"{latency.size_bytes / 1000:.1f} kB",
        "" if latency.memory is None else f"{latency.memory.model_bytes / 1e6:.1f} MB",
        str(s.count),
    )
