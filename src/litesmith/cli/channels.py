# SPDX-License-Identifier: Apache-2.0
"""`litesmith channels`: a narrower model, smaller and faster on every runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from litesmith.cli import _compress
from litesmith.cli import _output as out
from litesmith.cli._compress import finish, load, size_rows, written_rows
from litesmith.cli._files import check_writable
from litesmith.errors import UsageError
from litesmith.optimize import ChannelsCoverage, channels

_UNITS = {"k": 1e3, "M": 1e6, "G": 1e9, "%": 0.01}


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("channels")(command)


def command(
    model: Annotated[Path, typer.Argument(help="The .tflite file, in float.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The .tflite to write.")],
    keep: Annotated[float | None, typer.Option(help="The share of its channels that each group keeps.")] = None,
    max_macs: Annotated[
        str | None, typer.Option(help="Multiply-accumulates at most: 150M, or 0.5 or 50% of what there are.")
    ] = None,
    max_latency: Annotated[float | None, typer.Option(help="Milliseconds at most, measured on this machine.")] = None,
    data: Annotated[
        str | None, typer.Option(help="Some hundreds of samples, no labels: .npz, .npy, folder, .csv, module:function.")
    ] = None,
    preprocess: Annotated[
        str | None, typer.Option(help="How samples become inputs, e.g. 'resize=224 scale=1/255'.")
    ] = None,
    samples: Annotated[int, typer.Option(help="How many samples to take at most.")] = 500,
    multiple: Annotated[int, typer.Option(help="Widths are multiples of this.")] = 8,
    repair: Annotated[bool, typer.Option(help="Fit the layers to what is left, on the data.")] = True,
    rule: Annotated[
        list[str] | None, typer.Option(help="skip:MATCH or 0.5:MATCH for what layers write. Again for more.")
    ] = None,
    threads: Annotated[int, typer.Option(help="For the measured latency.")] = 1,
    seed: Annotated[int, typer.Option(help="Of the choice of positions that layers are looked at.")] = 0,
    undo: Annotated[bool, typer.Option("--dequantize", help="Make a float model of a quantized one first.")] = False,
    sizes: Annotated[bool, typer.Option(help="Measure the file compressed too.")] = True,
    json: Annotated[bool, typer.Option("--json", help="Print the coverage as JSON.")] = False,
) -> None:
    """Remove whole channels, and fit the layers that are left to what the original computes.

    Example: `litesmith channels model.tflite --max-macs 0.5 --data photos/ -o narrow.tflite`
    """
    check_writable(output)
    result = channels(
        load(model, undo=undo),
        keep=keep,
        max_macs=None if max_macs is None else _count(max_macs),
        max_latency_ms=max_latency,
        data=_compress.samples(data, preprocess),
        multiple=multiple,
        repair=repair,
        rules=tuple(rule or ()),
        samples=samples,
        threads=threads,
        seed=seed,
        sizes=sizes,
    )
    finish(result, output, show, json=json)


def _count(text: str) -> float:
    unit = _UNITS.get(text[-1:], 1.0)
    try:
        return float(text[:-1] if text[-1:] in _UNITS else text) * unit
    except ValueError:
        raise UsageError(f"{text!r} is no number of multiply-accumulates; write 150M, 0.5 or 50%") from None


def show(coverage: ChannelsCoverage, after: Path | None) -> None:
    """Print a coverage for people."""
    macs, parameters = coverage.macs, coverage.parameters
    latency = coverage.latency_ms
    out.facts(
        [
            *written_rows(after),
            ("wanted", f"{coverage.wanted}, in multiples of {coverage.multiple}"),
            (
                "MACs",
                f"{out.count_text(macs[0])} → {out.count_text(macs[1])} ({100 * macs[1] / max(macs[0], 1):.0f} %)",
            ),
            ("parameters", f"{out.count_text(parameters[0])} → {out.count_text(parameters[1])}"),
            *([("latency", f"{latency[0]:.3g} → {latency[1]:.3g} ms")] if latency is not None else []),
            ("channels by", f"{coverage.importance}; {out.plural(coverage.repaired, 'layer')} fitted anew"),
            *size_rows(coverage.sizes),
        ]
    )
    out.heading("Groups of channels")
    rows = [(g.name, g.reason, g.width[0], g.width[1]) for g in coverage.groups]
    out.table(["first written as", "why it stays", "before", "after"], rows, left=2)
    for note in coverage.notes:
        out.line(f"! {note}")
