# SPDX-License-Identifier: Apache-2.0
"""`litesmith train`: quantization, zeros, clusters and fewer channels, trained in; it starts from a .tflite."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from litesmith.cli import _output as out
from litesmith.cli._files import check_writable
from litesmith.report._page import Bars, Page, Section, table, write
from litesmith.train import Trained, TrainResult, train


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("train")(command)


def command(
    model: Annotated[Path, typer.Argument(help="The .tflite file to start from.")],
    data: Annotated[str, typer.Option(help="Samples to train on: .npz, .npy, folder, .csv, module:function.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The .tflite to write.")],
    qat: Annotated[str | None, typer.Option(help="Quantize while training: int8, int16x8 or mixed.")] = None,
    prune: Annotated[str | None, typer.Option(help="Zeros and their pattern: 0.8, 0.8@4x1, 0.5@2:4.")] = None,
    pruning: Annotated[str, typer.Option(help="How zeros come: second-order or gradual.")] = "second-order",
    cluster: Annotated[int | None, typer.Option(help="How many values the weights of a layer share.")] = None,
    channels: Annotated[float | None, typer.Option(help="Share of the work to keep by removing channels.")] = None,
    preprocess: Annotated[str | None, typer.Option(help="How samples become inputs, e.g. 'scale=1/255'.")] = None,
    labels: Annotated[str | None, typer.Option(help="A file of labels, or an array of the .npz.")] = None,
    distill: Annotated[bool, typer.Option("--distill", help="Learn from the float model alone, not labels.")] = False,
    teacher: Annotated[
        Path | None, typer.Option(help="A larger .tflite to learn from instead of the float model itself.")
    ] = None,
    task: Annotated[str, typer.Option(help="What the outputs are: auto, classes or values.")] = "auto",
    validation: Annotated[str | None, typer.Option(help="Other samples to score by; else a tenth of the data.")] = None,
    epochs: Annotated[
        int | None, typer.Option(help="How often all samples are seen; 5, or 16 with --prune or --channels.")
    ] = None,
    minutes: Annotated[float | None, typer.Option(help="Train for a time instead.")] = None,
    batch: Annotated[int, typer.Option(help="Samples a step.")] = 64,
    learning_rate: Annotated[
        float | None, typer.Option(help="The largest one; 3e-4, or 2e-3 with --prune or --channels.")
    ] = None,
    optimizer: Annotated[str, typer.Option(help="adamw or sgd.")] = "adamw",
    schedule: Annotated[str, typer.Option(help="cosine, linear or constant.")] = "cosine",
    weight_decay: Annotated[float, typer.Option(help="Of the optimizer.")] = 0.0,
    clip: Annotated[float, typer.Option(help="The largest norm of the gradient; 0 for any.")] = 1.0,
    augment: Annotated[
        str | None, typer.Option(help="How samples are varied: 'flip shift=2 mix=0.5 noise=0.05', or none.")
    ] = None,
    label_weight: Annotated[float, typer.Option(help="Share of the labels in the loss.")] = 0.3,
    temperature: Annotated[float, typer.Option(help="Softens scores that are compared.")] = 4.0,
    feature_weight: Annotated[float, typer.Option(help="Weight of what the last layer reads.")] = 0.0,
    average: Annotated[
        float, typer.Option(help="Keep the running average of the weights: the share that outlives a step, 0.999.")
    ] = 0.0,
    precision: Annotated[
        str, typer.Option(help="While recovering: float32, or bfloat16 for processors with AMX or AVX-512 BF16.")
    ] = "float32",
    patience: Annotated[int | None, typer.Option(help="Stop after so many epochs without gain.")] = None,
    rule: Annotated[
        list[str] | None, typer.Option(help="Another scheme for some operators, 'float:SOFTMAX'. Again for more.")
    ] = None,
    head: Annotated[str, typer.Option(help="The last layer: auto, same, float, dynamic or weights8.")] = "auto",
    io: Annotated[str, typer.Option(help="Type of inputs and outputs: float, int8 or int16.")] = "float",
    store: Annotated[str, typer.Option(help="How zeros are written: dense, sparse or sparse16.")] = "dense",
    seed: Annotated[int, typer.Option(help="Of the order, the augmentation and the split.")] = 0,
    threads: Annotated[int | None, typer.Option(help="That PyTorch uses; all by default.")] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Keeps the state; a killed run goes on from it. Default: OUTPUT.checkpoint.")
    ] = None,
    report: Annotated[Path | None, typer.Option(help="An .html page with the curves.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Train a model with its optimization in the loop: the float model teaches, labels are optional.

    Example: `litesmith train model.tflite --data photos/ --preprocess 'resize=224 scale=1/255' --qat int8 -o int8.tflite`
    """
    check_writable(output, checkpoint, report)
    state = checkpoint or output.with_name(f"{output.name}.checkpoint")
    trained = train(
        model,
        data,
        qat=qat,
        prune=prune,
        pruning=pruning,
        cluster=cluster,
        channels=channels,
        preprocess=preprocess,
        labels=labels,
        distill=distill,
        teacher=teacher,
        task=task,
        validation=validation,
        epochs=epochs,
        minutes=minutes,
        batch=batch,
        learning_rate=learning_rate,
        optimizer=optimizer,
        schedule=schedule,
        weight_decay=weight_decay,
        clip=clip,
        augment=augment,
        label_weight=label_weight,
        temperature=temperature,
        feature_weight=feature_weight,
        average=average,
        precision=precision,
        patience=patience,
        rules=tuple(rule or ()),
        head=head,
        io=io,
        store=store,
        seed=seed,
        threads=threads,
        checkpoint=state,
    )
    trained.model.save(output)
    state.unlink(missing_ok=True)
    if json:
        out.json(trained.result)
    else:
        show(trained, model, output)
    if report is not None:
        write(page(trained.result), report)


