# SPDX-License-Identifier: Apache-2.0
"""`litesmith diagnose`: which layers of a quantized model lose the accuracy, and what to change."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from litesmith.accuracy import Layer, LayerReport, OutputError, Repair, diagnose
from litesmith.cli import _output as out
from litesmith.cli._files import chosen, write_json, write_plot
from litesmith.cli.evaluate import known_kernels
from litesmith.errors import MeasureError
from litesmith.measure import profile
from litesmith.model import Model
from litesmith.report import report

_WORST = 10
_EXPLAINED = 3
_TIMED_RUNS = 30
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
    time: Annotated[bool, typer.Option(help="Measure the time of each layer too.")] = True,
    top: Annotated[int, typer.Option(help="How many of the worst layers to list; 0 for all.")] = _WORST,
    csv: Annotated[Path | None, typer.Option(help="A .csv to write, a line per layer.")] = None,
    html: Annotated[Path | None, typer.Option(help="An .html to write.")] = None,
    model_explorer: Annotated[
        Path | None, typer.Option(help="A .json of node data for Model Explorer to write.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="An .html to draw the layers in.")] = None,
    save: Annotated[Path | None, typer.Option(help="A .json to keep the result in.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Find the layers of a quantized model that lose the accuracy, say why, and which change to the recipe repairs it.

    Example: `litesmith diagnose float.tflite int8.tflite --data images/ --html layers.html`
    """
    files = chosen(
        (save, write_json),
        (plot, write_plot),
        (csv, LayerReport.to_csv),
        (model_explorer, _write_node_data),
        (html, report),
    )
    how = known_kernels(kernels)
    time_us, notes = _times(quantized_model, kernels, threads, seed) if time else ({}, ())
    result = diagnose(
        float_model,
        quantized_model,
        data,
        samples=samples,
        preprocess=preprocess,
        confirm=confirm,
        time_us=time_us,
        values=values,
        seed=seed,
        kernels=how,
        threads=threads,
    )
    result = replace(result, notes=(*result.notes, *notes))
    out.deliver(result, lambda found: show(found, top), as_json=json, files=files)


def _times(model: Path, kernels: str, threads: int, seed: int) -> tuple[dict[int, float], tuple[str, ...]]:
    """Return the time of each operator in microseconds; where that cannot be measured, none, and the reason."""
    if any(signature.subgraph_index for signature in Model.load(model).signatures[:1]):
        return {}, ("no times: the profiler times the main subgraph, and the first signature runs another",)
    try:
        found = profile(model, threads=threads, kernels=kernels, runs=_TIMED_RUNS, seed=seed)
    except MeasureError as error:
        return {}, (f"no times: {error}",)
    if not found.complete:
        raise typer.Exit(130)
    return {operator.index: operator.mean_us for operator in found.operators}, ()


def _write_node_data(result: LayerReport, path: Path) -> None:
    path.write_text(result.model_explorer_node_data(), encoding="utf-8")


def show(result: LayerReport, top: int = _WORST) -> None:
    """Print a report for people: the outputs, the worst layers, and what to change."""
    out.facts(
        [
            ("float", result.float_model),
            ("quantized", result.quantized_model),
            ("data", f"{result.samples} of {result.data}"),
            ("layers", _layers_text(result)),
        ]
    )
    for output in result.outputs:
        out.heading(f"Output {output.name}")
        out.line(output_text(output))
    out.heading("The layers that were compared" if result.narrower else "The layers that cost most")
    shown = _shown(result, top)
    columns = ["layer", "what is wrong", "blame", "SQNR", "alone", "cosine", "KL", "size", *_time_column(result)]
    out.table(columns, [_row(result, layer) for layer in shown], left=2)
    out.line(
        "SQNR in dB, of the whole model so far and of the layer alone; cosine and KL, in nats, of the model so far."
    )
    for layer in shown[:_EXPLAINED]:
        for cause in layer.causes:
            out.line(f"{layer.index} {layer.kind}, {cause.kind}: {cause.detail}.")
    if not result.narrower:
        _show_repairs(result)
    if result.unmatched:
        out.line(f"Without a counterpart in the float model: {', '.join(result.unmatched)}")
    if result.narrower:
        out.line(f"Narrower than in the float model, not compared: {', '.join(result.narrower)}")
    for note in result.notes:
        out.line(f"! {note}")


def _layers_text(result: LayerReport) -> str:
    text = f"{len(result.layers)} compared"
    text += f", {len(result.narrower)} narrower: not compared" if result.narrower else ""
    return text + (f", {len(result.unmatched)} without a counterpart" if result.unmatched else "")


def _show_repairs(result: LayerReport) -> None:
    out.heading("What to change, the most rewarding first")
    repairs = [repair for repair in result.repairs[:_WORST] if repair.gain_db >= _WORTH_DB]
    rows = [(repair.option, repair.change, f"+{repair.gain_db:.2f} dB", _cost(repair)) for repair in repairs]
    out.table(["add to `litesmith quantize`", "which is", "gain", "cost"], rows, left=2)
    for kernel in dict.fromkeys(repair.kernel for repair in repairs if ":" in repair.kernel):
        out.line(f"{kernel}.")
    if any(":#" in repair.option for repair in repairs):
        out.line("Rules count the operators of the float model, layers those of the quantized one.")
    measured = [layer for layer in result.worst if layer.float_gain_db is not None]
    if measured:
        out.heading("Measured: the layer in float, all others as they are")
        out.table(["layer", "gain"], [(f"{x.index} {x.kind}", f"{x.float_gain_db:+.2f} dB") for x in measured])


def _cost(repair: Repair) -> str:
    """Return what a repair costs in bytes and in speed, by the kernel that runs the layer then."""
    kernel = repair.kernel.partition(":")[0]
    return f"+{out.bytes_text(repair.extra_bytes)}, {kernel}" if repair.extra_bytes else kernel


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


def _percent(share: float) -> str:
    return f"{_short(100 * share)} %"


def _short(value: float) -> str:
    return f"{value:.1f}" if value < 9.95 else f"{value:.0f}"


def _bare_decibel(value: float | None) -> str:
    return decibel(value).removesuffix(" dB")


def _shown(result: LayerReport, top: int) -> list[Layer]:
    """Return the worst layers, and those whose ties cost accuracy without much error; those compared, without blame."""
    if result.narrower:
        return sorted(result.layers, key=lambda layer: layer.sqnr_db)[: top or None]
    tied = [layer for layer in result.layers if any(cause.kind == "ties" for cause in layer.causes)]
    return list({layer.index: layer for layer in (*tied, *result.worst[: top or None])}.values())


def _time_column(result: LayerReport) -> list[str]:
    return ["time"] if any(layer.time_us is not None for layer in result.layers) else []


def _row(result: LayerReport, layer: Layer) -> list[str]:
    cells = [
        f"{layer.index} {layer.kind}",
        layer.causes[0].kind if layer.causes else "",
        "" if result.narrower else _percent(layer.share),
        _bare_decibel(layer.sqnr_db),
        _bare_decibel(layer.isolated_sqnr_db),
        f"{layer.cosine:.4f}",
        f"{layer.kl:.3f}",
        out.bytes_text(layer.size_bytes),
    ]
    if _time_column(result):
        cells.append("" if layer.time_us is None else f"{_short(layer.time_us)} µs")
    return cells
