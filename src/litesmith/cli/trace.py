# SPDX-License-Identifier: Apache-2.0
"""`litesmith trace`: a timeline for Perfetto."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from litesmith.cli import _output as out
from litesmith.cli._files import check_writable
from litesmith.measure import Trace, trace


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("trace")(command)


def command(
    model: Annotated[Path, typer.Argument(help="The .tflite file.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The trace to write.")] = Path("trace.pftrace"),
    runs: Annotated[int, typer.Option(help="Runs to record.")] = 100,
    threads: Annotated[int, typer.Option(help="Threads of the CPU kernels.")] = 1,
    kernels: Annotated[
        str, typer.Option(help="delegate (XNNPACK and ours), xnnpack, builtin, reference.")
    ] = "delegate",
    seed: Annotated[int, typer.Option(help="Seed of the random inputs.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print what was written as JSON.")] = False,
) -> None:
    """Write a timeline of the session and its operators, with memory and CPU, to open in ui.perfetto.dev.

    Example: `litesmith trace model.tflite -o model.pftrace`
    """
    check_writable(output)
    result = trace(model, output, runs=runs, threads=threads, kernels=kernels, seed=seed)
    if json:
        out.json(result)
    else:
        show(result)
    if not result.complete:
        raise typer.Exit(130)


def show(result: Trace) -> None:
    """Print what was written."""
    out.line(f"{result.path}: {result.runs} runs, {result.slices:,} slices over {result.duration_ms:.0f} ms")
    if not result.complete:
        out.line("! interrupted: the trace has the runs until then")
    out.line("open it at https://ui.perfetto.dev (it stays on this machine: the page reads the file in the browser)")
