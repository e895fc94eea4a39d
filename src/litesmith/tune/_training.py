# SPDX-License-Identifier: Apache-2.0
"""Candidates that are trained: the dearest, so that only those are whose cheaper kin left something to gain.

What is worth training follows from what is to be small, and from the scores so far. Rounding first, then shared values,
zeros and channels; what takes away more only where less was within the bound. A training that the time left does not
allow is left out, by an estimate from a rehearsal; what was left out is said, with the reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from litesmith.optimize import Recipe, Step
from litesmith.train._wish import default_epochs
from litesmith.tune import _candidates as candidates
from litesmith.tune._budget import Budget
from litesmith.tune._jobs import Failure
from litesmith.tune._rehearse import Rehearsal
from litesmith.tune._trial import DONE, NO_TIME, Trial

if TYPE_CHECKING:
    from litesmith.tune._search import Search

_SINGLE = ("float16", "weights8", "dynamic", "weights4", "weights4-block32", "dynamic4")


@dataclass(frozen=True)
class Proposal:
    """A recipe that trains, and the recipe that has to be within the bound before it is worth a try."""

    recipe: str
    after: str = ""


@dataclass(frozen=True)
class Way:
    """How trainings are written: for how long, from which seed, in which number format, and what follows them."""

    epochs: int | None = None
    seed: int = 0
    qat: str = "int8"
    then: str = ""

    def recipe(self, *words: str) -> str:
        """Return the recipe of a training.

        Example:
            >>> Way(seed=3).recipe("prune=0.8", "4x1")
            'train(int8, prune=0.8, 4x1, epochs=16, seed=3)'
        """
        recovers = any(word.startswith(("prune", "channels")) for word in words)
        epochs = self.epochs or default_epochs(recovers=recovers)
        seed = [f"seed={self.seed}"] if self.seed else []
        steps = [f"train({', '.join([*filter(None, [self.qat]), *words, f'epochs={epochs}', *seed])})", self.then]
        return str(Recipe.parse(" → ".join(filter(None, steps))))


def rounding(way: Way) -> str:
    """Return the training that only learns to live with 8 bits."""
    return Way(way.epochs, way.seed).recipe()


def proposals(budget: Budget, way: Way, *, narrow: Way | None = None, too_large: bool = False) -> list[Proposal]:
    """Return what else can be trained for a budget, from cheap to dear.

    Args:
        budget: the bounds, and what is to be small.
        way: how trainings are written.
        narrow: how those with fewer channels are, where that differs.
        too_large: whether no file is small enough yet.
    """
    found: list[Proposal] = []
    small, download = budget.minimize == "size" or too_large, budget.minimize == "download"
    fast = budget.counts_latency
    if download:
        found.append(Proposal(way.recipe("cluster=32")))
    for kind in _zeros(way, small=small, download=download, fast=fast):
        zeros = replace(way, then="") if "store=sparse" in kind else way  # no number format keeps sparse storage
        first = zeros.recipe("prune=0.8", *kind)
        found += [Proposal(first), Proposal(zeros.recipe("prune=0.9", *kind), first)]
        if download:
            found.append(Proposal(way.recipe("prune=0.8", *kind, "cluster=32"), first))
    if small or download or fast:
        narrow = narrow or way
        first = narrow.recipe("channels=0.75")
        found += [Proposal(first), Proposal(narrow.recipe("channels=0.5"), first)]
    return found


def _zeros(way: Way, *, small: bool, download: bool, fast: bool) -> list[tuple[str, ...]]:
    """Return patterns of zeros and how they are stored: for small files, for downloads, or for the delegate's speed."""
    if small:
        return [("4x1", "store=sparse"), ("unstructured", "store=sparse")]
    if download:
        return [("unstructured",)]  # compression finds them by itself
    return [("4x1",)] if fast and not way.qat else []  # integers are as fast with zeros as without


def search_training(search: Search, epochs: int | None) -> None:
    """Try what is worth training, in rounds: each looks at the scores of those before."""
    trainings = _Trainings(search)
    way = Way(epochs, search.question.seed)
    _round_int8(search, trainings, way)
    bound = search.drop_bound
    within = [t for t in search.trials.values() if t.status == DONE and t.drop is not None and t.drop <= bound]
    smallest = _smallest_format(within, search.budget)
    narrow = way if smallest == "int8" else replace(way, qat="", then=smallest)
    if not any(_is_plain_int8(t) for t in within):
        way = narrow
    limit = search.budget.max_size_bytes
    too_large = limit is not None and all(t.size_bytes > limit for t in within)
    wanted = proposals(search.budget, way, narrow=narrow, too_large=too_large)
    if not wanted:
        search.left_out.append(("training zeros and channels", f"they do not lower the {search.budget.minimize}"))
    untrained = [t for t in within if t.body and not Recipe.parse(t.body).trains]
    pointless = {p.recipe for p in wanted if _pointless(search, p.recipe, untrained)}
    trials = trainings.run([p.recipe for p in wanted if not p.after and p.recipe not in pointless])
    fine = pointless | {t.body for t in trials if t.status == DONE and t.drop is not None and t.drop <= bound}
    later = [p for p in wanted if p.after and p.recipe not in pointless]
    for proposal in (p for p in later if p.after not in fine):
        tried = any(t.body == proposal.after for t in trials)
        reason = "already loses more than is allowed, or failed" if tried else "was not trained"
        search.left_out.append((proposal.recipe, f"{proposal.after} {reason}"))
    trainings.run([p.recipe for p in later if p.after in fine])


