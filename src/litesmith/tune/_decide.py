# SPDX-License-Identifier: Apache-2.0
"""Which trial to ship, and why; and where none is within the bounds, which bound is to blame and what comes nearest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from litesmith.tune._budget import Budget
from litesmith.tune._trial import DONE, Trial, pareto

ALIKE = 0.01
"""A file is as fast as the fastest when the whole interval of its latency is less than this behind."""
NEAREST = 3


@dataclass(frozen=True)
class Verdict:
    """What came of a search.

    Attributes:
        winner: the number of the trial to ship; None where none is within the bounds.
        proved: whether the whole interval of its drop on the held-out split is within the bound.
        reasons: why it, in sentences.
        blame: the bound in the way, where there is no winner: drop, latency, size; empty where several are.
        nearest: the trials that come nearest to the bounds, the nearest first.
    """

    winner: int | None
    proved: bool
    reasons: tuple[str, ...]
    blame: str = ""
    nearest: tuple[int, ...] = ()


def excesses(trial: Trial, budget: Budget, drop_bound: float) -> dict[str, float]:
    """Return how many times each bound is exceeded, for those that are; the drop counts from the worse split."""
    drops = [trial.drop or 0.0]
    if trial.held_out is not None and trial.held_out.drop is not None:
        drops.append(trial.held_out.drop.drop)
    found = {}
    worst = max(drops)
    if worst > drop_bound:
        found["drop"] = worst / drop_bound if drop_bound > 0 else float("inf")
    latency_ms = trial.about_ms if trial.latency_ms is None else trial.latency_ms
    if budget.max_latency_ms is not None and latency_ms is not None and latency_ms > budget.max_latency_ms:
        found["latency"] = latency_ms / budget.max_latency_ms
    if budget.max_size_bytes is not None and trial.size_bytes > budget.max_size_bytes:
        found["size"] = trial.size_bytes / budget.max_size_bytes
    return found


def fits(trial: Trial, budget: Budget, drop_bound: float) -> bool:
    """Say whether a trial is within all bounds, as far as they were measured."""
    return trial.status == DONE and trial.drop is not None and not excesses(trial, budget, drop_bound)


def ranking(trials: Sequence[Trial], budget: Budget) -> list[Trial]:
    """Return trials, the one to ship first; of those that are as fast for sure the smaller comes first."""
    if budget.minimize == "size":
        return sorted(trials, key=lambda t: (t.size_bytes, t.latency_ms or 0.0, t.number))
    if budget.minimize == "download":
        return sorted(trials, key=lambda t: (t.download_bytes, t.latency_ms or 0.0, t.number))
    if budget.minimize == "drop":
        return sorted(trials, key=lambda t: (t.drop or 0.0, t.latency_ms or 0.0, t.number))
    left = sorted(trials, key=lambda t: (t.latency_ms or float("inf"), t.size_bytes, t.number))
    order: list[Trial] = []
    while left:
        limit = (left[0].latency_ms or float("inf")) * (1 + ALIKE)
        alike = [left[0], *(t for t in left[1:] if _slowest_ms(t) <= limit)]
        first = min(alike, key=lambda t: (t.size_bytes, t.drop or 0.0, t.number))
        order.append(first)
        left.remove(first)
    return order


def _slowest_ms(trial: Trial) -> float:
    return float("inf") if trial.best_timing is None else trial.best_timing.high_ms


def finalists(trials: Sequence[Trial], budget: Budget, drop_bound: float) -> list[Trial]:
    """Return the trials worth a closer look: within the bounds, best first, then the rest of the front."""
    good = ranking([t for t in trials if fits(t, budget, drop_bound)], budget)
    front = [t for t in pareto(trials) if t not in good]
    nearest = sorted(front, key=lambda t: (_distance(t, budget, drop_bound), t.number))
    best = [t for t in good if t in pareto(good)] + good[:1]
    return [t for n, t in enumerate([*best, *nearest]) if t not in [*best, *nearest][:n]]


def contenders(trials: Sequence[Trial], budget: Budget, drop_bound: float) -> list[Trial]:
    """Return the trials that an accelerator may help to win, best first: only their latency may be out of bounds."""
    good = ranking([t for t in trials if fits(t, replace(budget, max_latency_ms=None), drop_bound)], budget)
    front = (*pareto(good), *good[:1])
    return [t for t in good if t in front]


def rivals(trials: Sequence[Trial], budget: Budget, drop_bound: float, most: int) -> list[Trial]:
    """Return the trials that may win where latency is minimized, best first; they are worth measuring once more."""
    if budget.minimize != "latency":
        return []
    return ranking([t for t in trials if fits(t, budget, drop_bound)], budget)[:most]


def decide(trials: Sequence[Trial], budget: Budget, drop_bound: float) -> Verdict:
    """Return the verdict: the first in the ranking that the held-out split confirms."""
    within = [t for t in trials if fits(t, budget, drop_bound)]
    verified = [t for t in ranking(within, budget) if t.held_out is not None]
    if verified:
        winner = verified[0]
        return Verdict(winner.number, _proved(winner, drop_bound), tuple(_reasons(winner, trials, budget, drop_bound)))
    return _no_winner(trials, budget, drop_bound)


def _proved(trial: Trial, drop_bound: float) -> bool:
    assert trial.held_out is not None
    return trial.held_out.drop is None or trial.held_out.drop.drop_high <= drop_bound


def _reasons(winner: Trial, trials: Sequence[Trial], budget: Budget, drop_bound: float) -> list[str]:
    count = sum(fits(t, budget, drop_bound) for t in trials)
    found = [
        f"{count} of {len(trials)} candidates are within the bounds; {winner.name} has the least {budget.minimize}"
    ]
    if budget.minimize == "latency":
        found[0] += f", or as little for sure to {100 * ALIKE:g} % and the smaller file"
    if winner.number == 0:
        found.append("nothing that was tried is better here than the model as it was given: ship that")
    elif not _proved(winner, drop_bound):
        found.append(
            "the held-out split confirms it, but has too few samples to prove it: the interval of the drop reaches beyond "
            "the bound; give more samples to be sure"
        )
    best = winner.best_timing
    if best is not None and best.threads > 1:
        found.append(f"it wants {best.threads} threads")
    if best is not None and best.accelerator:
        found.append(f"it wants the accelerator {best.accelerator}: {best.median_ms:.3g} ms there")
    return found


def _distance(trial: Trial, budget: Budget, drop_bound: float) -> float:
    return max(excesses(trial, budget, drop_bound).values(), default=1.0)


def _no_winner(trials: Sequence[Trial], budget: Budget, drop_bound: float) -> Verdict:
    # Files that were too slow to be scored may be all there are: what is known of them tells which bound is in the way.
    seen = [t for t in trials if t.status == DONE or t.about_ms is not None]
    nearest = sorted(seen, key=lambda t: (_distance(t, budget, drop_bound), t.number))[:NEAREST]
    single: dict[str, tuple[float, Trial]] = {}
    for trial in seen:
        over = excesses(trial, budget, drop_bound)
        if len(over) == 1:
            bound, times = next(iter(over.items()))
            if bound not in single or times < single[bound][0]:
                single[bound] = times, trial
    reasons = ["no candidate is within all bounds"]
    blame = ""
    if single:
        blame, (_, trial) = min(single.items(), key=lambda item: (item[1][0], item[0]))
        for bound, (_, near) in sorted(single.items(), key=lambda item: item[1][0]):
            reasons.append(f"the bound on {bound} alone keeps {near.name} out: it {_needs(near, bound)}")
    else:
        bounds = sorted({bound for t in seen for bound in excesses(t, budget, drop_bound)})
        reasons.append(f"every candidate breaks at least two bounds: {', '.join(bounds)}")
    return Verdict(None, False, tuple(reasons), blame, tuple(t.number for t in nearest))


def _needs(trial: Trial, bound: str) -> str:
    if bound == "latency":
        if trial.about_ms is not None:
            return f"takes about {trial.about_ms:.3g} ms, and was not scored for that"
        return f"takes {trial.latency_ms:.3g} ms"
    if bound == "size":
        return f"has {trial.size_bytes:,} bytes"
    drops = [trial.drop or 0.0]
    if trial.held_out is not None and trial.held_out.drop is not None:
        drops.append(trial.held_out.drop.drop)
    return f"loses {max(drops):.4g}"
