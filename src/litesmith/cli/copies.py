# SPDX-License-Identifier: Apache-2.0
"""`litesmith copies`: what feeding and reading a model costs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from litesmith.cli import _output as out
from litesmith.cli._files import chosen, write_json, write_plot
from litesmith.measure import Copies, copies


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("copies")(command)


def command(
    model: Annotated[Path, typer.Argument(help="The .tflite file.")],
    threads: Annotated[int, typer.Option(help="Threads of the CPU kernels.")] = 1,
    kernels: Annotated[
        str, typer.Option(help="delegate (XNNPACK and ours), xnnpack, builtin, reference.")
    ] = "delegate",
    seconds: Annotated[float, typer.Option(help="Time for each path, feeding and reading.")] = 0.5,
    seed: Annotated[int, typer.Option(help="Seed of the random inputs.")] = 0,
    plot: Annotated[Path | None, typer.Option(help="An .html to draw the paths in.")] = None,
    save: Annotated[Path | None, typer.Option(help="A .json to keep the result in.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Measure what putting inputs in and taking outputs out costs on each path, against running the model.

    Example: `litesmith copies model.tflite`
    """
    files = chosen((save, write_json), (plot, write_plot))
    result = copies(model, threads=threads, kernels=kernels, seconds=seconds, seed=seed)
    out.deliver(result, show, as_json=json, files=files)
    if not result.complete:
        raise typer.Exit(130)


def show(result: Copies) -> None:
    """Print the paths for people."""
    out.line(f"{result.model}: running it takes {result.latency_ms:.3f} ms with {out.plural(result.threads, 'thread')}")
    for direction, title in (("feed", "Feeding all inputs"), ("read", "Reading all outputs")):
        paths = result.of(direction)
        out.heading(f"{title}, {out.bytes_text(paths[0].bytes)}" if paths else title)
        out.table(
            ["path", "µs", "p95", "of a run"],
            [
                (
                    path.path + ("" if path.copies else " (no copy)"),
                    f"{summary.median:.2f}",
                    f"{summary.p95:.2f}",
                    f"{100 * result.share(path):.3f} %",
                )
                for path in paths
                if (summary := path.summary) is not None
            ],
        )
    for path in result.of("feed"):
        if path.problem:
            out.line(f"! {path.path}: {path.problem}")
    out.line("to find the copies in your own code: with litesmith.copies.audit() as audit, or litesmith app SCRIPT")
    if not result.complete:
        out.line("! interrupted: the figures are of what was measured until then")
