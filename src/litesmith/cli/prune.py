# SPDX-License-Identifier: Apache-2.0
"""`litesmith prune`: most weights zero, the file smaller, and what that does for speed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from litesmith.cli import _compress
from litesmith.cli import _output as out
from litesmith.cli._compress import finish, load, size_rows, written_rows
from litesmith.cli._files import check_writable
from litesmith.optimize import PruneCoverage, PruneSpeed, prune


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("prune")(command)


def command(
    model: Annotated[Path, typer.Argument(help="The .tflite file, in float or int8.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The .tflite to write.")],
    sparsity: Annotated[float, typer.Option(help="The share of zeros in the layers that are pruned.")] = 0.8,
    pattern: Annotated[str, typer.Option(help="unstructured, 4x1 or 2:4.")] = "unstructured",
    data: Annotated[
        str | None, typer.Option(help="Some hundreds of samples, no labels: .npz, .npy, folder, .csv, module:function.")
    ] = None,
    preprocess: Annotated[
        str | None, typer.Option(help="How samples become inputs, e.g. 'resize=224 scale=1/255'.")
    ] = None,
    samples: Annotated[int, typer.Option(help="How many samples to take at most.")] = 500,
    method: Annotated[str, typer.Option(help="auto, magnitude, or second-order, which needs data.")] = "auto",
    budget: Annotated[
        str, typer.Option(help="global: zeros where they cost least; layer: the same for each.")
    ] = "global",
    rule: Annotated[
        list[str] | None, typer.Option(help="skip:MATCH, include:MATCH or 0.9:MATCH for layers. Again for more.")
    ] = None,
    store: Annotated[
        str, typer.Option(help="sparse: zeros left out of the file; sparse16, sparse32: in so many bits; dense.")
    ] = "sparse",
    reorder: Annotated[
        bool, typer.Option("--reorder", help="Put channels in another order first: blocks of 4x1 then cost less.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Of the choice of positions that layers are looked at.")] = 0,
    undo: Annotated[bool, typer.Option("--dequantize", help="Make a float model of a quantized one first.")] = False,
    bench: Annotated[bool, typer.Option(help="Measure the latency before and after.")] = True,
    sizes: Annotated[bool, typer.Option(help="Measure the file compressed too.")] = True,
    json: Annotated[bool, typer.Option("--json", help="Print the coverage as JSON.")] = False,
) -> None:
    """Make most weights zero: by magnitude, or on data so that the layers' outputs change least.

    Example: `litesmith prune model.tflite --sparsity 0.8 --pattern 4x1 --data photos/ -o pruned.tflite`
    """
    check_writable(output)
    result = prune(
        load(model, undo=undo),
        sparsity=sparsity,
        pattern=pattern,
        data=_compress.samples(data, preprocess),
        method=method,
        budget=budget,
        rules=tuple(rule or ()),
        store=store,
        reorder=reorder,
        samples=samples,
        seed=seed,
        sizes=sizes,
        speed=bench,
    )
    finish(result, output, show, json=json)


def show(coverage: PruneCoverage, after: Path | None) -> None:
    """Print a coverage for people."""
    pruned = coverage.pruned
    before_bytes, after_bytes = (sum(layer.stored_bytes[i] for layer in pruned) for i in (0, 1))
    share = f"{100 * after_bytes / before_bytes:.1f} %" if before_bytes else "—"
    out.facts(
        [
            *written_rows(after),
            ("zeros", f"{100 * coverage.reached:.1f} % of {len(pruned)} layers, {coverage.pattern}, {coverage.method}"),
            ("their bytes", f"{share} of {out.bytes_text(before_bytes)}, stored {coverage.store}"),
            *size_rows(coverage.sizes),
            *_speed_rows(coverage.speed),
        ]
    )
    out.heading("Layers")
    rows = [
        (
            f"#{layer.index}",
            layer.kind,
            layer.reason or layer.name,
            f"{100 * layer.zeros / layer.weights:.0f} %",
            "" if layer.output_error is None else f"{100 * layer.output_error:.1f} %",
        )
        for layer in coverage.layers
    ]
    out.table(["#", "kind", "name, or why it is dense", "zeros", "error"], rows, left=3)
    for note in coverage.notes:
        out.line(f"! {note}")


def _speed_rows(speed: PruneSpeed | None) -> list[tuple[str, object]]:
    if speed is None:
        return []
    before, after = speed.stock_ms
    stock = f"{before:.3g} → {after:.3g} ms, {speed.stock_ratio:.2f} × (expect {speed.expectation})"
    if speed.delegate_ms is None:
        return [("stock LiteRT", stock), ("Litesmith", speed.note)]
    return [("stock LiteRT", stock), ("Litesmith", f"{speed.delegate_ms:.3g} ms, {speed.delegate_ratio:.2f} ×")]
