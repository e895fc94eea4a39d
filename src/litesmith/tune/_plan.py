# SPDX-License-Identifier: Apache-2.0
"""The plan of a search before it starts: what will be tried, and what it costs in time, memory and disk."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from litesmith.model import Model
from litesmith.result import Result
from litesmith.runtime import Session, random_inputs
from litesmith.tune import _candidates as candidates
from litesmith.tune._question import Question
from litesmith.tune._sparsity import SEARCHED, searchable

PROBE_S = 0.3
START_S = 1.5
"""What a process needs before its first job."""
WORKER_BYTES = 150e6
"""What Python, NumPy and LiteRT take in each process."""


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
    """

    model: str
    samples: tuple[int, int, int]
    stages: tuple[Stage, ...]
    left_out: tuple[tuple[str, str], ...]
    latency_ms: float
    workers: int
    memory_bytes: int
    disk_bytes: int

    @property
    def trials(self) -> tuple[int, int]:
        """How many trials at least and at most."""
        return sum(s.trials for s in self.stages if not s.if_needed), sum(s.trials for s in self.stages)

    @property
    def seconds(self) -> tuple[float, float]:
        """How long at least and at most, by estimate."""
        return sum(s.seconds for s in self.stages if not s.if_needed), sum(s.seconds for s in self.stages)


def make_plan(
    question: Question,
    recipes: Sequence[str],
    left_out: Sequence[tuple[str, str]],
    *,
    workers: int,
    everything: bool,
    sparsity: bool,
) -> Plan:
    """Return the plan of a search, from a few runs of the float model."""
    run_s = _run_s(question.model)
    model = Model.from_bytes(question.model)
    score_s = run_s * len(question.search)
    build_s = 0.3 + 6 * run_s * len(question.calibrate)  # calibration, its channels, and the correction of biases

    def stage(name: str, tried: Sequence[str], *, if_needed: bool = True) -> Stage:
        seconds = len(tried) * (score_s + build_s) / workers
        return Stage(name, len(tried), seconds, if_needed, tuple(tried))

    recovery, unknown = candidates.known(candidates.RECOVERY)
    operators = len(model.main.operators)
    counts = candidates.first_counts(operators)
    promoted = [f"int8, {c} weakest layers in float" for c in counts] + ["… halving the gap"] * candidates.HALVINGS
    sparse = searchable()
    stages = [
        Stage("baseline", 1, START_S + score_s / workers, False, ("float",)),
        stage("schemes", recipes, if_needed=False),
    ]
    if everything:
        stages += [stage("recovery", recovery), stage("mixed", promoted)]
        if sparse and sparsity:
            stages.append(stage("sparsity", [f"{' → '.join(sparse)} → …"] * SEARCHED, if_needed=False))
    measured = len(recipes) + 1
    seconds = 1.3 * measured + 6 * run_s * len(question.held_out) / workers
    stages.append(Stage("latency and held-out", 0, seconds, False, ()))
    missing = [(name, f"there is no step {name!r}") for name in ("prune", "channels", "cluster") if name not in sparse]
    files = sum(s.trials for s in stages)
    return Plan(
        model=model.description,
        samples=(len(question.calibrate), len(question.search), len(question.held_out)),
        stages=tuple(stages),
        left_out=(*left_out, *unknown, *missing),
        latency_ms=1000 * run_s,
        workers=workers,
        memory_bytes=int(workers * (WORKER_BYTES + 6 * len(question.model) + _activation_bytes(model))),
        disk_bytes=int(0.6 * files * len(question.model)),
    )


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


def _activation_bytes(model: Model) -> int:
    return sum(4 * t.elements for t in model.main.tensors if not t.is_constant)
