# SPDX-License-Identifier: Apache-2.0
"""The training loop: steps, a schedule, validation, the best weights kept, and a state on disk to go on from.

The order of the samples and the augmentation of a step follow from the seed and the number of the step alone. So a run
that was killed and resumed takes the same steps as one that was not, and ends with the same weights.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from litesmith.errors import OptimizeError, UsageError
from litesmith.progress import task
from litesmith.train import _checkpoint
from litesmith.train._average import Average
from litesmith.train._feed import Augment, Inputs
from litesmith.train._lessons import Lessons
from litesmith.train._module import GraphModule
from litesmith.train._objective import Objective
from litesmith.train._result import Epoch

OPTIMIZERS = ("adamw", "sgd")
SCHEDULES = ("cosine", "constant", "linear")
PRECISIONS = ("float32", "bfloat16")
_USUAL_SIZE = 0.05
"""The root mean square of weights from which on the learning rate is taken as it is given."""


@dataclass(frozen=True)
class LoopSettings:
    """How long, how fast and in which order to train."""

    epochs: int = 5
    minutes: float | None = None
    batch: int = 64
    learning_rate: float = 3e-4
    optimizer: str = "adamw"
    schedule: str = "cosine"
    warmup: float = 0.05
    weight_decay: float = 0.0
    clip: float = 1.0
    scale_rate: float = 10.0  # how much faster learned scales move, relative to the learning rate
    average: float = 0.0  # the share of the running average that outlives a step; 0 for the weights as they are
    precision: str = "float32"  # of products in a step; scores are always in float32
    patience: int | None = None
    seed: int = 0
    augment: Augment = field(default_factory=Augment)
    checkpoint_seconds: float = 60.0

    def __post_init__(self) -> None:
        for name, value, known in (
            ("optimizer", self.optimizer, OPTIMIZERS),
            ("schedule", self.schedule, SCHEDULES),
            ("precision", self.precision, PRECISIONS),
        ):
            if value not in known:
                raise UsageError(f"there is no {name} {value!r}; choose one of {', '.join(known)}")
        if self.epochs < 1 or self.batch < 1 or not self.learning_rate > 0:
            raise UsageError(
                f"training needs at least 1 epoch, 1 sample a step and a learning rate above 0; got {self.epochs}, "
                f"{self.batch} and {self.learning_rate}"
            )
        if not 0 <= self.average < 1:
            raise UsageError(f"average is the share that outlives a step, at least 0 and below 1, not {self.average:g}")
        if self.patience is not None and self.patience < 1:
            raise UsageError(
                f"patience is the number of epochs without gain to wait for, at least 1, not {self.patience}"
            )
        if self.minutes is not None and not self.minutes > 0:
            raise UsageError(f"a time of {self.minutes} minutes leaves nothing to train in")


@dataclass(frozen=True)
class TrainEvent:
    """What a callback sees at the end of each epoch; it may look at the module, and return False to stop."""

    epoch: int
    epochs: int
    loss: float
    score: float
    seconds: float
    module: GraphModule


Callback = Callable[[TrainEvent], bool | None]


class Hook(Protocol):
    """Something that changes with the progress of a training, such as masks; ``stage`` says how far it is."""

    stage: int

    def update(self, progress: float) -> None:
        """Prepare the next step; ``progress`` runs from 0 to 1."""

    def is_done(self, progress: float) -> bool:
        """Say whether what the hook leads to is reached, so that the weights of now may be kept."""

    def sparsity(self) -> float:
        """Return the share of zeros."""


@dataclass(frozen=True)
class Earlier:
    """What went before, where a training has several stages, and what is to come.

    Attributes:
        states: the last states of the stages before.
        epochs: how many they took.
        seconds: how long they took.
        epochs_in_all: of all stages, None where this one is the only one.
        epochs_to_come: of the stages behind this one.
        minutes_to_come: of the stages behind this one, where the budget is a time.
    """

    states: tuple[dict[str, Any], ...] = ()
    epochs: int = 0
    seconds: float = 0.0
    epochs_in_all: int | None = None
    epochs_to_come: int = 0
    minutes_to_come: float = 0.0


@dataclass
class Outcome:
    """How the loop ended."""

    curve: list[Epoch]
    best_epoch: int
    best_score: float
    stopped: str
    seconds: float


class Loop:
    """One training of one module."""

    def __init__(
        self,
        module: GraphModule,
        objective: Objective,
        training: Lessons,
        validation: Lessons,
        settings: LoopSettings,
        *,
        hooks: Sequence[Hook] = (),
        callback: Callback | None = None,
        checkpoint: Path | None = None,
        identity: str = "",
        earlier: Earlier | None = None,
        title: str = "Training",
    ) -> None:
        self.module, self.objective, self.settings = module, objective, settings
        self.training, self.validation = training, validation
        self.hooks, self.callback, self.checkpoint = list(hooks), callback, checkpoint
        self.title = title
        self.identity, self.earlier = identity, earlier or Earlier()
        self.steps_per_epoch = math.ceil(len(training) / settings.batch)
        self.optimizer, self._rates = _optimizer(module, settings)
        self.average = Average(module, settings.average) if settings.average else None
        self.step = 0
        self.seconds = 0.0
        self.curve: list[Epoch] = []
        self.best: tuple[int, float, dict[str, Any]] = (0, -math.inf, {})
        self.loss_sum = 0.0
        self.ended = ""  # why, once it has
        self._saved = 0.0
        self.unready = 0  # epochs whose weights could not be kept, as a schedule was not at its end

    # ---------------------------------------------------------------- the run

    def run(self) -> Outcome:
        """Train to the end of the budget, and leave the best weights in the module."""
        torch.manual_seed(self.settings.seed)
        self._resume()
        if self.step == 0 and all(hook.is_done(0.0) for hook in self.hooks):
            self.best = (self.earlier.epochs, self.score() - 1e-9, self._weights())  # of equals, the trained one
        is_within_epoch = self.step > len(self.curve) * self.steps_per_epoch  # a state may be older than its last score
        self.ended = self.ended or ("" if is_within_epoch else self._stopped())
        began = time.monotonic() - self.seconds
        self._saved = time.monotonic()
        while not self.ended:
            epoch = len(self.curve)  # not by the steps, which may all have been taken before a kill
            for last in self._pauses(epoch):
                self._take_steps(epoch, last, began)
            self._finish_epoch(epoch)
            self.seconds = time.monotonic() - began
            wants_more = self.callback is None or self.callback(self._event()) is not False
            self.ended = self._stopped() if wants_more else "callback"
            self._save()
        if self.best[2]:
            self.module.load_state_dict(self.best[2])
        self.module.eval()
        return Outcome(self.curve, self.best[0], self.best[1], self.ended, self.seconds)

    def _pauses(self, epoch: int) -> list[int]:
        """Return the steps after which the progress is told anew; in the first epoch soon, as there is no loss till then."""
        first, whole = self.step - epoch * self.steps_per_epoch, self.steps_per_epoch
        early = [1 << n for n in range(whole.bit_length()) if first < 1 << n < whole]
        return [*(early if epoch == 0 else ()), whole]

    def _take_steps(self, epoch: int, last: int, began: float) -> None:
        """Take the steps of an epoch up to the last, or until time is out."""
        first = self.step - epoch * self.steps_per_epoch
        with task(self._title(epoch), total=self.steps_per_epoch) as advance:
            advance(first)
            for _ in range(first, last):
                if self._is_out_of_time():
                    break
                self._step(epoch)
                advance(1)
                self.seconds = time.monotonic() - began
                if time.monotonic() - self._saved > self.settings.checkpoint_seconds:
                    self._save()

    def _stopped(self) -> str:
        settings = self.settings
        if self._is_out_of_time():
            return "time"
        if settings.minutes is None and len(self.curve) >= settings.epochs:
            return "epochs"
        return "patience" if settings.patience is not None and self._idle_epochs() >= settings.patience else ""

    def _idle_epochs(self) -> int:
        """Return for how many epochs the score has not risen; those before all hooks are done do not count."""
        scores = [point.score for point in self.curve[self.unready :]]
        return len(scores) - 1 - scores.index(max(scores)) if scores else 0

    def _is_out_of_time(self) -> bool:
        return self.settings.minutes is not None and self.seconds >= 60 * self.settings.minutes

    def _progress(self) -> float:
        if self.settings.minutes is not None:
            return min(self.seconds / (60 * self.settings.minutes), 1.0)
        return min(self.step / (self.steps_per_epoch * self.settings.epochs), 1.0)

    def _step(self, epoch: int) -> None:
        progress = self._progress()
        for hook in self.hooks:
            hook.update(progress)
        for group, rate in zip(self.optimizer.param_groups, self._rates, strict=True):
            group["lr"] = rate * self._rate(progress)
        self.module.train()
        within = self.step % self.steps_per_epoch
        order = np.random.default_rng((self.settings.seed, epoch)).permutation(len(self.training))
        positions = order[within * self.settings.batch : (within + 1) * self.settings.batch]
        inputs = self.training.inputs(positions, epoch)
        teacher = self.training.answers(positions, inputs, epoch)
        labels = self.training.labels_of(positions, epoch)
        generator = torch.Generator().manual_seed(self.settings.seed * 1_000_003 + self.step)
        inputs = self.training.augment.noisy(inputs, generator)
        student = self._answers(inputs)
        loss = self.objective.loss(student, teacher, labels if self.objective.labelled else None)
        if not torch.isfinite(loss):
            raise OptimizeError(
                f"the loss is {float(loss)} at step {self.step}; lower the learning rate of {self.settings.learning_rate:g}"
            )
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        if self.settings.clip:
            nn.utils.clip_grad_norm_(list(self.module.weights.parameters()), self.settings.clip)
        self.optimizer.step()
        if self.average is not None and all(hook.is_done(progress) for hook in self.hooks):
            self.average.add()
        self.loss_sum += float(loss.detach())
        self.step += 1

    def _answers(self, inputs: Inputs) -> dict[int, Tensor]:
        with torch.autocast("cpu", torch.bfloat16, enabled=self.settings.precision == "bfloat16"):
            values = self.module.run(self.module.feed(inputs), self.objective.kept())
        return {tensor: value.float() if value.dtype == torch.bfloat16 else value for tensor, value in values.items()}

    def _rate(self, progress: float) -> float:
        settings = self.settings
        if progress < settings.warmup:
            return max(progress / settings.warmup, 0.05)
        along = (progress - settings.warmup) / (1 - settings.warmup)
        if settings.schedule == "cosine":
            return 0.5 * (1 + math.cos(math.pi * along)) * 0.99 + 0.01
        return 1.0 if settings.schedule == "constant" else 1.0 - 0.99 * along

    # ---------------------------------------------------------------- the score

    def score(self) -> float:
        """Return the mean score of the validation samples in PyTorch, with the average of the weights where there is one."""
        with self._averaged():
            return self._score()

    @torch.no_grad()
    def _score(self) -> float:
        self.module.eval()
        points = []
        for positions in self.validation.blocks():
            inputs = self.validation.inputs(positions)
            labels = self.validation.labels
            labels = labels[torch.from_numpy(positions)] if labels is not None and self.objective.labelled else None
            teacher = self.validation.answers(positions, inputs)
            student = self.module.run(self.module.feed(inputs), self.objective.kept())
            points.append(self.objective.points(student, teacher, labels))
        return float(torch.cat(points).mean())

    def _finish_epoch(self, epoch: int) -> None:
        steps = self.step - epoch * self.steps_per_epoch
        progress = self._progress()
        for hook in self.hooks:
            hook.update(progress)
        score = self.score()
        rate = self.settings.learning_rate * self._rate(progress)
        sparsity = max((hook.sparsity() for hook in self.hooks), default=0.0)
        loss = self.loss_sum / max(steps, 1)
        number, seconds = self.earlier.epochs + epoch + 1, self.earlier.seconds + self.seconds
        self.curve.append(Epoch(number, loss, score, seconds, rate, sparsity))
        self.loss_sum = 0.0
        ready = all(hook.is_done(progress) for hook in self.hooks)
        self.unready += not ready
        if ready and score >= self.best[1]:
            self.best = (number, score, self._weights())

    def _weights(self) -> dict[str, Tensor]:
        with self._averaged():
            return {name: value.clone() for name, value in self.module.state_dict().items()}

    def _averaged(self) -> AbstractContextManager[None]:
        return nullcontext() if self.average is None else self.average.in_place()

    def _epochs_in_all(self) -> int:
        return self.earlier.epochs_in_all or self.settings.epochs

    def _event(self) -> TrainEvent:
        last = self.curve[-1]
        return TrainEvent(last.epoch, self._epochs_in_all(), last.loss, last.score, last.seconds, self.module)

    def _title(self, epoch: int) -> str:
        total = "" if self.settings.minutes is not None else f"/{self._epochs_in_all()}"
        text = f"{self.title} {self.earlier.epochs + epoch + 1}{total}"
        if self.curve:
            last = self.curve[-1]
            text += f" · loss {last.loss:.3g} · {self.objective.metric} {last.score:.4g}"
        elif self.step:
            text += f" · loss {self.loss_sum / self.step:.3g}"
        return f"{text} · {self._minutes_left():.1f} min left" if self.step else text

    def _minutes_left(self) -> float:
        """Return the minutes to the end of the last stage, as far as this one tells."""
        if self.settings.minutes is not None:
            return max(self.settings.minutes - self.seconds / 60, 0.0) + self.earlier.minutes_to_come
        epochs = self.settings.epochs + self.earlier.epochs_to_come - self.step / self.steps_per_epoch
        return self.seconds / 60 / self.step * self.steps_per_epoch * epochs

    # ---------------------------------------------------------------- the state on disk

    def _save(self) -> None:
        self._saved = time.monotonic()
        if self.checkpoint is None:
            return
        _checkpoint.save(self.checkpoint, {**self.state(), "earlier": list(self.earlier.states)})

    def state(self) -> dict[str, Any]:
        """Return all that the rest of the training depends on."""
        return {  # of a stage that has ended, the optimizer is of no more use
            "identity": self.identity,
            "module": self.module.state_dict(),
            "optimizer": {} if self.ended else self.optimizer.state_dict(),
            "average": None if self.average is None else (self.average.steps, self.average.values),
            "step": self.step,
            "seconds": self.seconds,
            "loss_sum": self.loss_sum,
            "unready": self.unready,
            "curve": [asdict(point) for point in self.curve],
            "best": list(self.best),
            "stages": [hook.stage for hook in self.hooks],
            "ended": self.ended,
        }

    def _resume(self) -> None:
        state = None if self.checkpoint is None else _checkpoint.load(self.checkpoint, self.identity)
        place = len(self.earlier.states)
        if state is None or len(state["earlier"]) < place:
            return
        if len(state["earlier"]) > place:  # this stage came to its end
            state = state["earlier"][place]
        self.module.load_state_dict(state["module"])
        if not state["ended"]:
            self.optimizer.load_state_dict(state["optimizer"])
        if self.average is not None:
            self.average.steps, self.average.values = state["average"]
        self.step, self.seconds, self.loss_sum = state["step"], state["seconds"], state["loss_sum"]
        self.unready, self.ended = state["unready"], state["ended"]
        self.curve = [Epoch(**point) for point in state["curve"]]
        self.best = tuple(state["best"])
        for hook, stage in zip(self.hooks, state["stages"], strict=True):
            hook.stage = stage


def _optimizer(module: GraphModule, settings: LoopSettings) -> tuple[torch.optim.Optimizer, list[float]]:
    """Return the optimizer and the learning rate of each of its groups.

    AdamW moves every parameter by about the learning rate, however small it is; with normalization folded, layers differ
    in size by orders of magnitude. So the rate of small tensors follows their size, as in Adafactor (arXiv:1804.04235).
    """
    rate = settings.learning_rate
    groups: list[dict[str, Any]] = []
    rates: list[float] = []
    for name, parameter in module.named_parameters():
        if not parameter.requires_grad:
            continue
        is_scale = name.endswith("log_scale")
        groups.append({"params": [parameter], "weight_decay": 0.0 if is_scale else settings.weight_decay})
        if settings.optimizer == "sgd":
            rates.append(rate / settings.scale_rate if is_scale else rate)
        else:
            rates.append(rate * (settings.scale_rate if is_scale else _relative_size(parameter)))
    if settings.optimizer == "sgd":
        return torch.optim.SGD(groups, lr=rate, momentum=0.9, nesterov=True), rates
    return torch.optim.AdamW(groups, lr=rate), rates


def _relative_size(parameter: Tensor) -> float:
    """Return the root mean square of a tensor over that of usual weights, 1 at the most."""
    size = float(parameter.detach().square().mean().sqrt())
    return min(max(size / _USUAL_SIZE, 0.01), 1.0)


@contextmanager
def threads(count: int | None) -> Iterator[None]:
    """Let PyTorch compute in so many threads inside the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
