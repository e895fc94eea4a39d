# SPDX-License-Identifier: Apache-2.0
"""Train a `.tflite` with its optimization in the loop: quantized, pruned, clustered, with fewer channels, or all of it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from litesmith.data import Dataset
from litesmith.errors import DataError, UsageError
from litesmith.model import Model
from litesmith.optimize import Coverage, Rule, calibrate, quantize
from litesmith.train._result import Trained, TrainResult
from litesmith.train._torch import require_torch

if TYPE_CHECKING:
    from litesmith.train._loop import Callback, Hook, Loop, LoopSettings, Outcome
    from litesmith.train._module import GraphModule
    from litesmith.train._quantized_graph import QuantizedGraph

QAT = ("int8", "int16x8", "mixed")
PRUNING = ("second-order", "gradual")
_CALIBRATION = 256
_VALIDATION = 0.1


@dataclass(frozen=True)
class _Wish:
    """What is trained for."""

    qat: str | None
    prune: str | None
    pruning: str
    cluster: int | None
    channels: float | None
    rules: tuple[str, ...]
    head: str
    io: str

    def text(self) -> str:
        """Return it as a recipe."""
        from litesmith.train._prune_schedule import PruneTarget

        steps = [] if self.channels is None else [f"channels({self.channels:g})"]
        steps += [] if self.prune is None else [str(PruneTarget.parse(self.prune))]
        steps += [] if self.cluster is None else [f"cluster({self.cluster})"]
        steps += [] if self.qat is None else [" + ".join([self.qat, *self.rules])]
        return " → ".join(steps) or "float"


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
    validation: Any = None,
    epochs: int = 5,
    minutes: float | None = None,
    batch: int = 64,
    learning_rate: float = 3e-4,
    optimizer: str = "adamw",
    schedule: str = "cosine",
    weight_decay: float = 0.0,
    clip: float = 1.0,
    augment: str = "none",
    label_weight: float = 0.5,
    temperature: float = 2.0,
    feature_weight: float = 0.0,
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
            for it, and trains what is left; "gradual" zeroes small weights little by little while it trains.
        cluster: how many values the weights of a layer share.
        channels: the share of multiply-accumulates to keep by removing channels.
        preprocess: what is done to each sample.
        labels: instead of the data's own; see ``Dataset.open``.
        distill: leave labels out of the loss, even where there are some; they are still scored by.
        validation: other samples to score by; without, a tenth of the data, chosen by content.
        epochs: how often all samples are seen.
        minutes: train for a time instead; such a run depends on the machine.
        batch: samples a step.
        learning_rate: the largest one; learned scales move ten times as fast.
        optimizer: "adamw" or "sgd" (with momentum 0.9).
        schedule: "cosine", "linear" or "constant".
        weight_decay: of the optimizer.
        clip: the largest norm of the gradient; 0 for any.
        augment: how samples are varied: "flip shift=2 noise=0.05", or "none".
        label_weight: the share of the labels in the loss; the teacher has the rest.
        temperature: by which scores are divided before teacher and student are compared.
        feature_weight: adds the distance of what the last layer reads.
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
    from litesmith.train import _loop
    from litesmith.train._feed import Augment

    wish = _Wish(qat, prune, pruning, cluster, channels, tuple(map(str, rules)), head, io)
    _check(wish, label_weight, store)
    settings = _loop.LoopSettings(
        epochs=epochs,
        minutes=minutes,
        batch=batch,
        learning_rate=learning_rate,
        optimizer=optimizer,
        schedule=schedule,
        weight_decay=weight_decay,
        clip=clip,
        augment=Augment.parse(augment),
        patience=patience,
        seed=seed,
    )
    loss = {"label_weight": label_weight, "temperature": temperature, "feature_weight": feature_weight}
    source = model if isinstance(model, Model) else Model.load(model)
    name = Path(model).name if not isinstance(model, Model) else source.source.name if source.source else "model"
    parts = _parts(data, preprocess, labels, validation, seed)
    with _loop.threads(threads):
        return _Training(source, name, parts, wish, settings, loss, distill=distill, store=store).run(
            None if checkpoint is None else Path(checkpoint), callback
        )


def _check(wish: _Wish, label_weight: float, store: str) -> None:
    from litesmith.optimize._prune_store import check_store
    from litesmith.train._prune_schedule import PruneTarget

    if wish.qat is not None and wish.qat not in QAT:
        raise UsageError(f"qat cannot be {wish.qat!r}; choose one of {', '.join(QAT)}")
    if wish.prune is not None:
        PruneTarget.parse(wish.prune)
    if wish.cluster is not None and not 3 <= wish.cluster <= 256:
        raise UsageError(f"{wish.cluster} clusters cannot be trained; give 3 to 256")
    if wish.cluster is not None and wish.prune is not None and wish.pruning == "gradual":
        raise UsageError("clusters keep the zeros that they begin with; with both, take pruning=second-order")
    if wish.pruning not in PRUNING:
        raise UsageError(f"pruning cannot be {wish.pruning!r}; choose one of {', '.join(PRUNING)}")
    if wish.channels is not None and not 0 < wish.channels < 1:
        raise UsageError(f"channels is the share of the work to keep, above 0 and below 1, not {wish.channels}")
    if not 0 <= label_weight <= 1:
        raise UsageError(f"the weight of the labels is a share from 0 to 1, not {label_weight}")
    if wish.qat is None and (wish.rules or wish.io != "float"):
        raise UsageError("rules and io are for quantized models; give qat as well")
    check_store(store)


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


class _Training:
    """One call of ``train``: prepared, run, written and scored."""

    def __init__(
        self,
        source: Model,
        name: str,
        parts: tuple[Dataset, Dataset],
        wish: _Wish,
        settings: LoopSettings,
        loss: dict[str, float],
        *,
        distill: bool,
        store: str,
    ) -> None:
        from litesmith.train._module import as_float

        source.verify()
        self.base = as_float(source)
        self.name, self.wish, self.settings, self.loss, self.store = name, wish, settings, loss, store
        self.train, self.validation = parts
        self.distill = distill
        self.notes: list[str] = []
        self.coverage: Coverage | None = None
        self.graph: QuantizedGraph | None = None
        self.module: GraphModule

    def run(self, checkpoint: Path | None, callback: Callback | None) -> Trained:
        """Train, write and score."""
        loop = self._prepared(checkpoint, callback)
        for hook in loop.hooks:
            hook.update(0.0)
        start = loop.score()
        outcome = loop.run()
        model = self._written()
        original, written = self._score(self.base), self._score(model)
        return Trained(model, self._result(start, outcome, original, written), self.coverage)

    def _prepared(self, checkpoint: Path | None, callback: Callback | None) -> Loop:
        from litesmith.train._feed import Samples
        from litesmith.train._loop import Loop
        from litesmith.train._module import GraphModule
        from litesmith.train._objective import Objective

        student = self._student()
        self.module = GraphModule(student)
        hooks = self._hooks()
        if self.wish.qat is not None:
            self._quantize(student)
        training, validation = Samples(self.train, self.base), Samples(self.validation, self.base)
        labelled = training.labels is not None and validation.labels is not None
        weight = 0.0 if self.distill else self.loss["label_weight"]
        objective = Objective(
            self.module.graph,
            self.base.main,
            labelled=labelled,
            label_weight=weight,
            temperature=self.loss["temperature"],
            feature_weight=self.loss["feature_weight"],
        )
        if labelled and training.labels is not None:
            objective.check_labels(training.labels)
        teacher = None if weight == 1.0 and labelled else GraphModule(self.base).requires_grad_(False).eval()
        block = 128
        if not _samples_are_independent(self.module, training):
            self.settings, block = replace(self.settings, batch=1), 1
            self.notes.append("the graph mixes the samples of a batch: it is trained one sample at a time")
        return Loop(
            self.module,
            teacher,
            objective,
            training,
            validation,
            self.settings,
            hooks=hooks,
            callback=callback,
            checkpoint=checkpoint,
            identity=self._identity() if checkpoint is not None else "",
            title=self.wish.text(),
            block=block,
        )

    def _identity(self) -> str:
        digest = hashlib.blake2b(self.base.to_bytes(), digest_size=16)
        parts = (self.train.fingerprint(), self.validation.fingerprint(), self.wish, sorted(self.loss.items()))
        digest.update(repr((*parts, self.distill)).encode())
        return digest.hexdigest()

    def _student(self) -> Model:
        student = self.base
        if self.wish.channels is not None:
            from litesmith.train._fewer_channels import keep_work

            student = keep_work(student, self.wish.channels, self.train.take(_CALIBRATION))
        student = self._equalized(student)
        if self.wish.prune is not None and self.wish.pruning == "second-order":
            from litesmith.optimize._prune import prune
            from litesmith.train._prune_schedule import PruneTarget

            target = PruneTarget.parse(self.wish.prune)
            samples = self.train.take(_CALIBRATION, seed=self.settings.seed)
            student = prune(student, sparsity=target.sparsity, pattern=target.pattern, data=samples).model
        return student if self.wish.cluster is None else self._clustered(student, self.wish.cluster)

    def _clustered(self, student: Model, count: int) -> Model:
        """Return the model with so many values in each layer's weights, 0 among them where it is pruned."""
        from litesmith.optimize._cluster import cluster

        values = count if self.wish.prune is None else count - 1
        samples = self.train.take(_CALIBRATION, seed=self.settings.seed)
        return cluster(student, clusters=values, data=samples, seed=self.settings.seed).model

    def _equalized(self, student: Model) -> Model:
        """Return the model with channels of like size, by weights where these share values or are cut by size."""
        from litesmith.optimize._equalize import equalize
        from litesmith.optimize._segments import spread_samples

        by_weights = self.wish.cluster is not None or (self.wish.prune is not None and self.wish.pruning == "gradual")
        if not by_weights and self.wish.qat not in ("int8", "mixed"):
            return student
        return equalize(student, spread_samples(student, self.train, 128), per_channel=not by_weights)

    def _hooks(self) -> list[Hook]:
        from litesmith.train._cluster_schedule import ClusterSchedule
        from litesmith.train._prune_schedule import PruneSchedule, PruneTarget

        hooks: list[Hook] = []
        if self.wish.prune is not None:
            ready = self.wish.pruning == "second-order"
            hooks.append(PruneSchedule(self.module, PruneTarget.parse(self.wish.prune), zeros_stay=ready))
        if self.wish.cluster is not None:
            hooks.append(ClusterSchedule(self.module, self.wish.cluster))
        return hooks

    def _quantize(self, student: Model) -> None:
        from litesmith.train._quantized_graph import QuantizedGraph

        ranges = calibrate(student, self.train.take(_CALIBRATION, seed=self.settings.seed))
        rules = [*_recurrent_rules(student), *self.wish.rules]
        if self.wish.qat == "mixed":
            from litesmith.train._sensitivity import sensitive_operators

            chosen = sensitive_operators(student, ranges, self.train, head=self.wish.head)
            rules = [*(f"int16x8:#{index}" for index in chosen), *rules]
            self.notes.append(f"in int16x8: operators {', '.join(f'#{index}' for index in chosen) or 'none'}")
        scheme = "int16x8" if self.wish.qat == "int16x8" else "int8"
        planned = quantize(
            student, scheme=scheme, ranges=ranges, rules=rules, recover=(), io=self.wish.io, head=self.wish.head
        )
        self.coverage = planned.coverage
        # With clusters, one scale for a layer: else the same value would be another integer in each channel.
        self.graph = QuantizedGraph(self.module, planned.model, shared_scales=self.wish.cluster is not None)

    def _written(self) -> Model:
        model = self.module.to_model() if self.graph is None else self.graph.to_model()
        if self.wish.prune is not None and self.store != "dense":
            from litesmith.optimize._prune_store import store_sparse

            model = store_sparse(model, half=self.store == "sparse16")
        model.verify()
        return model

    def _score(self, model: Model) -> float:
        """Return the score of a file in LiteRT, in the unit of the training's own."""
        from litesmith.accuracy import evaluate

        metric = self._metric()
        if metric == "closeness":
            return -evaluate(model, self.validation, metric="mse", reference=self.base).value
        reference = self.base if metric == "agreement" else None
        return evaluate(model, self.validation, metric=metric, reference=reference).value

    def _metric(self) -> str:
        from litesmith.train._objective import targets

        if not targets(self.base.main)[0].classes:
            return "closeness"
        labelled = self.train.labels is not None and self.validation.labels is not None
        return "top1" if labelled else "agreement"

    def _result(self, start: float, outcome: Outcome, original: float, written: float) -> TrainResult:
        return TrainResult(
            model=self.name,
            recipe=self.wish.text(),
            metric=self._metric(),
            samples=len(self.train),
            validation=len(self.validation),
            original=original,
            start=start,
            simulated=outcome.best_score,
            written=written,
            best_epoch=outcome.best_epoch,
            stopped=outcome.stopped,
            seconds=outcome.seconds,
            curve=tuple(outcome.curve),
            notes=tuple(self.notes),
        )


def _recurrent_rules(model: Model) -> list[str]:
    """Return rules for cells whose integer arithmetic has states of its own: float states, 8-bit weights."""
    kinds = {op.kind for op in model.main.operators}
    return ["dynamic:UNIDIRECTIONAL_SEQUENCE_LSTM"] if "UNIDIRECTIONAL_SEQUENCE_LSTM" in kinds else []


def _samples_are_independent(module: GraphModule, samples: Any) -> bool:
    """Say whether the samples of a batch can be told apart in the outputs: two at once are as one after the other."""
    import torch

    both = samples.inputs(np.arange(min(2, len(samples))))
    module.eval()
    with torch.no_grad():
        together = module.run(module.feed(both))
        for number in range(len(next(iter(both.values())))):
            alone = module.run(module.feed({name: x[number : number + 1] for name, x in both.items()}))
            for tensor, value in together.items():
                rows = alone[tensor].shape[0]
                part = value[number * rows : (number + 1) * rows]
                if part.shape != alone[tensor].shape or not torch.allclose(part, alone[tensor], rtol=0.02, atol=1e-2):
                    return False
    return True
