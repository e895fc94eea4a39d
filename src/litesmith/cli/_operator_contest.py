# SPDX-License-Identifier: Apache-2.0
"""`litesmith profile --optimize-op`: a kernel of one's own against the stock ones, as people read it."""

from __future__ import annotations

import statistics

from litesmith.cli import _output as out
from litesmith.measure import OperatorContest


def show(result: OperatorContest) -> None:
    """Print a contest for people."""
    before, after = (statistics.median(samples) for samples in (result.before_ms, result.after_ms))
    out.facts(
        [
            ("model", f"{result.model}, {out.plural(result.threads, 'thread')}"),
            ("operator", f"{result.operator} {result.operator_kind} on {', '.join(result.inputs)}"),
        ]
    )
    out.heading("The operator alone, on its real inputs")
    out.table(
        ["kernel", "median µs", "95 % interval", "p95", "max diff", "relative"],
        [
            (
                entry.name,
                f"{1000 * (s := entry.summary).median:.1f}",
                f"{1000 * s.low:.1f}–{1000 * s.high:.1f}",
                f"{1000 * s.p95:.1f}",
                f"{entry.largest_difference:.2g}",
                f"{entry.relative_difference:.2g}",
            )
            for entry in result.contestants
        ],
    )
    out.line(f"differences are to the reference kernel; {result.allowed:.2g} of the largest value is allowed")
    out.heading("In the model")
    whole = result.whole
    out.line(f"{before:.3f} ms before, {after:.3f} ms with it: × {whole.value:.3f} ({whole.low:.3f}–{whole.high:.3f})")
    out.line(f"→ {result.verdict}")
    if not result.complete:
        out.line("! interrupted: the figures are of what was measured until then")
