# SPDX-License-Identifier: Apache-2.0
"""`litesmith recipe`: all steps from one file to another, each with what it reports."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from litesmith.cli import _compress, channels, cluster, fold, prune, quantize
from litesmith.cli import _output as out
from litesmith.cli._compress import finish, load, read_recipe, size_rows
from litesmith.cli._files import check_writable
from litesmith.optimize import RecipeCoverage, StoreCoverage, recipe


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("recipe")(command)


def command(
    model: Annotated[Path, typer.Argument(help="The .tflite file, in float.")],
    steps: Annotated[str, typer.Argument(help="'prune(0.8) → cluster(32) → int8' (-> will do), or a .toml.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The .tflite to write.")],
    data: Annotated[
        str | None, typer.Option(help="Samples for the steps, no labels: .npz, .npy, folder, .csv, module:function.")
    ] = None,
    train: Annotated[str | None, typer.Option(help="Samples for steps that train; those of --data by default.")] = None,
    preprocess: Annotated[
        str | None, typer.Option(help="How samples become inputs, e.g. 'resize=224 scale=1/255'.")
    ] = None,
    undo: Annotated[bool, typer.Option("--dequantize", help="Make a float model of a quantized one first.")] = False,
    sizes: Annotated[bool, typer.Option(help="Measure the file compressed too.")] = True,
    json: Annotated[bool, typer.Option("--json", help="Print the coverage as JSON.")] = False,
) -> None:
    """Run the steps of a recipe in the order in which none undoes another, and say what each of them did.

    Example: `litesmith recipe model.tflite 'prune(0.8) → cluster(32) → int8' --data photos/ -o small.tflite`
    """
    check_writable(output)
    result = recipe(
        load(model, undo=undo),
        read_recipe(steps),
        data=_compress.samples(data, preprocess),
        train=_compress.samples(train, preprocess),
        sizes=sizes,
    )
    finish(result, output, show, json=json)


def show(coverage: RecipeCoverage, after: Path) -> None:
    """Print a coverage for people."""
    for number, step in enumerate(coverage.steps, start=1):
        out.heading(f"Step {number}: {step.step}")
        found = step.coverage
        if found is not None:
            _SHOW[found.kind](found)
        out.facts([("file", out.bytes_text(step.raw_bytes))])
    out.heading("Together")
    out.facts([("written", after), ("recipe", coverage.recipe), *size_rows(coverage.sizes)])
    for note in coverage.notes:
        out.line(f"! {note}")


def _show_store(coverage: StoreCoverage) -> None:
    before, after = coverage.constant_bytes
    out.facts(
        [
            ("stored sparse", f"{coverage.sparse} of {coverage.layers} layers"),
            ("constants", f"{out.bytes_text(before)} → {out.bytes_text(after)}"),
        ]
    )
    for note in coverage.notes:
        out.line(f"! {note}")


_SHOW: dict[str, Callable[[Any], None]] = {
    "prune": lambda coverage: prune.show(coverage, None),
    "channels": lambda coverage: channels.show(coverage, None),
    "cluster": lambda coverage: cluster.show(coverage, None),
    "fold": lambda coverage: fold.show(coverage, None),
    "coverage": quantize.show_coverage,
    "store": _show_store,
}
"""How what steps report is printed, by kind of the result: as by the verbs."""
