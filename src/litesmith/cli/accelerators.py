# SPDX-License-Identifier: Apache-2.0
"""`litesmith accelerators`: which accelerator of this machine wins, and what falls back."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from litesmith.accuracy import METRICS, MetricScore
from litesmith.cli import _output as out
from litesmith.cli._files import chosen, write_json, write_plot
from litesmith.cli._on_device import DeviceOption, DevicesOption, measure_there
from litesmith.errors import UsageError
from litesmith.measure import AcceleratorRun, Accelerators, accelerators


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("accelerators")(command)


def command(
    model: Annotated[Path, typer.Argument(help="The .tflite file.")],
    only: Annotated[
        list[str] | None, typer.Option(help="The name of one to try; again for more. Default: all.")
    ] = None,
    delegate: Annotated[
        Path | None, typer.Option(help="The library of an external delegate to try too; with --device, its path there.")
    ] = None,
    option: Annotated[list[str] | None, typer.Option(help="KEY=VALUE for the delegate; again for more.")] = None,
    threads: Annotated[int, typer.Option(help="Threads of the CPU kernels.")] = 1,
    runs: Annotated[int | None, typer.Option(help="Runs of each; by default as many as fit into --seconds.")] = None,
    seconds: Annotated[float, typer.Option(help="Time for each, warm-up aside.")] = 2.0,
    data: Annotated[
        str | None, typer.Option(help="Samples to compare answers on: .npz, .npy, folder, .csv, module:function.")
    ] = None,
    preprocess: Annotated[
        str | None, typer.Option(help="How samples become inputs, e.g. 'resize=224 scale=1/255'.")
    ] = None,
    samples: Annotated[int, typer.Option(help="How many samples at most.")] = 200,
    metric: Annotated[
        str | None, typer.Option(help=f"One of {', '.join(METRICS)}. Default: top1 for class numbers.")
    ] = None,
    labels: Annotated[str | None, typer.Option(help="A file of labels, or an array of the .npz.")] = None,
    class_names: Annotated[Path | None, typer.Option(help="The model's classes, one a line.")] = None,
    label_offset: Annotated[int, typer.Option(help="Added to class numbers; 1 if class 0 is the background.")] = 0,
    output: Annotated[str | None, typer.Option(help="The output to score, if there are several.")] = None,
    decode: Annotated[
        str | None, typer.Option(help="module:function from outputs to text or boxes, or ctc:SYMBOLS.txt.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the random inputs and of the draw.")] = 0,
    device: DeviceOption = None,
    devices: DevicesOption = None,
    plot: Annotated[Path | None, typer.Option(help="An .html to draw the distributions in.")] = None,
    save: Annotated[Path | None, typer.Option(help="A .json to keep the result in.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON, raw samples included.")] = False,
) -> None:
    """Run a model on each accelerator of this machine, prove where it ran, and compare latency, memory and numbers.

    Example: `litesmith accelerators model.tflite --only xnnpack-fp16 --only webgpu`
    """
    files = chosen((save, write_json), (plot, write_plot))
    dataset = None
    if data is not None:
        from litesmith.data import Dataset

        dataset = Dataset.open(data, preprocess=preprocess, labels=labels, class_names=class_names)
    options: dict[str, Any] = {
        "only": only,
        "delegate": None if delegate is None else str(delegate),  # on a device, a file there
        "option": _pairs(option or []),
        "threads": threads,
        "runs": runs,
        "seconds": seconds,
        "samples": samples,
        "metric": metric,
        "output": output,
        "decode": decode,
        "label_offset": label_offset,
        "seed": seed,
    }
    if device:
        there: dict[str, Any] = {"device": device, "devices": devices, "data": dataset, "files": files, "json": json}
        measure_there("accelerators", [model], options, show=show, **there)
        return
    result = accelerators(model, data=dataset, **options)
    out.deliver(result, show, as_json=json, files=files)
    if not result.complete:
        raise typer.Exit(130)


def _pairs(options: list[str]) -> dict[str, str]:
    pairs = {}
    for text in options:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise UsageError(f"{text!r} is no option of a delegate; give KEY=VALUE")
        pairs[key] = value
    return pairs


def show(result: Accelerators) -> None:
    """Print a comparison for people."""
    out.line(f"{result.model}, {out.plural(result.threads, 'thread')}, {result.inputs} inputs")
    out.table(
        ["accelerator", "median ms", "p95", "× XNNPACK", "ready ms", "first ms", "memory"],
        [
            (
                run.name,
                f"{(s := run.summary).median:.3f}",
                f"{s.p95:.3f}",
                _ratio(run),
                f"{run.ready_ms:.1f}",
                f"{run.first_ms:.2f}",
                out.bytes_text(run.memory.model_bytes) if run.memory else "",
            )
            for run in result.runs
        ],
    )
    out.table(*_where(result))
    out.heading("What to make of it")
    for run in result.runs:
        out.line(f"{run.title}: {run.verdict}")
        _details(run)
    out.line(f"→ the best here: {result.best}")
    if result.absent:
        out.heading("Not here")
    for run in result.absent:
        out.line(f"{run.title}: {run.problem}")
        if run.remedy:
            out.line(f"  → {run.remedy}")
    if not result.complete:
        out.line("! interrupted: the figures are of what was measured until then")


def _ratio(run: AcceleratorRun) -> str:
    return f"{run.against_baseline.value:.2f}" if run.against_baseline else ""


def _placement(run: AcceleratorRun) -> tuple[str, str, str]:
    where = run.placement
    taken = "no"
    if where is not None and where.ran:
        taken = f"{'?' if where.taken is None else where.taken} of {where.total} operators"
    pieces = "" if where is None else "?" if where.partitions is None else str(where.partitions)
    return taken, pieces, f"{run.difference.largest:.2g}{' !' * run.is_wrong}" if run.difference else ""


def _where(result: Accelerators) -> tuple[list[str], list[tuple[str, ...]]]:
    """Return the columns and rows of the table that tells where the model ran and what came out."""
    seen = [run.agreement for run in result.runs if run.agreement]
    named = next((a.score.metric for a in seen if a.score), "")
    same = any(a.same_answer is not None for a in seen)
    columns = ["accelerator", "ran there", "pieces", "max diff", *["same answer"] * same, *[named] * bool(named)]
    rows = []
    for run in result.runs:
        agreement = run.agreement
        share = "" if agreement is None or agreement.same_answer is None else f"{100 * agreement.same_answer:.1f} %"
        score = "" if agreement is None or agreement.score is None else _number(agreement.score, agreement.score.value)
        rows.append((run.name, *_placement(run), *[share] * same, *[score] * bool(named)))
    return columns, rows


def _number(score: MetricScore, value: float) -> str:
    return f"{100 * value:.2f} %" if score.is_fraction else f"{value:.5g}"


def _details(run: AcceleratorRun) -> None:
    where = run.placement
    if where is None or not where.ran:
        return
    out.line(f"  proof: {where.proof}")
    if where.device:
        out.line(f"  device: {where.device}")
    if run.agreement is not None and (score := run.agreement.score) is not None:
        low, value, high = (_number(score, number) for number in (score.low, score.value, score.high))
        on = out.plural(run.agreement.samples, "sample")
        out.line(f"  {score.metric}: {value} on {on}, 95 % interval {low} to {high}")
    for entry in where.fallback[:4]:
        out.line(f"  not there: {entry.kind} ×{entry.count}, {entry.reason}")
    if len(where.fallback) > 4:
        out.line(f"  … and {len(where.fallback) - 4} further groups, all of them with --json")