def _round_int8(search: Search, trainings: _Trainings, way: Way) -> None:
    """Train for int8, where without it too much of what is allowed is lost."""
    best = candidates.best_int8([t for t in search.trials.values() if _is_plain_int8(t)])
    allowed = 0.0 if search.budget.minimize == "drop" else search.drop_bound
    if candidates.needs_help(best, allowed):
        trainings.run([rounding(way)])
    else:
        assert best is not None
        assert best.drop is not None
        reason = f"{best.recipe} loses {best.drop:.4g} without, of {search.drop_bound:.4g} that are allowed"
        search.left_out.append((rounding(way), reason))


def _is_plain_int8(trial: Trial) -> bool:
    """Say whether a trial is int8 and nothing else, trained or not; layers in float make it slower and larger."""
    steps = Recipe.parse(trial.body).steps
    return len(steps) == 1 and not steps[0].rules and _format(steps[0]) == "int8" and not _taken(steps[0])


def _format(step: Step) -> str:
    return str(step.get("qat") or "") if step.name == "train" else step.name


def _taken(step: Step) -> set[str]:
    """Return what a training takes away."""
    return {"prune", "channels", "cluster"} & set(step.options)


def _smallest_format(within: Sequence[Trial], budget: Budget) -> str:
    """Return the number format for files with fewer channels, of those within the bound; empty for float.

    Integers are fastest, so that only where size counts another may be better, if its file is smaller.
    """
    fitting = {"int8" if _is_plain_int8(t) else t.body: t for t in within if _is_plain_int8(t) or t.body in _SINGLE}
    if budget.minimize not in ("size", "download"):
        return "int8" if "int8" in fitting else ""
    return min(fitting, key=lambda name: (_weight(fitting[name]), name != "int8", name), default="")


def _weight(trial: Trial) -> int:
    return trial.download_bytes or trial.size_bytes


def _pointless(search: Search, recipe: str, untrained: Sequence[Trial]) -> bool:
    """Say whether a training can gain nothing, because as much was taken away without, within the bound."""
    steps = Recipe.parse(recipe).steps
    for trial in untrained:
        if _takes_as_much(Recipe.parse(trial.body).steps, steps):
            search.left_out.append(
                (recipe, f"{trial.recipe} takes as much away without training, and is within the bound")
            )
            return True
    return False


def _takes_as_much(steps: Sequence[Step], trained: Sequence[Step]) -> bool:
    named = {step.name: step for step in steps}
    training = trained[0]
    formats = {*filter(None, [training.get("qat")]), *(step.name for step in trained[1:])}
    if not formats <= set(named):
        return False
    for name in _taken(training):
        step, wanted = named.get(name), training.get(name)
        if step is None:
            return False
        if name == "prune" and (
            step.get("sparsity") < wanted or any(step.get(k) != training.get(k) for k in ("pattern", "store"))
        ):
            return False
        if name == "cluster" and step.get("clusters") > wanted:
            return False
        if name == "channels" and _work_left(step) > wanted:
            return False
    return bool(_taken(training))


def _work_left(step: Step) -> float:
    """Return the share of the work that removing channels leaves, as trainings are told it."""
    if "max_macs" in step.options:
        return float(step.get("max_macs"))
    if "max_latency_ms" in step.options:
        return 1.0  # for all that the recipe tells
    keep = float(step.get("keep"))  # of every group of channels: about its square of the work
    return keep * keep


class _Trainings:
    """Runs trainings for which there is time."""

    def __init__(self, search: Search) -> None:
        self._search = search
        self._rehearsal: Rehearsal | Failure | None = None
        self._pace = 1.0  # how much longer trainings took than estimated

    def run(self, recipes: Sequence[str]) -> list[Trial]:
        """Train those that the time left allows; returns their trials."""
        chosen = self._affordable(recipes)
        fresh = [recipe for recipe in chosen if not self._search.knows(recipe)]
        trials = self._search.run("training", chosen) if chosen else []
        if isinstance(self._rehearsal, Rehearsal):
            expected = {recipe: self._rehearsal.seconds(recipe, self._samples) for recipe in fresh}
            ratios = [t.build_s / expected[t.body] for t in trials if t.body in expected and t.build_s]
            self._pace = max([*ratios, self._pace])
        return trials

    @property
    def _samples(self) -> int:
        assert self._search.question.train is not None
        return len(self._search.question.train)

    def _affordable(self, recipes: Sequence[str]) -> list[str]:
        search, chosen, planned_s = self._search, [], 0.0
        for recipe in recipes:
            if search.left_s == float("inf") or search.knows(recipe):
                chosen.append(recipe)
                continue
            reason, seconds = self._too_long(recipe, planned_s)
            if reason:
                search.left_out.append((recipe, reason))
            else:
                chosen.append(recipe)
                planned_s += seconds / search.workers
        return chosen

    def _too_long(self, recipe: str, planned_s: float) -> tuple[str, float]:
        """Return why there is no time for a training, empty where there is, and how long it takes."""
        if self._search.out_of_time:
            return NO_TIME, 0.0
        if self._rehearsal is None:
            self._rehearsal = self._search.rehearse()
        if isinstance(self._rehearsal, Failure):
            return f"training does not work here: {self._rehearsal.reason}", 0.0
        seconds = self._pace * self._rehearsal.seconds(recipe, self._samples)
        left_s = max(0.0, self._search.left_s - planned_s)
        if seconds > left_s:
            return f"training it takes about {seconds:.0f} s, and {left_s:.0f} s are left", seconds
        return "", seconds
