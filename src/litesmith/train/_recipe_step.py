# SPDX-License-Identifier: Apache-2.0
"""Training as a step of recipes, so that a trained file is made, written down and made again as any other.

    train(int8, epochs=5)
    train(int8, prune=0.8, 4x1, store=sparse, epochs=16)
    train(channels=0.5, epochs=16) → float16

The options are those of ``litesmith.train``. PyTorch has one thread in it: sums are then taken in one order, and equal
samples and seeds give equal bytes in whatever process. It comes after the removal of channels, and before zeros and
shared values, which it would undo: those it trains itself.
"""

from __future__ import annotations

import hashlib
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from litesmith.data import Dataset
from litesmith.errors import RecipeError
from litesmith.model import Model
from litesmith.optimize import Option, Step, StepKind, register_step
from litesmith.optimize._prune_patterns import PATTERNS
from litesmith.optimize._prune_store import STORES
from litesmith.optimize._recipe import QUANTIZING
from litesmith.train._result import Trained
from litesmith.train._train import train
from litesmith.train._wish import PRUNING, QAT

_ALONE = threading.Lock()
"""The number of threads belongs to the process: no two trainings in one at once, as in a Dask worker of many threads."""
_HEADS = ("auto", "same", "float", "dynamic", "weights8")
_OPTIONS = {
    "qat": Option(str, QAT),
    "prune": Option(float),
    "pattern": Option(str, PATTERNS, "unstructured"),
    "pruning": Option(str, PRUNING, "second-order"),
    "cluster": Option(int),
    "channels": Option(float),
    "epochs": Option(int),
    "batch": Option(int, default=64),
    "learning_rate": Option(float),
    "augment": Option(str),
    "distill": Option(bool, default=False),
    "store": Option(str, STORES, "dense"),
    "head": Option(str, _HEADS, "auto"),
    "io": Option(str, ("float", "int8", "int16"), "float"),
    "seed": Option(int, default=0),
}


@dataclass(frozen=True)
class TrainingSamples:
    """Samples to train on, and where the state is kept, from which a training that was killed goes on.

    The state is in files whose names begin with that of ``checkpoint``; who gave it removes them.
    """

    samples: Dataset
    checkpoint: Path | None = None

    def checkpoint_of(self, model: Model, step: Step) -> Path | None:
        """Return where the state of one step is kept: a recipe may have several."""
        if self.checkpoint is None:
            return None
        digest = hashlib.blake2b(model.to_bytes() + str(step).encode(), digest_size=8).hexdigest()
        return self.checkpoint.with_name(f"{self.checkpoint.name}-{digest}")


def _apply(model: Model, step: Step, data: Any) -> Trained:
    if data is None:
        raise RecipeError(f"the step {str(step)!r} needs samples to train on, and none are given")
    given = data if isinstance(data, TrainingSamples) else TrainingSamples(Dataset.open(data))
    options = {key: value for key, value in step.options.items() if key not in ("prune", "pattern")}
    if "prune" in step.options:
        options["prune"] = f"{step.get('prune'):g}@{step.get('pattern')}"
    elif "pattern" in step.options:
        raise RecipeError(f"the step {str(step)!r} has a pattern of zeros and no share of them; add prune=0.8")
    with _ALONE:
        return train(
            model,
            given.samples,
            rules=step.rules,
            threads=1,
            checkpoint=given.checkpoint_of(model, step),
            **options,  # type: ignore[arg-type]
        )


register_step("train", StepKind(_OPTIONS, _apply, takes_rules=True, stage=QUANTIZING - 25, trains=True))
