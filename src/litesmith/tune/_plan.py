# SPDX-License-Identifier: Apache-2.0
"""The plan of a search before it starts: what will be tried, and what it costs in time, memory and disk."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from litesmith.model import Model
from litesmith.optimize import Recipe
from litesmith.optimize._layer_rules import weight_layers
from litesmith.result import Result
from litesmith.runtime import Session, random_inputs
from litesmith.tune import _candidates as candidates
from litesmith.tune._budget import Budget
from litesmith.tune._jobs import REWRITES, Failure, FindRewrites, work
from litesmith.tune._measuring import FRONT, START_S, Measuring
from litesmith.tune._narrow import pays, steps_down
from litesmith.tune._question import Question
from litesmith.tune._rehearse import Rehearse
from litesmith.tune._sparsity import SEARCHED, searchable
from litesmith.tune._training import Way, proposals, rounding
from litesmith.tune._widen import MOST, NOTHING_TO_FOLD, has_thin_layers

PROBE_S = 0.3
TRAINING_BYTES = 300e6
"""What PyTorch takes besides."""
BATCH = 64
NARROWING_S, PRUNING_S = 0.2, 0.4
"""What removing channels and weights takes for each layer, besides runs of the model: measured on nets of 10 to 60."""
WORKER_BYTES = 150e6
"""What Python, NumPy and LiteRT take in each process."""
MAKING = 6
"""Copies of the float model that making and scoring a candidate holds, at most."""
COMPILED = 2
"""Copies of a file that measuring it holds: the file, and its weights as the kernels want them."""
FILE = 0.6
"""The size of a candidate's file, as a share of the float model's: int8 has a quarter, float with fewer channels most."""
CHECKPOINT = 8
"""Copies of the weights in the state of a training: with moments and the best so far, and twice while it is written."""


@dataclass(frozen=True)
class Stage:
    """A part of the search; ``if_needed`` where scores decide whether it is run."""

    name: str
    trials: int
    seconds: float
    if_needed: bool
    candidates: tuple[str, ...]


@dataclass(frozen=True)
class Plan(Result, kind="tune-plan", schema=1):
    """What a search would do.

    Attributes:
        model: its description.
        samples: of calibration, search and held-out split.
        stages: in order.
        left_out: candidates that cannot be tried, and why.
        latency_ms: rough, of the float model.
        workers: processes.
        memory_bytes: of all processes at once.
        disk_bytes: of all files.
        limit_s: the time after which nothing more is tried, where there is such a limit.
    """

    model: str
    samples: tuple[int, int, int]
    stages: tuple[Stage, ...]
    left_out: tuple[tuple[str, str], ...]
    latency_ms: float
    workers: int
    memory_bytes: int
    disk_bytes: int
    limit_s: float | None = None

    @property
    def trials(self) -> tuple[int, int]:
        """How many trials at least and at most."""
        return sum(s.trials for s in self.stages if not s.if_needed), sum(s.trials for s in self.stages)

    @property
    def seconds(self) -> tuple[float, float]:
        """How long at least and at most, by estimate."""
        return sum(s.seconds for s in self.stages if not s.if_needed), sum(s.seconds for s in self.stages)


@dataclass(frozen=True)
class MakePlan:
    """Plan a search; the answer is a Plan."""

    recipes: tuple[str, ...]
    left_out: tuple[tuple[str, str], ...]
    workers: int
    everything: bool
    sparsity: bool
    budget: Budget
    train_epochs: int | None
    measuring: Measuring

    def answer(self, question: Question) -> Plan:
        """Do it."""
        return make_plan(
            question,
            self.recipes,
            self.left_out,
            workers=self.workers,
            everything=self.everything,
            sparsity=self.sparsity,
            budget=self.budget,
            train_epochs=self.train_epochs,
            measuring=self.measuring,
        )


def make_plan(
    question: Question,
    recipes: Sequence[str],
    left_out: Sequence[tuple[str, str]],
    *,
    workers: int,
    everything: bool,
    sparsity: bool,
    budget: Budget | None = None,
    train_epochs: int | None = None,
    measuring: Measuring | None = None,
) -> Plan:
    """Return the plan of a search, from a few runs of the float model."""
    run_s = _run_s(question.model)
    model = Model.from_bytes(question.model)
    score_s = run_s * len(question.search)
    build_s = 0.3 + 6 * run_s * len(question.calibrate)  # calibration, its channels, and the correction of biases

    def stage(name: str, tried: Sequence[str], *, if_needed: bool = True, more_s: float = 0.0) -> Stage:
        seconds = len(tried) * (score_s + build_s + more_s) / workers
        return Stage(name, len(tried), seconds, if_needed, tuple(tried))

    recovery, unknown = candidates.known(candidates.RECOVERY)
    operators, layers = len(model.main.operators), len(weight_layers(model))
    counts = candidates.first_counts(operators)
    promoted = [f"int8, {c} weakest layers in float" for c in counts] + ["… halving the gap"] * candidates.HALVINGS
    sparse = searchable()
    stages = [
        Stage("baseline", 1, START_S + score_s / workers, False, ("float",)),
        stage("schemes", recipes, if_needed=False),
    ]
    if everything and (budget or Budget()).counts_latency:
        helpful = work(question, FindRewrites())
        if isinstance(helpful, Failure):
            unknown = [*unknown, (REWRITES, helpful.reason)]
        elif helpful:
            stages.insert(1, stage("rewrites", [f"{REWRITES}: {', '.join(helpful)}"], if_needed=False))
    if everything:
        stages += [stage("recovery", recovery), stage("mixed", promoted)]
        if (budget or Budget()).counts_latency:
            if has_thin_layers(question.model):
                stages.append(stage("wider", ["fold → a format that fits"] * MOST))
            else:
                unknown = [*unknown, NOTHING_TO_FOLD]
        if sparsity and pays(budget or Budget()):
            first, *others = steps_down()
            more_s = NARROWING_S * layers
            stages += [
                stage("channels", first, if_needed=False, more_s=more_s),
                *(stage("channels", other, more_s=more_s) for other in others[:-1]),
                stage("channels", others[-1]),  # of models that are there already
            ]
        if sparse and sparsity:
            tried = [f"{' → '.join(sparse)} → …"] * SEARCHED
            stages.append(stage("sparsity", tried, if_needed=False, more_s=PRUNING_S * layers))
    untried: list[tuple[str, str]] = []
    if question.train is not None:
        stages, untried = _with_training(
            question, stages, budget or Budget(), train_epochs, score_s, workers, everything=everything
        )
    measuring = measuring or Measuring()
    every, sure = sum(s.trials for s in stages), sum(s.trials for s in stages if not s.if_needed)
    sure_s, every_s = (measuring.all_s(count, run_s, len(question.held_out), workers) for count in (sure, every))
    stages.append(Stage("latency and held-out", 0, sure_s, False, ()))
    if every > sure:
        stages.append(Stage("latency and held-out", 0, every_s - sure_s, True, ("what was tried if needed",)))
    trainings = sum(s.trials for s in stages if s.name == "training")
    missing = [(name, f"there is no step {name!r}") for name in ("prune", "channels", "cluster") if name not in sparse]
    return Plan(
        model=model.description,
        samples=(len(question.calibrate), len(question.search), len(question.held_out)),
        stages=tuple(stages),
        left_out=(*left_out, *unknown, *missing, *untried),
        latency_ms=1000 * run_s,
        workers=workers,
        memory_bytes=_memory_bytes(model, len(question.model), workers, measuring, trains=question.train is not None),
        disk_bytes=_disk_bytes(len(question.model), every, min(trainings, workers)),
        limit_s=None if budget is None else budget.time_s,
    )


def _memory_bytes(model: Model, size: int, workers: int, measuring: Measuring, *, trains: bool) -> int:
    """Return what all processes take at once: while candidates are made, or while one process measures many files."""
    activations = _activation_bytes(model)
    making = workers * (MAKING * size + activations + (_training_bytes(model, size) if trains else 0.0))
    sessions = (1 + measuring.together) * len(measuring.threads)
    return int(workers * WORKER_BYTES + max(making, sessions * (COMPILED * size + activations)))


def _disk_bytes(size: int, files: int, checkpoints: int) -> int:
    """Return what the folder takes: a file for each trial, copies of the front and the winner, states of trainings."""
    return int(FILE * size * (files + FRONT + 1) + CHECKPOINT * size * checkpoints)


def _run_s(content: bytes) -> float:
    """Return the rough time of a run: the fastest of a few."""
    with Session(content) as session:
        session.run(random_inputs(session))
        fastest, end = float("inf"), time.perf_counter() + PROBE_S
        while time.perf_counter() < end:
            started = time.perf_counter()
            session.run()
            fastest = min(fastest, time.perf_counter() - started)
    return fastest


def _with_training(
    question: Question,
    stages: Sequence[Stage],
    budget: Budget,
    epochs: int | None,
    score_s: float,
    workers: int,
    *,
    everything: bool,
) -> tuple[list[Stage], list[tuple[str, str]]]:
    """Return the stages with what is trained, each training rehearsed for its time, and what is not trained and why."""
    assert question.train is not None
    count, untried = len(question.train), []
    if question.untrained:
        untried.append((f"{question.untrained} samples to train on", "they are also scored on"))
    rehearsal = work(question, Rehearse())
    if isinstance(rehearsal, Failure):
        return list(stages), [*untried, ("training", rehearsal.reason)]
    schemes = next(s for s in stages if s.name == "schemes")
    asked = [schemes] if any(Recipe.parse(r).trains for r in schemes.candidates) else []
    extra = sum(rehearsal.seconds(recipe, count) for stage in asked for recipe in stage.candidates) / workers
    found = [replace(s, seconds=s.seconds + extra) if s in asked else s for s in stages]
    way = Way(epochs, question.seed)
    wanted = [rounding(way), *(p.recipe for p in proposals(budget, way))] if everything else []
    if wanted:
        times = {recipe: score_s + rehearsal.seconds(recipe, count) for recipe in wanted}
        texts = tuple(f"{recipe}: {_duration(seconds)}" for recipe, seconds in times.items())
        found.append(Stage("training", len(wanted), sum(times.values()) / workers, True, texts))
    return found, untried


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def _training_bytes(model: Model, size: int) -> float:
    """Return what training takes: PyTorch, weights with gradients and moments, and the activations of a batch, twice."""
    return TRAINING_BYTES + 5 * size + 2 * BATCH * _activation_bytes(model)


def _activation_bytes(model: Model) -> int:
    return sum(4 * t.elements for t in model.main.tensors if not t.is_constant)
