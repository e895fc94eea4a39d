# SPDX-License-Identifier: Apache-2.0
"""Transfer learning: a classifier of the user's own classes from a backbone of the zoo or any classifier `.tflite`.

First the head alone is fitted to the features of the frozen backbone. Then all layers are trained with a small step, or,
where the backbone has random weights, with batch normalization in between that is folded away at the end. What scores
best on the validation samples is kept; the reported accuracy is of other samples that neither step has seen.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from litesmith import zoo
from litesmith.accuracy import Evaluation, evaluate
from litesmith.data import Preprocess
from litesmith.errors import UsageError
from litesmith.model import Model
from litesmith.optimize import quantize
from litesmith.result import Result
from litesmith.train._metadata import meaning_of, with_metadata
from litesmith.train._metadata_read import Normalization, normalization_of
from litesmith.train._result import Epoch
from litesmith.train._retrain_data import ClassData, class_data, is_sound
from litesmith.train._torch import require_torch

if TYPE_CHECKING:
    from litesmith.train._loop import Callback, LoopSettings
    from litesmith.train._module import GraphModule

_CALIBRATION = 200
_SECONDS_OF_SOUND = 1
USUAL_NORMALIZATION = Normalization((127.5,), (127.5,))


@dataclass(frozen=True)
class Score:
    """The accuracy of one file on samples that training has not seen, with its 95 % interval."""

    accuracy: float
    low: float
    high: float
    size_bytes: int


@dataclass(frozen=True)
class RetrainResult(Result, kind="retrain", schema=1):
    """What retraining did.

    Attributes:
        base: the backbone.
        classes: their names, in the order of the output.
        counts: samples of each class.
        samples: how many were trained on, chosen by and scored by.
        preprocess: what is done to each sample, by the user of the file as well.
        head: validation accuracy with the backbone frozen.
        validation: validation accuracy of what was kept.
        kept: "head" where fine-tuning made nothing better, else "fine-tuned".
        float32, int8: the scores of the two files.
        confusion: of the float file: a row for each true class, a column for each answer.
        curve: every epoch of fine-tuning.
        seconds: of fine-tuning.
        notes: what a reader should know.
    """

    base: str
    classes: tuple[str, ...]
    counts: tuple[int, ...]
    samples: tuple[int, int, int]
    preprocess: str
    head: float
    validation: float
    kept: str
    float32: Score
    int8: Score
    confusion: tuple[tuple[int, ...], ...]
    curve: tuple[Epoch, ...]
    seconds: float
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Retrained:
    """The classifier in float and in int8, both with labels inside, and how good they are."""

    model: Model
    quantized: Model
    result: RetrainResult


def retrain(
    base: Model | str | Path,
    data: Any,
    *,
    weights: str | Path | None = None,
    width: float = 1.0,
    resolution: int | None = None,
    preprocess: Any = None,
    epochs: int = 10,
    minutes: float | None = None,
    batch: int = 32,
    learning_rate: float | None = None,
    optimizer: str = "adamw",
    augment: str | None = None,
    patience: int | None = None,
    freeze: bool = False,
    seed: int = 0,
    threads: int | None = None,
    checkpoint: str | Path | None = None,
    callback: Callback | None = None,
) -> Retrained:
    """Make a classifier of your own classes from a backbone.

    Args:
        base: an architecture of the zoo, such as "mobilenet_v2", or a classifier `.tflite` whose head is replaced.
        data: a folder with one subfolder of images, sounds or `.npy` files a class, or any labelled data.
        weights: a checkpoint for a backbone of the zoo; without, it begins with random weights.
        width: of a backbone of the zoo.
        resolution: of a backbone of the zoo.
        preprocess: what is done to each sample; by default what the backbone takes: as the metadata of a `.tflite` declares
            it, else pixels from -1 to 1, which is noted where it is a guess.
        epochs: of fine-tuning.
        minutes: fine-tune for a time instead.
        batch: samples a step.
        learning_rate: by default 2e-3 for random and 2e-4 for trained weights.
        optimizer: "adamw" or "sgd".
        augment: how samples are varied; by default "flip shift=2" for colour images, "shift=2" for gray ones.
        patience: stop after so many epochs without a better score.
        freeze: train the head alone.
        seed: of the division, the order and the augmentation.
        threads: that PyTorch uses; all by default.
        checkpoint: a file for the state of fine-tuning, from which a killed run goes on.
        callback: called with a ``TrainEvent`` at the end of each epoch; return False to stop.

    Raises:
        MissingExtraError: PyTorch is not installed.
        DataError: one class, too few samples, or files that cannot be read.
    """
    require_torch("retraining")
    from litesmith.train import _loop
    from litesmith.train._feed import Augment

    backbone = _backbone(base, weights, width, resolution)
    source, name, random = backbone.model, backbone.name, backbone.random
    declared = Preprocess.of(preprocess) if preprocess is not None else default_preprocess(backbone, data)
    shape = source.main.tensors[source.main.inputs[0]].shape
    found = class_data(data, declared, shape, seed)
    if augment is None:
        augment = "none" if is_sound(data) or len(shape) != 4 else "flip shift=2" if shape[-1] == 3 else "shift=2"
    settings = _loop.LoopSettings(
        epochs=epochs,
        minutes=minutes,
        batch=batch,
        learning_rate=learning_rate or (2e-3 if random else 2e-4),
        optimizer=optimizer,
        augment=Augment.parse(augment),
        patience=patience,
        seed=seed,
    )
    with _loop.threads(threads):
        run = _Retraining(source, name, found, declared, settings, random=random)
        if preprocess is None and backbone.is_guessed(declared):
            run.notes.append(
                f"the base has no metadata that tells how its images are normalized: '{declared}' is a guess, and a wrong "
                "one costs accuracy; preprocess (--preprocess) sets what it was trained with"
            )
        return run.run(freeze=freeze, checkpoint=None if checkpoint is None else Path(checkpoint), callback=callback)


@dataclass(frozen=True)
class Backbone:
    """What a classifier is made from.

    Attributes:
        model: in float.
        name: of the architecture or the file.
        random: whether its weights are.
        is_file: whether it is no architecture of the zoo, of which is known what it takes.
        normalization: of its images, where its metadata declares one.
    """

    model: Model
    name: str
    random: bool
    is_file: bool = False
    normalization: Normalization | None = None

    def is_guessed(self, preprocess: Preprocess) -> bool:
        """Say whether the normalization in a default preprocessing is one that nobody declared."""
        return self.is_file and self.normalization is None and preprocess.std is not None


def _backbone(base: Model | str | Path, weights: str | Path | None, width: float, resolution: int | None) -> Backbone:
    from litesmith.train._module import as_float

    if isinstance(base, str) and not base.endswith(".tflite") and not Path(base).is_file():
        built = zoo.build(base, width=width, resolution=resolution, weights=weights)
        return Backbone(built, base, weights is None)
    if weights is not None or width != 1.0 or resolution is not None:
        raise UsageError("weights, width and resolution are for backbones of the zoo, and the base is a .tflite")
    loaded = base if isinstance(base, Model) else Model.load(base)
    loaded.verify()
    name = "model" if isinstance(base, Model) else Path(base).name
    return Backbone(as_float(loaded), name, random=False, is_file=True, normalization=normalization_of(loaded))


def default_preprocess(backbone: Backbone, data: Any) -> Preprocess:
    """Return what a backbone takes: as its metadata declares it, else pixels from -1 to 1, or a second of sound."""
    model, name = backbone.model, backbone.name
    shape = model.main.tensors[model.main.inputs[0]].shape
    if is_sound(data):
        length = shape[1] if len(shape) == 2 else 16_000 * _SECONDS_OF_SOUND
        return Preprocess.of({"sample_rate": 16_000, "length": length})
    if len(shape) == 4 and shape[-1] in (1, 3):
        usual = Normalization((127.0,), (128.0,)) if name.startswith("efficientnet_lite") else USUAL_NORMALIZATION
        taken = backbone.normalization or usual
        size = {"resize": (shape[1], shape[2]), "channels": "rgb" if shape[-1] == 3 else "gray"}
        return Preprocess.of({**size, "mean": taken.mean, "std": taken.std})
    return Preprocess()


class _Retraining:
    """One call of ``retrain``."""

    def __init__(
        self,
        backbone: Model,
        name: str,
        data: ClassData,
        preprocess: Preprocess,
        settings: LoopSettings,
        *,
        random: bool,
    ) -> None:
        from litesmith.train._feed import Samples
        from litesmith.train._new_head import with_classes

        self.name, self.data, self.preprocess, self.settings, self.random = name, data, preprocess, settings, random
        self.start = with_classes(backbone, len(data.names))
        self.training, self.validation = Samples(data.train, self.start), Samples(data.validation, self.start)
        self.notes = list(data.notes)

    def run(self, *, freeze: bool, checkpoint: Path | None, callback: Callback | None) -> Retrained:
        """Train, write and score."""
        with_head, head_score = self._fit_head()
        model, best, seconds = with_head, head_score, 0.0
        curve: tuple[Epoch, ...] = ()
        if not freeze:
            tuned, score, curve, seconds = self._fine_tune(with_head, checkpoint, callback)
            if score >= head_score:
                model, best = tuned, score
        calibration = self.data.train.take(_CALIBRATION, seed=self.settings.seed)
        quantized = quantize(model, scheme="int8", data=calibration).model
        model, quantized = self._labelled(model), self._labelled(quantized)
        scores = [evaluate(file, self.data.test, metric="top1") for file in (model, quantized)]
        result = RetrainResult(
            base=self.name,
            classes=self.data.names,
            counts=self.data.counts,
            samples=(len(self.data.train), len(self.data.validation), len(self.data.test)),
            preprocess=str(self.preprocess),
            head=head_score,
            validation=best,
            kept="head" if model.main == with_head.main else "fine-tuned",
            float32=_score(scores[0], model),
            int8=_score(scores[1], quantized),
            confusion=_confusion(model, self.data),
            curve=curve,
            seconds=seconds,
            notes=tuple(self.notes),
        )
        return Retrained(model, quantized, result)

    def _class_weights(self) -> Any:
        """Return how much each class counts: rare ones more, by the root of how rare they are."""
        import torch

        counts = np.bincount(np.asarray(self.data.train.labels), minlength=len(self.data.names))
        rarity = np.sqrt(counts.max() / np.maximum(counts, 1))
        return torch.tensor(rarity / rarity.mean(), dtype=torch.float32)

    def _fit_head(self) -> tuple[Model, float]:
        from litesmith.train._linear_head import features, fit_head
        from litesmith.train._module import GraphModule, with_constants
        from litesmith.train._new_head import find_head
        from litesmith.train._objective import targets

        head = find_head(self.start.main)
        module = GraphModule(self.start)
        rows = [features(module, samples, head.features) for samples in (self.training, self.validation)]
        assert self.training.labels is not None
        assert self.validation.labels is not None
        weight, bias, score = fit_head(
            (rows[0], self.training.labels),
            (rows[1], self.validation.labels),
            len(self.data.names),
            self._class_weights(),
            logistic=targets(self.start.main)[0].kind == "logistic",
        )
        shape = self.start.main.tensors[head.weight].shape
        return with_constants(self.start, {head.weight: weight.reshape(shape), head.bias: bias}), score

    def _fine_tune(
        self, model: Model, checkpoint: Path | None, callback: Callback | None
    ) -> tuple[Model, float, tuple[Epoch, ...], float]:
        from litesmith.train._lessons import Lessons
        from litesmith.train._loop import Loop
        from litesmith.train._module import GraphModule
        from litesmith.train._normalization import normalize
        from litesmith.train._objective import Objective

        module: GraphModule = GraphModule(model)
        if self.random:
            normalize(module)
        objective = Objective(
            module.graph,
            module.graph,
            labelled=True,
            label_weight=1.0,
            temperature=1.0,
            class_weights=self._class_weights(),
        )
        loop = Loop(
            module,
            objective,
            Lessons(self.training, augment=self.settings.augment, seed=self.settings.seed),
            Lessons(self.validation),
            self.settings,
            callback=callback,
            checkpoint=checkpoint,
            identity="" if checkpoint is None else self._identity(model),
            title="Fine-tuning",
        )
        outcome = loop.run()
        return module.to_model(), outcome.best_score, tuple(outcome.curve), outcome.seconds

    def _identity(self, model: Model) -> str:
        digest = hashlib.blake2b(model.to_bytes(), digest_size=16)
        digest.update(repr((self.data.train.fingerprint(), self.settings)).encode())
        return digest.hexdigest()

    def _labelled(self, model: Model) -> Model:
        shape = self.start.main.tensors[self.start.main.inputs[0]].shape
        described = replace(
            model, description=f"{self.name}, retrained for {len(self.data.names)} classes", source=None
        )
        return with_metadata(
            described,
            self.data.names,
            meaning_of(self.preprocess, shape),
            name=self.name,
            description=f"Tells apart {', '.join(self.data.names[:10])}. Preprocessing: {self.preprocess}",
        )


def _score(evaluation: Evaluation, model: Model) -> Score:
    return Score(evaluation.value, evaluation.low, evaluation.high, len(model.to_bytes()))


def _confusion(model: Model, data: ClassData) -> tuple[tuple[int, ...], ...]:
    from litesmith.optimize._run import GraphRunner, feeds

    runner = GraphRunner(model)
    size = len(data.names)
    table = np.zeros((size, size), int)
    for label, feed in zip(np.asarray(data.test.labels), feeds(model, data.test), strict=True):
        runner.run(feed)
        table[int(label), int(np.argmax(runner.view(model.main.outputs[0])))] += 1
    return tuple(tuple(int(v) for v in row) for row in table)