def show(trained: Trained, before: Path, after: Path) -> None:
    """Print a training for people."""
    result = trained.result
    sizes = before.stat().st_size, after.stat().st_size
    share = f"{100 * sizes[1] / sizes[0]:.0f} %"
    lost = f"{_number(result, result.original - result.written)} lost"
    scores = [("original", result.original), ("before training", result.start), ("in PyTorch", result.simulated)]
    epochs = "1 epoch" if len(result.curve) == 1 else f"{len(result.curve)} epochs"
    work = f"{epochs} of {result.samples:,} samples in {result.seconds:.0f} s"
    out.facts(
        [
            ("written", f"{after}, {out.bytes_text(sizes[1])}, {share} of {out.bytes_text(sizes[0])}"),
            ("recipe", result.recipe),
            ("trained", f"{work}, stopped by {result.stopped}; epoch {result.best_epoch} kept"),
            (result.metric, f"{_number(result, result.written)} on {result.validation:,} validation samples, {lost}"),
            ("", ", ".join(f"{name} {_number(result, value)}" for name, value in scores)),
        ]
    )
    out.heading("Epochs")
    rows = [
        (e.epoch, f"{e.loss:.4g}", _number(result, e.score), f"{e.learning_rate:.2g}", f"{e.seconds:.0f}")
        for e in result.curve
    ]
    out.table(["epoch", "loss", result.metric, "rate", "seconds"], rows, left=0)
    for note in result.notes:
        out.line(f"! {note}")


def _number(result: TrainResult, value: float) -> str:
    return f"{value:.4g}" if result.metric == "closeness" else f"{100 * value:.2f} %"


def page(result: TrainResult) -> Page:
    """Return a training as a page."""
    rows = [
        (e.epoch, f"{e.loss:.4g}", _number(result, e.score), f"{e.learning_rate:.2g}", f"{e.seconds:.0f}")
        for e in result.curve
    ]
    scores = (("original", result.original), ("before training", result.start), ("trained", result.written))
    bars = Bars("loss", tuple((f"epoch {e.epoch}", e.loss, f"{e.loss:.4g}") for e in result.curve))
    return Page(
        title=f"Training of {result.model}",
        summary=f"{result.recipe}: {result.metric} {_number(result, result.written)}, "
        f"{_number(result, result.original)} before.",
        facts=tuple((name, _number(result, value)) for name, value in scores),
        sections=(
            Section("Loss", bars=bars),
            Section("Epochs", table=table(["epoch", "loss", result.metric, "rate", "seconds"], rows, left=0)),
        ),
    )
