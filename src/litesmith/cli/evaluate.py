# SPDX-License-Identifier: Apache-2.0
"""`litesmith evaluate`: how good a model is at its task."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from litesmith.accuracy import METRICS, Drop, Evaluation, evaluate
from litesmith.cli import _output as out
from litesmith.cli._files import chosen
from litesmith.runtime._options import KERNELS, Kernels


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("evaluate")(command)


def command(
    model: Annotated[Path, typer.Argument(help="The .tflite file.")],
    data: Annotated[str, typer.Option(help="An .npz, a folder, a .csv, or module:function.")],
    metric: Annotated[str, typer.Option(help=f"One of {', '.join(METRICS)}.")] = "top1",
    reference: Annotated[
        Path | None, typer.Option(help="The model to agree with, for agreement, mse and cosine.")
    ] = None,
    against: Annotated[
        Path | None, typer.Option(help="A model to test the drop against, usually the float one.")
    ] = None,
    preprocess: Annotated[str | None, typer.Option(help='Such as "resize=224 mean=127.5 std=127.5".')] = None,
    labels: Annotated[str | None, typer.Option(help="A file of labels, or an array of the .npz.")] = None,
    class_names: Annotated[Path | None, typer.Option(help="The model's classes, one a line.")] = None,
    label_offset: Annotated[int, typer.Option(help="Added to class numbers; 1 if class 0 is the background.")] = 0,
    output: Annotated[str | None, typer.Option(help="The output to look at, if there are several.")] = None,
    decode: Annotated[
        str | None, typer.Option(help="module:function from outputs to text or boxes, or ctc:SYMBOLS.txt.")
    ] = None,
    limit: Annotated[int | None, typer.Option(help="How many samples at most, drawn at random.")] = None,
    seed: Annotated[int, typer.Option(help="Of the draw and the bootstrap.")] = 0,
    confidence: Annotated[float, typer.Option(help="Of the intervals.")] = 0.95,
    resamples: Annotated[int, typer.Option(help="Draws of the bootstrap.")] = 1000,
    threads: Annotated[int, typer.Option(help="Threads of the CPU kernels.")] = 1,
    processes: Annotated[int, typer.Option(help="How many processes share the samples.")] = 1,
    kernels: Annotated[
        str, typer.Option(help="delegate (XNNPACK and ours), xnnpack, builtin, reference.")
    ] = "delegate",
    signature: Annotated[str | None, typer.Option(help="The signature to run; the first by default.")] = None,
    save: Annotated[Path | None, typer.Option(help="An .npz to write the prediction of each sample to.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Score a model on data, with a confidence interval; against another model, test whether the drop is real.

    Example: `litesmith evaluate int8.tflite --data test.npz --preprocess scale=1/255 --against float.tflite`
    """
    files = chosen((save, _write_predictions))
    result = evaluate(
        model,
        data,
        metric=metric,
        reference=reference,
        against=against,
        preprocess=preprocess,
        labels=labels,
        class_names=class_names,
        label_offset=label_offset,
        output=output,
        decode=decode,
        limit=limit,
        seed=seed,
        confidence=confidence,
        resamples=resamples,
        threads=threads,
        processes=processes,
        kernels=known_kernels(kernels),
        signature=signature,
    )
    out.deliver(result, show, as_json=json, files=files)


def _write_predictions(result: Evaluation, path: Path) -> None:
    if result.predictions is not None:
        result.predictions.save(path)


def known_kernels(kernels: str) -> Kernels:
    """Return the kernels that were named; refuse others."""
    for known in KERNELS:
        if known == kernels:
            return known
    raise typer.BadParameter(f"{kernels!r} is none of {', '.join(KERNELS)}", param_hint="--kernels")


def show(result: Evaluation) -> None:
    """Print an evaluation for people."""
    percent = f"{100 * result.confidence:g} %"
    name = result.metric + (f" with {result.reference}" if result.reference else "")
    rows: list[tuple[str, object]] = [
        ("model", result.model),
        ("data", result.data),
        (name, f"{score_text(result, result.value)}, {percent} interval {_interval(result, result.low, result.high)}"),
        (
            "samples",
            f"{result.samples:,} in {result.seconds:.1f} s, {1e3 * result.seconds / result.samples:.3g} ms each",
        ),
    ]
    if result.drop is not None:
        drop = result.drop
        rows += [
            ("against", f"{drop.against}: {score_text(result, drop.value)} {_interval(result, drop.low, drop.high)}"),
            ("drop", f"{_points(result, drop.drop)}, {percent} interval {_drop_interval(result, drop)}"),
            ("", _verdict(drop)),
        ]
    out.facts(rows)
    for note in result.notes:
        out.line(note)


def score_text(result: Evaluation, value: float) -> str:
    """Return a score as people read it."""
    return f"{100 * value:.2f} %" if result.is_fraction else f"{value:.5g}"


def _interval(result: Evaluation, low: float, high: float) -> str:
    if result.is_fraction:
        return f"{100 * low:.2f} … {100 * high:.2f} %"
    return f"{low:.5g} … {high:.5g}"


def _points(result: Evaluation, value: float) -> str:
    return f"{100 * value:.2f} points" if result.is_fraction else f"{value:.5g}"


def _drop_interval(result: Evaluation, drop: Drop) -> str:
    if result.is_fraction:
        return f"{100 * drop.drop_low:.2f} … {100 * drop.drop_high:.2f} points"
    return f"{drop.drop_low:.5g} … {drop.drop_high:.5g}"


def _verdict(drop: Drop) -> str:
    counts = "" if drop.lost is None else f"; {drop.lost} samples lost, {drop.won} won"
    verdict = "significant" if drop.significant else "not significant"
    return f"{verdict} (p = {drop.p_value:.2g}, {drop.test}{counts})"
