# SPDX-License-Identifier: Apache-2.0
"""`litesmith run`: run a model once and see what comes out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from litesmith.cli import _output as out
from litesmith.cli._files import check_writable
from litesmith.runtime import Run, run


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("run")(command)


def command(
    model: Annotated[Path, typer.Argument(help="The .tflite file.")],
    inputs: Annotated[
        Path | None, typer.Option(help="A .npz of arrays by input name, or a .npy for one input.")
    ] = None,
    threads: Annotated[int, typer.Option(help="Threads of the CPU kernels.")] = 1,
    signature: Annotated[str | None, typer.Option(help="The signature to run; the first by default.")] = None,
    kernels: Annotated[
        str, typer.Option(help="delegate (XNNPACK and ours), xnnpack, builtin, reference.")
    ] = "delegate",
    seed: Annotated[int, typer.Option(help="Seed of the random inputs.")] = 0,
    save: Annotated[Path | None, typer.Option(help="A .npz to write the outputs to.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Run a model once on given or random inputs and show its outputs.

    Example: `litesmith run model.tflite --inputs image.npy`
    """
    check_writable(save)
    result = run(model, inputs, threads=threads, signature=signature, kernels=kernels, seed=seed, save=save)
    if json:
        out.json(result)
    else:
        show(result)


def show(result: Run) -> None:
    """Print a run for people."""
    out.facts(
        [
            ("model", result.model),
            ("inputs", result.inputs),
            ("load, compile, run", f"{result.load_ms:.1f}, {result.compile_ms:.1f}, {result.run_ms:.3f} ms"),
        ]
    )
    for output in result.outputs:
        out.heading(f"{output.name}: {output.dtype} {out.shape_text(output.shape)}")
        if output.minimum is not None:
            out.line(f"from {output.minimum:.6g} to {output.maximum:.6g}, mean {output.mean:.6g}")
            out.table(["position", "largest values"], [(i, f"{value:.6g}") for i, value in output.largest], left=0)
