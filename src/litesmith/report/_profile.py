# SPDX-License-Identifier: Apache-2.0
"""The page of a profile."""

from __future__ import annotations

from pathlib import Path

from litesmith.measure import Profile
from litesmith.report._machine import machine_rows
from litesmith.report._page import Bars, Page, Section, table
from litesmith.report._plots import timeline


def profile_page(profile: Profile) -> Page:
    """Return the page of a profile: where the time goes, by kind and by operator, and what is odd."""
    top = profile.by_kind()[0] if profile.operators else None
    leader = f"; {top.kind} has {100 * top.mean_us / profile.operators_us:.0f} % of the operators' time" if top else ""
    threads = "1 thread" if profile.threads == 1 else f"{profile.threads} threads"
    return Page(
        title=f"Profile of {Path(profile.model).name}",
        summary=f"One inference takes {profile.unprofiled_us / 1000:.3f} ms with {threads}{leader}.",
        facts=(
            ("model", profile.model),
            ("runs", f"{profile.runs}"),
            ("profiler", f"{100 * profile.overhead:+.1f} % ({profile.unprofiled_us / 1000:.3f} ms without it)"),
            *machine_rows(profile.machine),
        ),
        sections=(
            Section(
                "By kind of operator",
                bars=Bars(
                    "Microseconds of one inference",
                    tuple((k.kind, k.mean_us, f"{k.mean_us:.0f} µs, {100 * k.share:.1f} %") for k in profile.by_kind()),
                ),
                table=table(
                    ["kind", "count", "µs", "share of a profiled run", "MACs"],
                    [
                        (k.kind, k.count, f"{k.mean_us:.1f}", f"{100 * k.share:.1f} %", f"{k.macs:,}")
                        for k in profile.by_kind()
                    ],
                ),
            ),
            Section(
                "The timeline",
                text="The operators one after the other, a line for each kind.",
                figures=(
                    timeline(
                        "One inference",
                        [
                            (f"#{o.index} {o.kind} {o.name}", o.mean_us, o.kind)
                            for o in profile.operators
                            if o.mean_us > 0
                        ],
                    ),
                ),
                data="By operator, hottest first",
            ),
            Section(
                "What is odd",
                text="" if profile.oddities else "Nothing: every operator that matters is on the fast path.",
                table=table(
                    ["what", "what to do", "operators", "share of a profiled run"],
                    [
                        (o.what, o.remedy, ", ".join(map(str, o.operators)), f"{100 * o.share:.1f} %")
                        for o in profile.oddities
                    ],
                    left=3,
                )
                if profile.oddities
                else None,
            ),
            Section(
                "What could be gained",
                text="" if profile.gains else "Little at any single operator.",
                table=table(
                    ["#", "kind", "how", "saves at most"],
                    [(g.operator, g.kind, g.how, f"{g.saves_us:.0f} µs, {100 * g.share:.1f} %") for g in profile.gains],
                    left=3,
                )
                if profile.gains
                else None,
            ),
            Section(
                "By operator, hottest first",
                table=table(
                    [
                        "#",
                        "kind",
                        "name",
                        "kernel",
                        "delegate",
                        "µs",
                        "p95",
                        "share of a profiled run",
                        "GMAC/s",
                        "roof",
                    ],
                    [
                        (
                            o.index,
                            o.kind,
                            o.name,
                            " + ".join(o.kernels),
                            o.delegate,
                            f"{o.mean_us:.1f}",
                            f"{o.p95_us:.1f}",
                            f"{100 * o.share:.1f} %",
                            f"{o.gmacs_per_s:.1f}" if o.macs else "",
                            f"{100 * o.roof:.0f} %" if o.roof is not None else "",
                        )
                        for o in profile.hottest()
                    ],
                    left=5,
                ),
            ),
        ),
    )
