# SPDX-License-Identifier: Apache-2.0
"""`litesmith demo`: the whole story on the bundled sample."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from litesmith.cli import _output as out
from litesmith.cli.tune import show as show_search
from litesmith.samples._demo import Demo, demo


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("demo")(command)


def command(
    folder: Annotated[Path, typer.Option(help="Where the files and the page go.")] = Path("litesmith-demo"),
    seconds: Annotated[float, typer.Option(help="Time to measure each model for.")] = 1.0,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Tell the whole story on the bundled sample: look, advise, search, prove; and leave a page to open.

    Example: `litesmith demo`
    """
    result = demo(folder, seconds=seconds)
    if json:
        out.json(result)
    else:
        show(result)


def show(result: Demo) -> None:
    """Print the story step by step, and where the page is."""
    inspection, top = result.inspection, result.profile.by_kind()[0]
    out.heading("The model")
    out.line(f"{inspection.description}; {out.count_text(inspection.parameters)} parameters")
    out.line(
        f"one inference takes {result.profile.unprofiled_us / 1000:.3f} ms; {top.kind} has "
        f"{100 * top.mean_us / result.profile.operators_us:.0f} % of the operators' time"
    )
    advice = result.tuned.advice
    if advice is not None:
        out.heading("What the decision tree advises")
        out.line(f"{advice.recipe}: {advice.reasons[-1]}")
    out.heading("What measuring says")
    show_search(result.tuned)
    if result.reproduced:
        out.line("★ the lock file made the winner again, byte for byte")
    out.line(f"the page: {Path(result.page).resolve()}")
