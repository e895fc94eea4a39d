# SPDX-License-Identifier: Apache-2.0
"""`litesmith retrain`: a classifier of your own classes, from a backbone of the zoo or any classifier .tflite."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from litesmith.cli import _output as out
from litesmith.cli._files import check_writable
from litesmith.train import Retrained, RetrainResult, Score, retrain

_WIDEST = 12
_PAIRS = 10


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("retrain")(command)


def command(
    base: Annotated[str, typer.Option(help="An architecture of the zoo, or a classifier .tflite.")],
    data: Annotated[str, typer.Option(help="A folder with one subfolder a class, or any labelled data.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The float .tflite; NAME_int8.tflite is beside it.")],
    weights: Annotated[Path | None, typer.Option(help="A checkpoint for a backbone of the zoo.")] = None,
    width: Annotated[float, typer.Option(help="Of a backbone of the zoo.")] = 1.0,
    resolution: Annotated[int | None, typer.Option(help="Of a backbone of the zoo.")] = None,
    preprocess: Annotated[
        str | None, typer.Option(help="How samples become inputs; by default the backbone's.")
    ] = None,
    epochs: Annotated[int, typer.Option(help="Of fine-tuning.")] = 10,
    minutes: Annotated[float | None, typer.Option(help="Fine-tune for a time instead.")] = None,
    batch: Annotated[int, typer.Option(help="Samples a step.")] = 32,
    learning_rate: Annotated[
        float | None, typer.Option(help="Default: 2e-3 for random, 2e-4 for trained weights.")
    ] = None,
    optimizer: Annotated[str, typer.Option(help="adamw or sgd.")] = "adamw",
    augment: Annotated[str | None, typer.Option(help="How samples are varied: 'flip shift=2', or none.")] = None,
    patience: Annotated[int | None, typer.Option(help="Stop after so many epochs without gain.")] = None,
    freeze: Annotated[bool, typer.Option("--freeze", help="Train the head alone.")] = False,
    seed: Annotated[int, typer.Option(help="Of the division, the order and the augmentation.")] = 0,
    threads: Annotated[int | None, typer.Option(help="That PyTorch uses; all by default.")] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Keeps the state; a killed run goes on from it. Default: OUTPUT.checkpoint.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Make a classifier of your own classes: float and int8 files with the labels inside.

    Example: `litesmith retrain --base mobilenet_v2 --weights mobilenet_v2.pth --data flowers/ -o flowers.tflite`
    """
    check_writable(output, checkpoint)
    state = checkpoint or output.with_name(f"{output.name}.checkpoint")
    done = retrain(
        base,
        data,
        weights=weights,
        width=width,
        resolution=resolution,
        preprocess=preprocess,
        epochs=epochs,
        minutes=minutes,
        batch=batch,
        learning_rate=learning_rate,
        optimizer=optimizer,
        augment=augment,
        patience=patience,
        freeze=freeze,
        seed=seed,
        threads=threads,
        checkpoint=state,
    )
    small = output.with_name(f"{output.stem}_int8{output.suffix}")
    done.model.save(output)
    done.quantized.save(small)
    state.unlink(missing_ok=True)
    if json:
        out.json(done.result)
    else:
        show(done, output, small)


def show(done: Retrained, output: Path, small: Path) -> None:
    """Print a retraining for people."""
    result = done.result
    train, validation, test = result.samples
    out.facts(
        [
            ("float32", _file(output, result.float32)),
            ("int8", _file(small, result.int8)),
            ("classes", f"{len(result.classes)}: {', '.join(result.classes)}"),
            ("samples", f"{train:,} to learn from, {validation:,} to choose by, {test:,} to score by"),
            ("preprocess", result.preprocess or "none"),
            (
                "validation",
                f"head alone {100 * result.head:.1f} %, kept ({result.kept}) {100 * result.validation:.1f} %",
            ),
        ]
    )
    _show_confusion(result)
    for note in result.notes:
        out.line(f"! {note}")


def _show_confusion(result: RetrainResult) -> None:
    """Print how often each class was taken for each other; of many classes, those that were confused most often."""
    names = result.classes
    if len(names) <= _WIDEST:
        out.heading("Confusion: true class, and what was answered")
        out.table(
            ["", *(name[:6] for name in names)], [(n, *row) for n, row in zip(names, result.confusion, strict=True)]
        )
        return
    pairs = [
        (count, true, answer, sum(row))
        for true, row in enumerate(result.confusion)
        for answer, count in enumerate(row)
        if count and answer != true
    ]
    if not pairs:
        return
    pairs.sort(key=lambda pair: (-pair[0], pair[3], pair[1], pair[2]))  # of equals, the rarer class first
    rows = [(names[true], names[answer], f"{count} of {total}") for count, true, answer, total in pairs[:_PAIRS]]
    out.heading(f"Confused most often, {len(rows)} of {out.plural(len(pairs), 'pair')}")
    out.table(["true class", "answered", "samples"], rows, left=2)


def _file(path: Path, score: Score) -> str:
    interval = f"95 % interval {100 * score.low:.1f} … {100 * score.high:.1f} %"
    return f"{path}, {out.bytes_text(score.size_bytes)}: {100 * score.accuracy:.1f} % right, {interval}"
