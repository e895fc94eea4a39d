# SPDX-License-Identifier: Apache-2.0
"""Train a `.tflite` with its optimization in the loop: quantized, pruned, clustered, with fewer channels, or all of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from litesmith.data import Dataset
from litesmith.errors import DataError, UsageError
from litesmith.model import Model
from litesmith.optimize import Rule
from litesmith.train._result import Trained
from litesmith.train._torch import require_torch
from litesmith.train._wish import Wish, default_epochs

if TYPE_CHECKING:
    from litesmith.train._loop import Callback

_VALIDATION = 0.1


def train(
    model: Model | str | Path,
    data: Any,
    *,
    qat: str | None = None,
    prune: str | None = None,
    pruning: str = "second-order",
    cluster: int | None = None,
    channels: float | None = None,
    preprocess: Any = None,
    labels: Any = None,
    distill: bool = False,
    teacher: Model | str | Path | None = None,
    task: str = "auto",
    validation: Any = None,
    epochs: int | None = None,
    minutes: float | None = None,
    batch: int = 64,
    learning_rate: float | None = None,
    optimizer: str = "adamw",
    schedule: str = "cosine",
    weight_decay: float = 0.0,
    clip: float = 1.0,
    augment: str | None = None,
    label_weight: float = 0.3,
    temperature: float = 4.0,
    feature_weight: float = 0.0,
    average: float = 0.0,
    precision: str = "float32",
    patience: int | None = None,
    rules: Sequence[Rule | str] = (),
    head: str = "auto",
    io: str = "float",
    store: str = "dense",
    seed: int = 0,
    threads: int | None = None,
    checkpoint: str | Path | None = None,
    callback: Callback | None = None,
) -> Trained:
    """Train a model with its optimization in the loop, and return it in its final form.

    By default the float model is the teacher and the data needs no labels. Labels that are there are mixed in.

    Args:
        model: a `.tflite`, or a Model; a quantized one becomes float first.
        data: samples to train on, anything that ``Dataset.open`` takes.
        qat: "int8", "int16x8", or "mixed": int8 with the most sensitive layers in int16x8.
        prune: the share of zeros and their pattern: "0.8", "0.8@4x1" or "0.5@2:4".
        pruning: "second-order" begins with the zeros that disturb the layers least, the other weights moved to make up
            for it, and trains what is left; "gradual" zeroes small weights little by little while it trains, and
            needs more epochs.
        cluster: how many values the weights of a layer share.
        channels: the share of multiply-accumulates to keep by removing channels.
        preprocess: what is done to each sample.
        labels: instead of the data's own; see ``Dataset.open``.
        distill: leave labels out of the loss, even where there are some; they are still scored by.
        teacher: another model to learn from, such as a larger one for the same inputs and classes; by default it is the
            model itself, in float.
        task: what lists of numbers that the model returns are: scores of "classes", or "values"; "auto" goes by the labels,
            or by a SOFTMAX.
        validation: other samples to score by; without, a tenth of the data, chosen by content.
        epochs: how often all samples are seen; by default 5, and 16 with zeros or fewer channels. With these three
            quarters go to the recovery in float where values are to be shared or rounded as well.
        minutes: train for a time instead; such a run depends on the machine.
        batch: samples a step.
        learning_rate: the largest one; by default 2e-3 for a recovery behind which layers are normalized, else 3e-4.
            Values that are shared or rounded after a recovery take a tenth of it, and learned scales ten times as much.
        optimizer: "adamw" or "sgd" (with momentum 0.9).
        schedule: "cosine", "linear" or "constant".
        weight_decay: of the optimizer.
        clip: the largest norm of the gradient; 0 for any.
        augment: how samples are varied: "flip shift=2 mix=0.5 noise=0.05", or "none"; by default, with zeros or fewer
            channels, "flip shift=2" for colour and "shift=1" for gray images, else "none".
        label_weight: the share of the labels in the loss; the teacher has the rest.
        temperature: by which scores are divided before teacher and student are compared.
        feature_weight: adds the distance of what the last layer reads.
        average: score and keep the running average of the weights, of which this share outlives a step: 0.999. It begins
            when all zeros and clusters are in place.
        precision: of the products while zeros or fewer channels are recovered from: "bfloat16" takes half of the time with
            AMX, about three quarters of it with AVX-512 BF16 alone, and longer elsewhere.
        patience: stop after so many epochs without a better score.
        rules: other schemes for single operators, as in ``quantize``.
        head: the scheme of the last layer, as in ``quantize``.
        io: the type of inputs and outputs of a quantized model: "float", "int8" or "int16".
        store: how pruned weights are written: "dense", "sparse" or "sparse16".
        seed: of the order, the augmentation and the validation split.
        threads: that PyTorch uses; all by default.
        checkpoint: a file for the state, from which a killed run goes on; the caller removes it.
        callback: called with a ``TrainEvent`` at the end of each epoch; return False to stop.

    Raises:
        MissingExtraError: PyTorch is not installed.
    """
    require_torch("training")
    from litesmith.optimize._prune_store import check_store
    from litesmith.train import _loop
    from litesmith.train._feed import Augment
    from litesmith.train._objective import TASKS
    from litesmith.train._training import Teaching, Training
    from litesmith.train._wish import stages

    wish = Wish(qat, prune, pruning, cluster, channels, tuple(map(str, rules)), head, io)
    wish.check()
    if task not in TASKS:
        raise UsageError(f"there is no task {task!r}; choose one of {', '.join(TASKS)}")
    check_store(store)
    if not 0 <= label_weight <= 1:
        raise UsageError(f"the weight of the labels is a share from 0 to 1, not {label_weight}")
    settings = _loop.LoopSettings(
        epochs=default_epochs(recovers=wish.recovers) if epochs is None else epochs,
        minutes=minutes,
        batch=batch,
        learning_rate=1.0 if learning_rate is None else learning_rate,
        optimizer=optimizer,
        schedule=schedule,
        weight_decay=weight_decay,
        clip=clip,
        augment=Augment.parse(augment or "none"),
        average=average,
        precision=precision,
        patience=patience,
        seed=seed,
    )
    stages(wish, settings)
    teaching = Teaching(0.0 if distill else label_weight, temperature, feature_weight)
    source = _loaded(model)
    name = Path(model).name if not isinstance(model, Model) else source.source.name if source.source else "model"
    parts = _parts(data, preprocess, labels, validation, seed)
    with _loop.threads(threads):
        training = Training(
            source,
            name,
            parts,
            wish,
            settings,
            teaching,
            teacher=None if teacher is None else _loaded(teacher),
            task=task,
            learning_rate=learning_rate,
            augment=augment,
            store=store,
        )
        return training.run(None if checkpoint is None else Path(checkpoint), callback)


def _loaded(model: Model | str | Path) -> Model:
    return model if isinstance(model, Model) else Model.load(model)


def _parts(data: Any, preprocess: Any, labels: Any, validation: Any, seed: int) -> tuple[Dataset, Dataset]:
    opened = Dataset.open(data, preprocess=preprocess, labels=labels)
    if validation is not None:
        return opened, Dataset.open(validation, preprocess=None if isinstance(validation, Dataset) else preprocess)
    if len(opened) < 20:
        raise DataError(
            f"{len(opened)} samples are too few to train on and to score by; give 20 or more, or validation"
        )
    parts = opened.split(seed=seed, train=1 - _VALIDATION, validation=_VALIDATION)
    return parts["train"], parts["validation"]
