# SPDX-License-Identifier: Apache-2.0
"""`litesmith diagnose`: which layers of a quantized model lose the accuracy, and what to change."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from litesmith.accuracy import Layer, LayerReport, OutputError, diagnose
from litesmith.cli import _output as out
from litesmith.cli._files import chosen
from litesmith.cli.evaluate import known_kernels
from litesmith.report import Bars, Page, Section, table, write

_WORST = 10
_EXPLAINED = 3
_WORTH_DB = 0.05


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("diagnose")(command)


def command(
    float_model: Annotated[Path, typer.Argument(help="The float .tflite.")],
    quantized_model: Annotated[Path, typer.Argument(help="The quantized .tflite that was made from it.")],
    data: Annotated[str, typer.Option(help="An .npz, a folder, a .csv, or module:function; labels are not needed.")],
    samples: Annotated[int, typer.Option(help="How many samples at most, drawn at random.")] = 64,
    preprocess: Annotated[str | None, typer.Option(help='Such as "resize=224 mean=127.5 std=127.5".')] = None,
    confirm: Annotated[
        int, typer.Option(help="For how many of the worst layers to measure the gain with that layer in float.")
    ] = 0,
    values: Annotated[int, typer.Option(help="How many values of a tensor to look at in a sample, at most.")] = 32768,
    seed: Annotated[int, typer.Option(help="Of the draw.")] = 0,
    kernels: Annotated[
        str, typer.Option(help="delegate (XNNPACK and ours), xnnpack, builtin, reference.")
    ] = "delegate",
    threads: Annotated[int, typer.Option(help="Threads of the CPU kernels.")] = 1,
    csv: Annotated[Path | None, typer.Option(help="A file to write a row for each layer to.")] = None,
    html: Annotated[Path | None, typer.Option(help="A page to write.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Find the layers of a quantized model that lose the accuracy, say why, and which change to the recipe repairs it.

    Example: `litesmith diagnose float.tflite int8.tflite --data images/ --html layers.html`
    """
    files = chosen((csv, LayerReport.to_csv), (html, _write_page))
    result = diagnose(
        float_model,
        quantized_model,
        data,
        samples=samples,
        preprocess=preprocess,
        confirm=confirm,
        values=values,
        seed=seed,
        kernels=known_kernels(kernels),
        threads=threads,
    )
    out.deliver(result, show, as_json=json, files=files)


def _write_page(result: LayerReport, path: Path) -> None:
    write(page(result), path)


def show(result: LayerReport) -> None:
    """Print a report for people: the outputs, the worst layers, and what to change."""
    out.facts(
        [
            ("float", result.float_model),
            ("quantized", result.quantized_model),
            ("data", f"{result.samples} of {result.data}"),
            (
                "layers",
                f"{len(result.layers)} compared" + (f", {len(result.unmatched)} not" if result.unmatched else ""),
            ),
        ]
    )
    for output in result.outputs:
        out.heading(f"Output {output.name}")
        out.line(output_text(output))
    out.heading("The layers that cost most")
    shown = _shown(result)
    columns = ["layer", "what is wrong", "blame", "SQNR", "alone", "cosine", "size", *_time_column(result)]
    out.table(columns, [_row(result, layer) for layer in shown], left=2)
    for layer in shown[:_EXPLAINED]:
        for cause in layer.causes:
            out.line(f"{layer.index} {layer.kind}, {cause.kind}: {cause.detail}.")
    out.heading("What to change, the most rewarding first")
    _show_repairs(result)
    if result.unmatched:
        out.line(f"Without a counterpart in the float model: {', '.join(result.unmatched)}")


def _show_repairs(result: LayerReport) -> None:
    rows = [
        (repair.option, repair.change, f"+{repair.gain_db:.2f} dB", f"+{out.bytes_text(repair.extra_bytes)}")
        for repair in result.repairs[:_WORST]
        if repair.gain_db >= _WORTH_DB
    ]
    out.table(["add to `litesmith quantize`", "which is", "predicted", "size"], rows, left=2)
    if any(":#" in option for option, *_ in rows):
        out.line("Rules count the operators of the float model, layers those of the quantized one.")
    measured = [layer for layer in result.worst if layer.float_gain_db is not None]
    if measured:
        out.heading("Measured: the layer in float, all others as they are")
        out.table(["layer", "gain"], [(f"{x.index} {x.kind}", f"{x.float_gain_db:+.2f} dB") for x in measured])


def output_text(output: OutputError) -> str:
    """Return the error of an output in one sentence."""
    text = f"SQNR {decibel(output.sqnr_db)}, cosine {output.cosine:.5f}"
    if output.kl is not None and output.agreement is not None and output.ties is not None:
        text += f", KL {output.kl:.3g}, same class on {100 * output.agreement:.1f} % of the samples"
        if output.ties:
            text += f", ties at the top on {100 * output.ties:.1f} %"
    return text


def decibel(value: float | None) -> str:
    """Return a ratio in dB; exact where there is no error at all."""
    if value is None:
        return ""
    return "exact" if math.isinf(value) and value > 0 else f"{value:.1f} dB"


def _shown(result: LayerReport) -> list[Layer]:
    """Return the worst layers, and those whose ties cost accuracy without much error."""
    tied = [layer for layer in result.layers if any(cause.kind == "ties" for cause in layer.causes)]
    return list({layer.index: layer for layer in (*tied, *result.worst[:_WORST])}.values())


def _time_column(result: LayerReport) -> list[str]:
    return ["time"] if any(layer.time_us is not None for layer in result.layers) else []


def _row(result: LayerReport, layer: Layer) -> list[str]:
    cells = [
        f"{layer.index} {layer.kind}",
        ", ".join(cause.kind for cause in layer.causes),
        f"{100 * layer.share:.1f} %",
        decibel(layer.sqnr_db),
        decibel(layer.isolated_sqnr_db),
        f"{layer.cosine:.4f}",
        out.bytes_text(layer.size_bytes),
    ]
    if _time_column(result):
        cells.append("" if layer.time_us is None else f"{layer.time_us:.0f} µs")
    return cells


def page(result: LayerReport) -> Page:
    """Return the report as a page."""
    columns = ["layer", "name", "what is wrong", "change", "gain", "blame", "SQNR", "alone", "cosine", "bytes"]
    rows = [
        (
            f"{x.index} {x.kind}",
            x.name,
            "; ".join(f"{cause.kind}: {cause.detail}" for cause in x.causes),
            "" if x.repair is None else x.repair.option,
            "" if x.repair is None else f"{x.repair.gain_db:.2f} dB",
            f"{100 * x.share:.2f} %",
            decibel(x.sqnr_db),
            decibel(x.isolated_sqnr_db),
            f"{x.cosine:.5f}",
            f"{x.size_bytes:,}",
        )
        for x in result.layers
    ]
    bars = tuple((f"{x.index} {x.kind}", x.share, f"{100 * x.share:.1f} %") for x in result.worst[:_WORST])
    return Page(
        title=f"{result.quantized_model}: where the accuracy goes",
        summary="; ".join(f"output {o.name}: {output_text(o)}" for o in result.outputs),
        facts=(
            ("float", result.float_model),
            ("quantized", result.quantized_model),
            ("data", f"{result.samples} of {result.data}"),
            ("kernels", result.kernels),
        ),
        sections=(
            Section("The layers to blame", "The share of the error at the outputs.", Bars("Blame", bars)),
            Section(
                "All layers",
                "SQNR of the whole model so far, and of each layer alone.",
                table=table(columns, rows, left=4),
            ),
        ),
    )
