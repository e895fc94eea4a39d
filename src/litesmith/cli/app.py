# SPDX-License-Identifier: Apache-2.0
"""`litesmith app`: where the time of a whole program goes."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Annotated

import typer

from litesmith.cli import _output as out
from litesmith.cli._files import check_writable, chosen, write_json, write_plot
from litesmith.measure import App
from litesmith.measure import app as run_app

_FUNCTIONS = 10
_LEAST_SHARE = 0.005


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    settings = {"allow_interspersed_args": False, "ignore_unknown_options": True}
    app.command("app", context_settings=settings)(command)


def command(
    script: Annotated[Path, typer.Argument(help="The Python program.")],
    args: Annotated[list[str] | None, typer.Argument(help="Its arguments, options too.")] = None,
    trace: Annotated[Path, typer.Option(help="The Perfetto trace to write.")] = Path("app.pftrace"),
    plot: Annotated[Path | None, typer.Option(help="An .html to draw the parts in.")] = None,
    save: Annotated[Path | None, typer.Option(help="A .json to keep the result in.")] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print the result as JSON; the program then prints to stderr.")
    ] = False,
) -> None:
    """Run a Python program that uses LiteRT, unmodified, and say where its time goes and which line to change.

    Example: `litesmith app classify.py photo.jpg`
    """
    check_writable(trace)
    files = chosen((save, write_json), (plot, write_plot))
    with contextlib.redirect_stdout(sys.stderr) if json else contextlib.nullcontext():
        result = run_app(script, args or (), trace=trace)
    out.deliver(result, show, as_json=json, files=files)
    if result.exit_code:
        raise typer.Exit(result.exit_code)


def show(result: App) -> None:
    """Print where the time went."""
    out.heading(f"{result.script}: {result.wall_ms:.0f} ms, {result.runs} inferences")
    out.table(
        ["time in", "ms", "share"],
        [(name, f"{ms:.1f}", f"{100 * ms / result.wall_ms:.1f} %") for name, ms in result.parts()],
    )
    if result.elsewhere_ms:
        out.line(f"and {result.elsewhere_ms:.1f} ms of calls to LiteRT in other threads")
    shown = [f for f in result.functions if f.share >= _LEAST_SHARE][:_FUNCTIONS]
    if shown:
        out.heading("Its own code, by function (with the libraries it calls)")
        out.table(
            ["function", "hottest line", "ms", "share"],
            [(f.function, f"{Path(f.file).name}:{f.line}", f"{f.own_ms:.1f}", f"{100 * f.share:.1f} %") for f in shown],
            left=2,
        )
    if result.tips:
        out.heading("What to change")
    for tip in result.tips:
        out.line(f"{tip.place}, {100 * tip.share:.0f} % of the time: {tip.code}")
        out.line(f"  → {tip.text}")
    if not result.complete:
        out.line("! it did not end by itself: this is what was seen until then")
    if result.trace:
        out.line(f"timeline: {result.trace}, to open at https://ui.perfetto.dev")
