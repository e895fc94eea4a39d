# SPDX-License-Identifier: Apache-2.0
"""A trial: one recipe, what became of the model, and what it costs; and which trials no other beats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from litesmith.accuracy import Drop
from litesmith.result import Result

DONE, STOPPED, FAILED = "done", "stopped", "failed"
NO_TIME = "no time left"
"""Why something was not tried."""


@dataclass(frozen=True)
class Score:
    """A score on a split, and what it is less than the float model's.

    Attributes:
        value, low, high: the score and its interval.
        samples: on how many it was found.
        drop: against the float model on the same samples; None for the float model itself.
    """

    value: float
    low: float
    high: float
    samples: int
    drop: Drop | None = None


@dataclass(frozen=True)
class Timing:
    """The latency of a file, measured alone on the machine.

    Attributes:
        threads: with which it was measured.
        median_ms, low_ms, high_ms: of one inference, at the speed at which the machine ran the float model when that was
            first measured, and the interval; it is what the file took beside the float model, in rounds of both.
        float_ms: the float model's median when it was first measured.
        accelerator: where it ran; empty for what LiteRT takes by itself, on the CPU.
        ran_off: whether it was measured once more, in the same rounds as the other best files.
    """

    threads: int
    median_ms: float
    low_ms: float
    high_ms: float
    float_ms: float
    accelerator: str = ""
    ran_off: bool = False

    @property
    def is_sure(self) -> bool:
        """Whether the median is known to ±5 %; a busy machine leaves it less sure."""
        return self.high_ms - self.low_ms <= 0.1 * self.median_ms


@dataclass(frozen=True)
class Trial(Result, kind="trial", schema=1):
    """One recipe and its outcome.

    Attributes:
        number: in the order of the plan; 0 is the float model.
        stage: what the trial belongs to: baseline, schemes, recovery, mixed, sparsity …
        recipe: as text; empty for the float model.
        start: what the recipe begins with because every candidate does: rewrites that help this processor.
        status: "done", "stopped" (hopeless before all samples were seen) or "failed".
        reason: why it was stopped or failed.
        file: the hash of the file, which is its name in the folder ``files``; empty where there is none.
        size_bytes: of the file.
        score: on the search split.
        build_s, score_s: time to make the file, and to score it.
        timing: its latency with one thread, where it was measured.
        threads: its latencies with other numbers of threads.
        accelerated: its latency on the best accelerator, where those were asked for and one beats the CPU with one thread.
        held_out: its score on samples that the search never saw, for finalists.
        key: the hash of everything that the outcome depends on.
        stopped_by: the bounds that it was stopped for; another budget tries it again.
        about_ms: its latency by a short look, of a file that was too slow to be scored.
        download_bytes: of the file through gzip, where that is minimized; else 0.
        held_out_hash: fingerprint of the samples that ``held_out`` is about.
        transient: whether what it failed of may be over the next time, such as too little memory.
    """

    number: int
    stage: str
    recipe: str
    status: str
    reason: str = ""
    file: str = ""
    size_bytes: int = 0
    score: Score | None = None
    build_s: float = 0.0
    score_s: float = 0.0
    timing: Timing | None = None
    threads: tuple[Timing, ...] = ()
    held_out: Score | None = None
    key: str = ""
    stopped_by: str = ""
    download_bytes: int = 0
    held_out_hash: str = ""
    transient: bool = False
    start: str = ""
    accelerated: Timing | None = None
    about_ms: float | None = None

    @property
    def body(self) -> str:
        """The recipe after what every candidate begins with.

        Example:
            >>> Trial(1, "schemes", "fix(xnnpack) → int8", DONE, start="fix(xnnpack)").body
            'int8'
        """
        return self.recipe.removeprefix(self.start).removeprefix(" → ") if self.start else self.recipe

    @property
    def drop(self) -> float | None:
        """What the search split says it loses; 0 for the float model."""
        if self.score is None:
            return None
        return 0.0 if self.score.drop is None else self.score.drop.drop

    @property
    def best_timing(self) -> Timing | None:
        """The latency with what suits it: the fewest threads within 5 % of the best, and else an accelerator."""
        found = [t for t in (self.timing, *self.threads, self.accelerated) if t is not None]
        known = sorted(found, key=lambda t: (bool(t.accelerator), t.threads))
        if not known:
            return None
        least = min(t.median_ms for t in known)
        return next(t for t in known if t.median_ms <= 1.05 * least)

    @property
    def latency_ms(self) -> float | None:
        """The latency with the number of threads, or on the accelerator, that suits it."""
        best = self.best_timing
        return None if best is None else best.median_ms

    @property
    def name(self) -> str:
        """What people call it."""
        return self.recipe or "float"


def pareto(trials: Sequence[Trial]) -> tuple[Trial, ...]:
    """Return the trials that no other beats: none is as good in drop, latency and size, and better in one.

    Where the download is minimized, its size counts instead of the file's.

    Trials that were stopped or failed are not on the front; of equal ones the first stays.
    """
    complete = [t for t in trials if t.status == DONE and t.drop is not None]
    front = []
    for trial in complete:
        mine = _costs(trial)
        rivals = [(_costs(other), other.number) for other in complete if other is not trial]
        beaten = any(
            all(a <= b for a, b in zip(theirs, mine, strict=True)) and (theirs != mine or number < trial.number)
            for theirs, number in rivals
        )
        if not beaten:
            front.append(trial)
    return tuple(front)


def _costs(trial: Trial) -> tuple[float, float, float]:
    assert trial.drop is not None
    latency_ms = float("inf") if trial.latency_ms is None else trial.latency_ms
    return trial.drop, latency_ms, float(trial.download_bytes or trial.size_bytes)
