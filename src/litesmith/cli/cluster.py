# SPDX-License-Identifier: Apache-2.0
"""`litesmith cluster`: a few shared values for the weights, and a file that compresses to a fraction."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from litesmith.cli import _compress
from litesmith.cli import _output as out
from litesmith.cli._compress import finish, load, size_rows, written_rows
from litesmith.cli._files import check_writable
from litesmith.optimize import ClusterCoverage, cluster


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("cluster")(command)


def command(
    model: Annotated[Path, typer.Argument(help="The .tflite file, in float.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The .tflite to write.")],
    clusters: Annotated[int, typer.Option(help="How many values a layer shares.")] = 32,
    per_channel: Annotated[bool, typer.Option("--per-channel", help="So many for each output channel.")] = False,
    start: Annotated[str, typer.Option(help="Of k-means: k-means++, density or linear.")] = "k-means++",
    data: Annotated[
        str | None, typer.Option(help="Samples to fit the values to: .npz, .npy, folder, .csv, module:function.")
    ] = None,
    preprocess: Annotated[
        str | None, typer.Option(help="How samples become inputs, e.g. 'resize=224 scale=1/255'.")
    ] = None,
    samples: Annotated[int, typer.Option(help="How many samples to take at most.")] = 128,
    rule: Annotated[
        list[str] | None, typer.Option(help="skip:MATCH, include:MATCH or 16:MATCH for layers. Again for more.")
    ] = None,
    all_layers: Annotated[bool, typer.Option("--all-layers", help="The first and the last layers too.")] = False,
    seed: Annotated[int, typer.Option(help="Of the start of k-means.")] = 0,
    undo: Annotated[bool, typer.Option("--dequantize", help="Make a float model of a quantized one first.")] = False,
    sizes: Annotated[bool, typer.Option(help="Measure the file compressed too.")] = True,
    json: Annotated[bool, typer.Option("--json", help="Print the coverage as JSON.")] = False,
) -> None:
    """Let the weights of each layer share a few values, so that the file compresses well; zeros stay zeros.

    Example: `litesmith cluster model.tflite --clusters 32 -o clustered.tflite`
    """
    check_writable(output)
    result = cluster(
        load(model, undo=undo),
        clusters=clusters,
        per_channel=per_channel,
        start=start,
        data=_compress.samples(data, preprocess),
        rules=tuple(rule or ()),
        all_layers=all_layers,
        samples=samples,
        seed=seed,
        sizes=sizes,
    )
    finish(result, output, show, json=json)


def show(coverage: ClusterCoverage, after: Path | None) -> None:
    """Print a coverage for people."""
    what = "each output channel" if coverage.per_channel else "each layer"
    fitted = ", fitted to the layers' outputs" if coverage.fitted else ""
    out.facts(
        [
            *written_rows(after),
            ("clustered", f"{len(coverage.clustered)} layers, {coverage.clusters} values for {what}{fitted}"),
            *size_rows(coverage.sizes),
        ]
    )
    out.heading("Layers")
    rows = [
        (
            f"#{layer.index}",
            layer.kind,
            layer.reason or layer.name,
            layer.unique[0],
            layer.unique[1],
            layer.largest_unique,
            layer.zeros[1],
        )
        for layer in coverage.layers
    ]
    out.table(["#", "kind", "name, or why not", "values", "now", "a channel", "zeros"], rows, left=3)
    for note in coverage.notes:
        out.line(f"! {note}")
