# SPDX-License-Identifier: Apache-2.0
"""One call of ``train``, from the float model to the written file: prepared, run in its stages, written and scored."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from litesmith.accuracy import evaluate
from litesmith.data import Dataset
from litesmith.errors import UsageError
from litesmith.machine import machine_facts
from litesmith.model import Model
from litesmith.optimize import Coverage, calibrate, quantize
from litesmith.optimize._run import input_names
from litesmith.train._cluster_schedule import ClusterSchedule
from litesmith.train._feed import Augment, Samples
from litesmith.train._lessons import Lessons, Teacher
from litesmith.train._loop import Earlier, Loop
from litesmith.train._module import GraphModule, as_float
from litesmith.train._normalization import normalize
from litesmith.train._objective import Objective, are_answers, metric_of, targets, task_of
from litesmith.train._prune_schedule import PruneSchedule, PruneTarget
from litesmith.train._quantized_graph import QuantizedGraph
from litesmith.train._result import Trained, TrainResult
from litesmith.train._wish import RECOVERY_RATE, REFINING_RATE, Stage, Wish, stages
from litesmith.train._yes_no import first_output, share_of_right_answers

if TYPE_CHECKING:
    from litesmith.train._loop import Callback, Hook, LoopSettings, Outcome

_CALIBRATION = 256


@dataclass(frozen=True)
class Teaching:
    """How the loss is made up."""

    label_weight: float
    temperature: float
    feature_weight: float


class Training:
    """One call of ``train``.

    ``learning_rate`` and ``augment`` stand beside the settings because, not given, they depend on the stage.
    """

    def __init__(
        self,
        source: Model,
        name: str,
        parts: tuple[Dataset, Dataset],
        wish: Wish,
        settings: LoopSettings,
        teaching: Teaching,
        *,
        teacher: Model | None,
        task: str,
        learning_rate: float | None,
        augment: str | None,
        store: str,
    ) -> None:
        source.verify()
        self.base = as_float(source)
        self.teacher = self.base if teacher is None else _fitting_teacher(teacher, self.base)
        self.task = task
        self.name, self.wish, self.settings, self.teaching, self.store = name, wish, settings, teaching, store
        self.learning_rate, self.augment = learning_rate, augment
        self.train, self.validation = parts
        self.notes: list[str] = []
        self.coverage: Coverage | None = None
        self.graph: QuantizedGraph | None = None
        self.module: GraphModule
        self.lessons: tuple[Lessons, Lessons] | None = None

    def run(self, checkpoint: Path | None, callback: Callback | None) -> Trained:
        """Train, write and score."""
        plan = stages(self.wish, self.settings)
        identity = self._identity() if checkpoint is not None else ""
        self.samples = Samples(self.train, self.base), Samples(self.validation, self.base)
        self._choose_task()
        student = self._shaped(self.base)
        starts: list[float] = []
        outcomes: list[Outcome] = []
        states: tuple[dict[str, Any], ...] = ()
        for number, stage in enumerate(plan):
            curve = [point for outcome in outcomes for point in outcome.curve]
            seconds = sum(outcome.seconds for outcome in outcomes)
            later = [other.settings for other in plan[number + 1 :]]
            earlier = Earlier(
                states,
                len(curve),
                seconds,
                self.settings.epochs,
                sum(settings.epochs for settings in later),
                sum(settings.minutes or 0.0 for settings in later),
            )
            loop = self._prepared(student, stage, checkpoint, identity, callback, earlier, last=stage is plan[-1])
            if outcomes and outcomes[-1].stopped == "callback":
                loop.ended = "callback"
            for hook in loop.hooks:
                hook.update(1.0 if loop.ended else 0.0)
            starts.append(loop.score())
            outcomes.append(loop.run())
            states = (*states, loop.state())
            if stage is not plan[-1]:
                student = self.module.to_model()
        model = self._written()
        original, written = self._score(self.base), self._score(model)
        return Trained(model, self._result(starts[0], outcomes, original, written), self.coverage)

    def _prepared(
        self,
        student: Model,
        stage: Stage,
        checkpoint: Path | None,
        identity: str,
        callback: Callback | None,
        earlier: Earlier,
        *,
        last: bool,
    ) -> Loop:
        if stage.refines:
            student = self._refined(student)
        self.module = GraphModule(student)
        hooks = self._hooks(stage, zeros_stay=bool(earlier.states) or self.wish.pruning == "second-order")
        if stage.refines and self.wish.qat is not None:
            self._quantize(student)
        # What is rounded to integers is simulated to the bit.
        settings = replace(stage.settings, precision="float32") if stage.refines else stage.settings
        if not _samples_are_independent(self.module, self.samples[0]):
            settings = replace(settings, batch=1)
            if last:
                self.notes.append("the graph mixes the samples of a batch: it is trained one sample at a time")
        elif stage.recovers and not stage.refines:
            normalize(self.module, self.samples[0])
        settings = replace(
            settings, learning_rate=self._rate(stage, first=not earlier.states), augment=self._augment(stage, earlier)
        )
        objective = self._objective()
        training, validation = self._lessons(objective, settings)
        return Loop(
            self.module,
            objective,
            training,
            validation,
            settings,
            hooks=hooks,
            callback=callback,
            checkpoint=checkpoint,
            identity=identity,
            earlier=earlier,
            title=self.wish.text(),
        )

    def _lessons(self, objective: Objective, settings: LoopSettings) -> tuple[Lessons, Lessons]:
        """Return the samples to train on and to score by with the teacher's answers; stages that may share them do."""
        if self.lessons is None or self.lessons[0].augment != settings.augment:
            teacher = None
            if objective.label_weight < 1.0:
                module = GraphModule(self.teacher).requires_grad_(False).eval()
                order = dict(zip(self.base.main.inputs, self.teacher.main.inputs, strict=True))
                names = {name: order[tensor] for name, tensor in input_names(self.base).items()}
                teacher = Teacher(module, objective.kept(teacher=True), names)
            epochs = None if self.settings.minutes is not None else self.settings.epochs
            block = 1 if settings.batch == 1 else 128
            options: dict[str, Any] = {"seed": settings.seed, "epochs": epochs, "block": block}
            self.lessons = (
                Lessons(self.samples[0], teacher, augment=settings.augment, **options),
                Lessons(self.samples[1], teacher, **options),
            )
        return self.lessons

    def _objective(self) -> Objective:
        labelled = self._is_labelled()
        objective = Objective(
            self.module.graph,
            self.teacher.main,
            labelled=labelled,
            label_weight=self.teaching.label_weight,
            task=self.task,
            temperature=self.teaching.temperature,
            feature_weight=self.teaching.feature_weight,
            answers=self._has_answers(),
        )
        if labelled:
            for part in self.samples:
                assert part.labels is not None
                objective.check_labels(part.labels)
        return objective

    def _rate(self, stage: Stage, *, first: bool) -> float:
        """Return the learning rate of a stage: after a recovery, what is left to do takes a tenth of its rate."""
        if self.learning_rate is not None:
            return self.learning_rate if first else self.learning_rate / 10
        return RECOVERY_RATE if stage.recovers and self.module.norms else REFINING_RATE

    def _augment(self, stage: Stage, earlier: Earlier) -> Augment:
        """Return how samples are varied; not given, images are where much has to be recovered."""
        if self.augment is not None:
            return Augment.parse(self.augment)
        shapes = [self.base.main.tensors[t].shape for t in self.base.main.inputs]
        colours = {shape[-1] for shape in shapes if len(shape) == 4}
        if not (stage.recovers or earlier.states) or not colours <= {1, 3} or not colours:
            return Augment()
        return Augment.parse("flip shift=2" if colours == {3} else "shift=1")

    def _identity(self) -> str:
        digest = hashlib.blake2b(self.base.to_bytes(), digest_size=16)
        if self.teacher is not self.base:
            digest.update(self.teacher.to_bytes())
        settings = (self.settings, self.learning_rate, self.augment, self.teaching, self.task)
        digest.update(repr((self.train.fingerprint(), self.validation.fingerprint(), self.wish, settings)).encode())
        return digest.hexdigest()

    # ---------------------------------------------------------------- the student

    def _calibration(self) -> Dataset:
        return self.train.take(_CALIBRATION, seed=self.settings.seed)

    def _shaped(self, student: Model) -> Model:
        """Return the model with fewer channels, and with zeros where these come at once."""
        if self.wish.channels is not None:
            from litesmith.train._fewer_channels import keep_work

            student = keep_work(student, self.wish.channels, self.train.take(_CALIBRATION))
        if self.wish.prune is None:
            return student
        if self.wish.pruning == "gradual":  # by size, so that sizes must mean the same in all channels
            return self._equalized(student, by_weights=True)
        from litesmith.optimize._prune import prune

        target = PruneTarget.parse(self.wish.prune)
        return prune(student, sparsity=target.sparsity, pattern=target.pattern, data=self._calibration()).model

    def _refined(self, student: Model) -> Model:
        """Return the model as its weights are about to be shared or rounded: channels of like size, values shared."""
        if self.wish.cluster is None:
            return self._equalized(student, by_weights=False) if self.wish.qat in ("int8", "mixed") else student
        from litesmith.optimize._cluster import cluster

        student = self._equalized(student, by_weights=True)
        values = self.wish.cluster if self.wish.prune is None else self.wish.cluster - 1  # 0 is one of them
        return cluster(student, clusters=values, data=self._calibration(), seed=self.settings.seed).model

    def _equalized(self, student: Model, *, by_weights: bool) -> Model:
        from litesmith.optimize._equalize import equalize
        from litesmith.optimize._segments import spread_samples

        return equalize(student, spread_samples(student, self.train, 128), per_channel=not by_weights)

    def _hooks(self, stage: Stage, *, zeros_stay: bool) -> list[Hook]:
        hooks: list[Hook] = []
        if self.wish.prune is not None:
            hooks.append(PruneSchedule(self.module, PruneTarget.parse(self.wish.prune), zeros_stay=zeros_stay))
        if stage.refines and self.wish.cluster is not None:
            hooks.append(ClusterSchedule(self.module, self.wish.cluster))
        return hooks

    def _quantize(self, student: Model) -> None:
        ranges = calibrate(student, self._calibration())
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

    # ---------------------------------------------------------------- the end

    def _written(self) -> Model:
        model = self.module.to_model() if self.graph is None else self.graph.to_model()
        if self.wish.prune is not None and self.store != "dense":
            from litesmith.optimize._prune_store import half_of, store_sparse

            model = store_sparse(model, half=half_of(self.store))
        model.verify()
        return model

    def _score(self, model: Model) -> float:
        """Return the score of a file in LiteRT, in the unit of the training's own."""
        metric = self._metric()
        reference = None if self._is_labelled() else self.teacher
        is_logistic = targets(self.base.main, self.task)[0].kind == "logistic"
        if metric == "accuracy" or (metric == "agreement" and is_logistic):
            return share_of_right_answers(model, self.validation, reference=reference)
        if metric == "closeness":
            found = evaluate(model, self.validation, metric="mse", reference=reference, output=first_output(model))
            return -found.value
        return evaluate(model, self.validation, metric=metric, reference=reference, output=first_output(model)).value

    def _metric(self) -> str:
        target = targets(self.base.main, self.task)[0]
        return metric_of(target, labelled=self._is_labelled(), answers=self._has_answers())

    def _has_answers(self) -> bool:
        """Say whether the labels are a yes or no for each score."""
        labels = self.samples[0].labels
        return labels is not None and are_answers(targets(self.base.main, self.task)[0], labels)

    def _is_labelled(self) -> bool:
        return all(part.labels is not None for part in self.samples)

    def _choose_task(self) -> None:
        """Decide what the outputs are where nobody said it; a guess is noted."""
        labels = self.samples[0].labels
        has_fractions = labels is not None and task_of(self.base.main, labels)[0] == "values"
        if self.task == "classes" and has_fractions:
            raise UsageError("the labels are numbers with fractions, no classes; leave out task, or take task=values")
        if self.task != "auto":
            return
        self.task, is_guess = task_of(self.base.main, labels)
        if is_guess:
            count = targets(self.base.main)[0].classes
            self.notes.append(
                f"the {count} outputs were taken for class scores, as there is neither a SOFTMAX nor a label that tells; "
                "task=values (--task values) compares them as numbers"
            )

    def _result(self, start: float, outcomes: list[Outcome], original: float, written: float) -> TrainResult:
        return TrainResult(
            model=self.name,
            recipe=self.wish.text(),
            metric=self._metric(),
            samples=len(self.train),
            validation=len(self.validation),
            original=original,
            start=start,
            simulated=outcomes[-1].best_score,
            written=written,
            best_epoch=outcomes[-1].best_epoch,
            stopped=outcomes[-1].stopped,
            seconds=sum(outcome.seconds for outcome in outcomes),
            curve=tuple(point for outcome in outcomes for point in outcome.curve),
            notes=tuple(self.notes),
            machine=machine_facts(),
        )


def _fitting_teacher(teacher: Model, student: Model) -> Model:
    """Return another model to learn from, in float; raise where its inputs or outputs are not those of the student."""
    teacher.verify()
    found = as_float(teacher)
    for what in ("inputs", "outputs"):
        theirs, ours = ([m.main.tensors[t].shape for t in getattr(m.main, what)] for m in (found, student))
        if theirs != ours:
            raise UsageError(
                f"the teacher has {what} of the shapes {_shapes(theirs)}, the model {_shapes(ours)}; one model can teach "
                "another only where both read and write the same"
            )
    return found


def _shapes(shapes: Sequence[tuple[int, ...]]) -> str:
    return ", ".join("×".join(map(str, shape)) for shape in shapes)


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
