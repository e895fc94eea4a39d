# SPDX-License-Identifier: Apache-2.0
"""`litesmith demo`: the whole story on the bundled sample."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from litesmith.cli import _output as out
from litesmith.samples._demo import Demo, demo


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("demo")(command)


def command(
    folder: Annotated[Path, typer.Option(help="Where the models and the page go.")] = Path("litesmith-demo"),
    seconds: Annotated[float, typer.Option(help="Time to measure each model for.")] = 1.0,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Tell the whole story on the bundled sample: look, score, time, shrink, prove; and leave a page to open.

    Example: `litesmith demo`
    """
    result = demo(folder, seconds=seconds)
    if json:
        out.json(result)
    else:
        show(result)


def show(result: Demo) -> None:
    """Print the story in a table, and where the page is."""
    first = result.candidates[0].comparison
    score = result.float_score
    rows: list[tuple[object, ...]] = [
        (
            "float",
            f"{100 * score.value:.2f} %",
            "",
            f"{first.change('latency').before:.3f}",
            "",
            out.bytes_text(first.change("size").before),
        )
    ]
    for candidate in result.candidates:
        latency, drop = candidate.comparison.change("latency"), candidate.evaluation.drop
        rows.append(
            (
                candidate.scheme,
                f"{100 * candidate.evaluation.value:.2f} %",
                f"{-100 * drop.drop:+.2f}{'' if drop.significant else ' (n.s.)'}" if drop else "",
                f"{latency.after:.3f}",
                f"{1 / latency.ratio:.2f} ×" if latency.significant else "n.s.",
                out.bytes_text(candidate.comparison.change("size").after),
            )
        )
    out.line(f"{result.inspection.description}; {score.samples:,} test images, n.s. = not significant")
    out.table(["file", "accuracy", "points", "ms", "faster", "size"], rows)
    out.line(f"the page: {Path(result.page).resolve()}")
