# SPDX-License-Identifier: Apache-2.0
"""How long a training takes: a few steps of it on a few samples, before hours are spent on the whole."""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass

from litesmith.model import Model
from litesmith.optimize import Recipe, Step
from litesmith.runtime import Session, random_inputs
from litesmith.train._wish import default_epochs
from litesmith.tune._question import Question

EPOCHS = 3
"""Of a rehearsal; the first prepares kernels and does not count."""
FEW, MANY = 16, 64
QUICK_MS = 2.0
"""A model that is faster is rehearsed on many samples: there, what a step costs by itself weighs more."""
ASKED_ANEW = 1.4
"""How much longer an epoch takes in which samples vary, so that the float model is asked about each again."""
SHAPING = 4.0
"""How much longer it takes to choose channels and zeros, and to fit what is left, than to calibrate."""


@dataclass(frozen=True)
class Rehearsal:
    """What training was seen to take: before its first step, and for each sample of an epoch."""

    start_s: float
    sample_s: float

    def seconds(self, recipe: str, samples: int) -> float:
        """Return the estimate for the trainings of a recipe."""
        return sum(self._of_step(step, samples) for step in Recipe.parse(recipe).steps if step.name == "train")

    def _of_step(self, step: Step, samples: int) -> float:
        recovers = "prune" in step.options or "channels" in step.options
        epochs = step.get("epochs") or default_epochs(recovers=recovers)
        epoch_s = self.sample_s * samples * (ASKED_ANEW if recovers else 1.0)
        return self.start_s * (SHAPING if recovers else 1.0) + epochs * epoch_s


@dataclass(frozen=True)
class Rehearse:
    """Train for a moment; the answer is a Rehearsal."""

    def answer(self, question: Question) -> Rehearsal:
        """Do it."""
        from litesmith.train import train

        assert question.train is not None
        count = MANY if _run_ms(question.model) < QUICK_MS else FEW
        chosen = question.train.take(count)
        started = time.perf_counter()
        made = train(
            Model.from_bytes(question.model),
            chosen,
            validation=question.train.take(4),
            qat="int8",
            epochs=EPOCHS,
            batch=count,
            threads=1,
        )
        whole = time.perf_counter() - started
        ends = [epoch.seconds for epoch in made.result.curve]
        epoch_s = min(after - before for before, after in itertools.pairwise(ends))
        return Rehearsal(whole - ends[-1], epoch_s / len(chosen))


def _run_ms(content: bytes) -> float:
    with Session(content) as session:
        session.run(random_inputs(session))
        started = time.perf_counter()
        session.run()
    return 1000 * (time.perf_counter() - started)
