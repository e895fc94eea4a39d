# SPDX-License-Identifier: Apache-2.0
"""`litesmith compare`: two results, is the difference real."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from litesmith.cli import _output as out
from litesmith.cli._files import chosen, write_json, write_plot
from litesmith.measure import Change, Comparison
from litesmith.tune import compare


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("compare")(command)


def command(
    before: Annotated[Path, typer.Argument(help="A .tflite, a .json that bench saved, or a litesmith.lock.")],
    after: Annotated[Path, typer.Argument(help="The same kind of file.")],
    threads: Annotated[int | None, typer.Option(help="Threads, for models; the lock's, or 1.")] = None,
    kernels: Annotated[
        str, typer.Option(help="delegate (XNNPACK and ours), xnnpack, builtin, reference; for models.")
    ] = "delegate",
    seconds: Annotated[float, typer.Option(help="Time for each model.")] = 3.0,
    fail_if: Annotated[
        list[str] | None,
        typer.Option(help="Exit with 1 when it holds: 'latency>+3%'; with a lock also 'drop>0.5%'. Again for more."),
    ] = None,
    data: Annotated[str | None, typer.Option(help="A lock's samples, where they are not where it says.")] = None,
    calibrate: Annotated[str | None, typer.Option(help="A lock's samples to calibrate on, likewise.")] = None,
    allow_other_machine: Annotated[
        bool, typer.Option(help="Compare results of different machines all the same.")
    ] = False,
    plot: Annotated[Path | None, typer.Option(help="An .html to draw the changes in.")] = None,
    save: Annotated[Path | None, typer.Option(help="A .json to keep the result in.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Compare two models measured now, interleaved, or two saved results; says when a difference is not significant.

    Example: `litesmith compare float.tflite int8.tflite --fail-if 'latency>+3%'`
    """
    files = chosen((save, write_json), (plot, write_plot))
    result = compare(
        before,
        after,
        threads=threads,
        kernels=kernels,
        seconds=seconds,
        fail_if=tuple(fail_if or ()),
        allow_other_machine=allow_other_machine,
        data=data,
        calibrate=calibrate,
    )
    out.deliver(result, show, as_json=json, files=files)
    if not result.complete:
        raise typer.Exit(130)
    if result.broken:
        raise typer.Exit(1)


def show(result: Comparison) -> None:
    """Print a comparison for people."""
    out.line(f"{result.before} → {result.after}")
    out.table(
        ["quantity", "before", "after", "ratio", "95 % interval", ""],
        [
            (
                c.quantity,
                _value(c, c.before),
                _value(c, c.after),
                f"{c.ratio:.3f}",
                f"{c.low:.3f}–{c.high:.3f}",
                _verdict(c),
            )
            for c in result.changes
        ],
    )
    if not result.complete:
        out.line("! interrupted: the figures are of what was measured until then")
    for warning in result.warnings:
        out.line(f"! {warning}")
    for text in result.checked:
        out.line(f"· {text}")
    for bound in result.broken:
        out.line(f"✗ fails: {bound}")


def _value(change: Change, value: float) -> str:
    return f"{value:.3f} ms" if change.unit == "ms" else out.bytes_text(value)


def _verdict(change: Change) -> str:
    if not change.significant:
        return "not significant"
    if change.quantity == "latency":
        return f"{1 / change.ratio:.2f} × faster" if change.ratio < 1 else f"{change.ratio:.2f} × slower"
    return "smaller" if change.ratio < 1 else "larger"
