# SPDX-License-Identifier: Apache-2.0
"""What every trial is about: the float model, the three splits, the metric; as one value that workers are sent once."""

from __future__ import annotations

import functools
import hashlib
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from litesmith.accuracy import Drop
from litesmith.accuracy._evaluate import oriented
from litesmith.accuracy._metric import Metric, check_output
from litesmith.accuracy._named import metric_named
from litesmith.accuracy._ports import ports
from litesmith.accuracy._predict import Candidate, Job, observe
from litesmith.accuracy._statistics import mcnemar, paired_bootstrap
from litesmith.data import Dataset
from litesmith.data._split import fingerprint
from litesmith.devices import Device
from litesmith.errors import UsageError
from litesmith.model import Model
from litesmith.optimize import Coverage, Recipe
from litesmith.train._recipe_step import TrainingSamples
from litesmith.tune._trial import Score

Array = np.ndarray[Any, Any]
Seen = Mapping[str, Array]
CONFIDENCE = 0.95
RESAMPLES = 500
REMOVING = ("fix", "channels", "prune", "cluster")
"""Steps that take long, and that several number formats follow: what they make is kept for the next recipe."""
KEPT = 2


@dataclass(frozen=True)
class Question:
    """The float model, its samples, and how it is scored.

    Attributes:
        model: the float file's bytes.
        calibrate: samples for calibration and recovery.
        search: samples that candidates are scored on, in random order.
        held_out: samples that only finalists are scored on.
        metric: its name.
        output: the output it looks at, where the model has several.
        label_offset: added to class numbers.
        seed: of everything that is drawn.
        device: where latency is measured; None for this machine, or the worker that owns the device.
        train: samples to train on, none of which is scored on; None where training was not allowed.
        untrained: samples that were given to train on and left out, because they are scored on.
    """

    model: bytes
    calibrate: Dataset
    search: Dataset
    held_out: Dataset
    metric: str
    output: str | None = None
    label_offset: int = 0
    seed: int = 0
    device: Device | None = None
    train: Dataset | None = None
    untrained: int = 0

    def __post_init__(self) -> None:
        if self.output is not None:  # before the first trial is tried, and with the names there are
            check_output(self.output, ports(Model.from_bytes(self.model))[1])

    def split(self, name: str) -> Dataset:
        """Return the samples of a split that models are scored on."""
        return self.held_out if name == "held_out" else self.search

    def scorer(self) -> Metric:
        """Return the metric."""
        data = self.search
        return metric_named(
            self.metric,
            labels=data.labels,
            class_names=data.class_names,
            output=self.output,
            label_offset=self.label_offset,
        )

    def digest(self) -> str:
        """Return the hash of everything that the outcome of a recipe depends on besides the versions.

        The samples to train on are no part of it: recipes that do not train are the same without them.
        """
        parts = (
            content_hash(self.model),
            *(data.fingerprint() for data in (self.calibrate, self.search)),
            self.metric,
            str(self.output),
            str(self.label_offset),
            str(self.seed),
        )
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def sequence(self, split: str) -> str:
        """Return the hash of a split's samples and labels in their order, in which answers are paired."""
        data = self.split(split)
        placed = [number.to_bytes(8, "big") + content for number, content in enumerate(data.content_hashes())]
        return fingerprint(placed, data.labels, str(data.preprocess), *(data.class_names or ()))

    def made(self, recipe: str) -> bytes:
        """Return the file that a recipe makes of the float model."""
        return self.made_with_coverage(recipe)[0]

    def made_with_coverage(self, recipe: str, checkpoint: Path | None = None) -> tuple[bytes, Coverage | None]:
        """Return the file that a recipe makes, and what it left float; ``checkpoint`` keeps the state of a training.

        With one thread for linear algebra: more would fight with those of the other workers, and sum up in another order.
        """
        if not recipe:
            return self.model, None
        train = None if self.train is None else TrainingSamples(self.train, checkpoint)
        steps = Recipe.parse(recipe)
        if steps.trains and train is None:
            raise UsageError(f"the recipe {recipe!r} trains, and there are no samples to train on; give train=…")
        steps.check_order()
        removing = Recipe(tuple(itertools.takewhile(lambda step: step.name in REMOVING, steps.steps)))
        rest = Recipe(steps.steps[len(removing.steps) :])
        with threadpool_limits(1, user_api="blas"):
            model, coverage = rest.apply_with_coverage(self._after(removing), self.calibrate, train=train)
        return model.to_bytes(), coverage

    def _after(self, steps: Recipe) -> Model:
        """Return the float model after the first steps of a recipe, which others begin with as well."""
        if not steps.steps:
            return Model.from_bytes(self.model)
        name = str(steps)
        if name not in self._kept:
            made = steps.apply(Model.from_bytes(self.model), self.calibrate)
            while len(self._kept) >= KEPT:
                del self._kept[next(iter(self._kept))]
            self._kept[name] = made
        return self._kept[name]

    @functools.cached_property
    def _kept(self) -> dict[str, Model]:
        return {}

    def observe(self, model: bytes, split: str, start: int, stop: int) -> dict[str, Array]:
        """Run samples of a split and return what the metric keeps of each."""
        metric = self.scorer()
        reference = Candidate.of(self.model) if metric.needs_reference else None
        return observe(Job(Candidate.of(model), self.split(split)[start:stop], metric, reference))

    def score(self, seen: Seen, float_seen: Seen | None = None) -> Score:
        """Return the score of what was seen, and its drop against the float model on the same samples."""
        metric = self.scorer()
        count = len(next(iter(seen.values())))
        settings: dict[str, Any] = {"confidence": CONFIDENCE, "resamples": RESAMPLES, "seed": self.seed}
        interval, _ = metric.interval(seen, **settings)
        drop = None if float_seen is None else self._drop(metric, float_seen, seen, count, settings)
        return Score(metric.scorer(seen)(None), interval.low, interval.high, count, drop)

    def _drop(self, metric: Metric, before: Seen, after: Seen, count: int, settings: dict[str, Any]) -> Drop:
        right = metric.successes(before), metric.successes(after)
        if right[0] is not None and right[1] is not None:
            test = mcnemar(right[0], right[1], confidence=CONFIDENCE)
        else:
            test = paired_bootstrap(metric.scorer(before), metric.scorer(after), count, **settings)
        base, _ = metric.interval(before, **settings)
        score = metric.scorer(before)(None), base.low, base.high
        return oriented(test, "float", score, metric.higher_is_better, CONFIDENCE)

    def losses(self, float_seen: Seen, seen: Seen) -> Array | None:
        """Return the paired loss of each sample, 1, 0 or -1, where a sample is right or wrong; else None."""
        metric = self.scorer()
        before, after = metric.successes(float_seen), metric.successes(seen)
        if before is None or after is None:
            return None
        return before.astype(np.float64) - after.astype(np.float64)


def content_hash(content: bytes) -> str:
    """Return the SHA-256 of some bytes."""
    return hashlib.sha256(content).hexdigest()


def joined(parts: list[dict[str, Array]]) -> dict[str, Array]:
    """Return what was seen in several ranges of samples as one."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
