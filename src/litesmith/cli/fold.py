# SPDX-License-Identifier: Apache-2.0
"""`litesmith fold`: thin convolutions made wide, for hardware that multiplies whole tiles."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from litesmith.cli import _output as out
from litesmith.cli._compress import finish, load, written_rows
from litesmith.cli._files import check_writable
from litesmith.optimize import FoldCoverage, fold


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("fold")(command)


def command(
    model: Annotated[Path, typer.Argument(help="The .tflite file, in float.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The .tflite to write.")],
    width: Annotated[int, typer.Option(help="Channels that an output may have afterwards.")] = 64,
    undo: Annotated[bool, typer.Option("--dequantize", help="Make a float model of a quantized one first.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the coverage as JSON.")] = False,
) -> None:
    """Fold pixels into channels, so that matrix units have work in thin layers; outputs stay the same. Quantize it next.

    Example: `litesmith fold model.tflite -o wide.tflite`
    """
    check_writable(output)
    finish(fold(load(model, undo=undo), width=width), output, show, json=json)


def show(coverage: FoldCoverage, after: Path | None) -> None:
    """Print a coverage for people."""
    macs, parameters = coverage.macs, coverage.parameters
    out.facts(
        [
            *written_rows(after),
            ("folded", f"{out.plural(len(coverage.layers), 'operator')}, to at most {coverage.width} channels"),
            ("MACs", f"{out.count_text(macs[0])} → {out.count_text(macs[1])}, in fewer and fuller calls of kernels"),
            ("parameters", f"{out.count_text(parameters[0])} → {out.count_text(parameters[1])}"),
            ("outputs", f"differ by {coverage.difference:.1g} of their span, which is rounding"),
        ]
    )
    out.heading("Operators")
    rows = [(f"#{layer.index}", layer.kind, layer.name, layer.pixels) for layer in coverage.layers]
    out.table(["#", "kind", "name", "pixels in one"], rows, left=3)
    out.line("faster where matrix units multiply whole tiles (AMX, NPUs) in int8, slower elsewhere: litesmith compare")
