# SPDX-License-Identifier: Apache-2.0
"""The parts of the decision: bounds, the sequential test, the front, the ranking, and what to say when nothing fits."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from tests.report.conftest import drop, trial

import litesmith
from litesmith.errors import UsageError
from litesmith.model import Builder
from litesmith.runtime import native_tier
from litesmith.tune import Budget, Trial, pareto
from litesmith.tune._budget import parse_bytes, parse_milliseconds, parse_seconds, parse_share
from litesmith.tune._candidates import RECOVERY, SCHEMES, first_counts, known, own_schemes, promoted, ranked
from litesmith.tune._decide import Verdict, decide, excesses, ranking
from litesmith.tune._jobs import Weight
from litesmith.tune._measuring import Measuring
from litesmith.tune._sequential import ALPHA, refuted_after
from litesmith.tune._trial import Score, Timing
from litesmith.tune._tune import _measure_and_verify

# ---------------------------------------------------------------- budget


@pytest.mark.parametrize("text", ["", "x", "-1%", "1 ms", "1%%", "%"])
def test_what_is_no_share_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_share(text)


@pytest.mark.parametrize(
    ("parse", "text"), [(parse_seconds, "5 MB"), (parse_milliseconds, "fast"), (parse_bytes, "4 m")]
)
def test_what_is_no_quantity_is_refused(parse: object, text: str) -> None:
    with pytest.raises(UsageError):
        parse(text)  # type: ignore[operator]


def test_a_budget_that_makes_no_sense_is_refused() -> None:
    for bad in ({"max_drop": -0.1}, {"max_latency_ms": 0.0}, {"minimize": "joy"}, {"time_s": -1.0}):
        with pytest.raises(UsageError):
            Budget(**bad)  # type: ignore[arg-type]


def test_the_drop_of_a_score_that_is_no_share_is_relative() -> None:
    assert Budget(max_drop=0.01, drop_is_relative=True).drop_bound(250.0) == pytest.approx(2.5)
    assert Budget(max_drop=0.01).drop_bound(0.9) == 0.01


# ---------------------------------------------------------------- the sequential test


def _losses(lost: float, won: float, count: int, random: np.random.Generator) -> np.ndarray:
    u = random.random(count)
    return (u < lost).astype(float) - (u > 1 - won).astype(float)


def test_a_candidate_at_the_bound_is_hardly_ever_stopped() -> None:
    """Looking after every sample, the share of false alarms stays below the level, as Ville's inequality says."""
    random = np.random.default_rng(0)
    runs = 1500
    alarms = sum(refuted_after(_losses(0.03, 0.02, 1000, random), 0.01) is not None for _ in range(runs))

    # 1500 runs at 1 % would have 15; 30 is four deviations more.
    assert alarms <= 30
    assert ALPHA == 0.01


def test_a_hopeless_candidate_is_stopped_soon() -> None:
    random = np.random.default_rng(1)
    stops = [refuted_after(_losses(0.20, 0.02, 2000, random), 0.01) for _ in range(100)]

    assert all(stop is not None for stop in stops)
    assert np.median([stop for stop in stops if stop is not None]) < 150


def test_the_test_needs_only_what_was_seen_before() -> None:
    """The answer after n samples does not depend on those that follow."""
    random = np.random.default_rng(2)
    losses = _losses(0.2, 0.02, 500, random)
    stop = refuted_after(losses, 0.01)
    assert stop is not None

    assert refuted_after(losses[:stop], 0.01) == stop
    assert refuted_after(losses[: stop - 1], 0.01) is None


# ---------------------------------------------------------------- front and verdict


def _verified(number: int, recipe: str, score: float, ms: float, size: int, held: float | None = None) -> Trial:
    made = trial(number, recipe, score, ms, size)
    if held is None:
        return made
    from tests.report.conftest import drop

    from litesmith.tune import Score

    lost = None if number == 0 else drop(held)
    return replace(made, held_out=Score(0.92 - held, 0.9, 0.93, 500, lost))


def test_the_front_is_what_no_other_beats() -> None:
    random = np.random.default_rng(3)
    trials = [
        trial(n, f"r{n}", 0.92 - round(float(d), 2), round(float(t), 1) + 0.1, int(10 * s) + 1)
        for n, (d, t, s) in enumerate(random.random((60, 3)), 1)
    ]
    front = pareto(trials)

    def costs(t: Trial) -> tuple[float, float, int]:
        assert t.drop is not None
        assert t.latency_ms is not None
        return t.drop, t.latency_ms, t.size_bytes

    def beats(a: Trial, b: Trial) -> bool:
        return all(x <= y for x, y in zip(costs(a), costs(b), strict=True)) and costs(a) != costs(b)

    for one, other in itertools.product(trials, front):
        assert not beats(one, other)
    for outside in (t for t in trials if t not in front):
        assert any(beats(t, outside) or costs(t) == costs(outside) for t in front)


def _timed(made: Trial, ms: float, spread: float) -> Trial:
    timing = Timing(1, ms, ms * (1 - spread), ms * (1 + spread), 1.0)
    return replace(made, timing=timing, threads=())


def test_of_latencies_that_are_alike_for_sure_the_smaller_file_is_first() -> None:
    fast, small, slow = (
        _verified(n, r, 0.92, 1.0, size) for n, r, size in ((1, "a", 300), (2, "b", 100), (3, "c", 10))
    )
    trials = [_timed(fast, 1.0, 0.001), _timed(small, 1.006, 0.001), _timed(slow, 1.2, 0.001)]
    assert [t.recipe for t in ranking(trials, Budget())] == ["b", "a", "c"]
    assert [t.recipe for t in ranking(trials, Budget(minimize="size"))] == ["c", "b", "a"]
    # Where the machine was busy nobody knows, and the one that seems fastest is taken.
    unsure = [trials[0], _timed(small, 1.006, 0.02), trials[2]]
    assert [t.recipe for t in ranking(unsure, Budget())] == ["a", "b", "c"]
    untimed = [trials[0], replace(small, timing=None, threads=())]
    assert [t.recipe for t in ranking(untimed, Budget())] == ["a", "b"]


def test_the_held_out_split_has_the_last_word() -> None:
    trials = [
        _verified(0, "", 0.92, 4.0, 1000, held=0.0),
        _verified(1, "fast", 0.915, 1.0, 100, held=0.02),  # good on the search split only
        _verified(2, "good", 0.915, 2.0, 200, held=0.004),
    ]
    verdict = decide(trials, Budget(max_drop=0.01), 0.01)

    assert verdict.winner == 2
    assert verdict.proved  # 0.004 + 0.004 is within 0.01


def test_a_winner_whose_interval_reaches_beyond_the_bound_is_not_called_proved() -> None:
    trials = [_verified(0, "", 0.92, 4.0, 1000, held=0.0), _verified(1, "a", 0.915, 1.0, 100, held=0.008)]
    verdict = decide(trials, Budget(max_drop=0.01), 0.01)

    assert verdict.winner == 1
    assert not verdict.proved
    assert any("too few samples to prove" in reason for reason in verdict.reasons)


def test_the_bound_to_blame_is_the_one_that_keeps_the_nearest_out() -> None:
    trials = [
        _verified(0, "", 0.92, 4.0, 1000, held=0.0),
        _verified(1, "slow", 0.915, 2.1, 100, held=0.004),
        _verified(2, "worse", 0.86, 1.0, 100, held=0.06),
        _verified(3, "both", 0.80, 9.0, 100),
    ]
    budget = Budget(max_drop=0.01, max_latency_ms=2.0, max_size_bytes=500)
    verdict = decide(trials, budget, 0.01)

    assert verdict.winner is None
    assert verdict.blame == "latency"
    assert verdict.nearest[0] == 1
    assert any("takes 2.1 ms" in reason for reason in verdict.reasons)
    assert set(excesses(trials[3], budget, 0.01)) == {"drop", "latency"}


def test_files_that_were_too_slow_to_score_tell_which_bound_is_in_the_way() -> None:
    def too_slow(number: int, recipe: str, ms: float, size: int) -> Trial:
        made = _verified(number, recipe, 0.9, ms, size)
        return replace(made, status="stopped", score=None, timing=None, threads=(), about_ms=ms)

    trials = [_verified(0, "", 0.92, 4.0, 1000, held=0.0), too_slow(1, "small", 3.0, 100), too_slow(2, "big", 3.0, 900)]
    verdict = decide(trials, Budget(max_drop=0.01, max_latency_ms=0.01, max_size_bytes=500), 0.01)

    assert verdict.blame == "latency"
    assert verdict.nearest[:2] == (1, 2)
    assert any("keeps small out: it takes about 3 ms, and was not scored" in reason for reason in verdict.reasons)


# ---------------------------------------------------------------- candidates


def test_all_candidates_are_recipes_of_this_version() -> None:
    usable, left_out = known([*SCHEMES, *RECOVERY])

    assert left_out == []
    assert len(usable) == len(SCHEMES) + len(RECOVERY)
    assert known(["polish(3)"]) == ([], [("polish(3)", known(["polish(3)"])[1][0][1])])


def test_relaxed_is_tried_only_where_a_kernel_uses_it() -> None:
    b = Builder("small", seed=0)
    small, untried = own_schemes(b.build({"y": b.conv2d(b.input("x", (1, 4, 4, 8)), 8)}).to_bytes())

    assert small == [s for s in SCHEMES if s != "relaxed"]
    assert untried == [("relaxed", "no kernel of this machine would compute the model with less precision, and faster")]
    if native_tier() in ("avx2", "avx512vnni"):
        wide = litesmith.zoo.build("mobilenet_v2", width=0.35, resolution=128).to_bytes()
        assert own_schemes(wide) == (list(SCHEMES), [])


def test_weak_layers_come_in_the_order_of_error_for_each_byte() -> None:
    weights = [Weight(0, "CONV_2D", 0.5, 100_000), Weight(1, "ADD", 0.1, 0), Weight(2, "CONV_2D", 0.4, 1000)]
    order = ranked(weights)

    assert [w.operator for w in order] == [1, 2, 0]
    assert promoted("int8", order, 2) == "int8 + float:#1 + float:#2"
    assert first_counts(100) == [3, 6, 12, 25, 50]
    assert first_counts(2) == [1]


# ---------------------------------------------------------------- a closer look


class Bench:
    """A search whose latencies, held-out drops and accelerators are known beforehand."""

    def __init__(self, trials: list[Trial], lost: dict[int, float], budget: Budget | None = None) -> None:
        self.trials = {t.number: t for t in trials}
        self.budget, self.drop_bound = budget or Budget(max_drop=0.01), 0.01
        self.measuring = Measuring((1, 2))
        self.lost = lost
        self.left_out: list[tuple[str, str]] = []
        self.measured: list[int] = []
        self.two_threads_ms: dict[int, float] = {}
        self.accelerated_ms: dict[int, float] = {}
        self.once_more_ms: dict[int, float] = {}
        self.ran_off: list[int] = []

    def measure(self, trials: list[Trial]) -> None:
        self.measured += [t.number for t in trials]
        for number, ms in self.two_threads_ms.items():
            self.trials[number] = replace(self.trials[number], threads=(Timing(2, ms, ms, ms, 4.0),))

    def run_off(self, trials: list[Trial]) -> None:
        self.ran_off = [t.number for t in trials]
        for number, ms in self.once_more_ms.items():
            self.trials[number] = replace(self.trials[number], timing=Timing(1, ms, ms, ms, 4.0))

    def verify(self, trials: list[Trial]) -> None:
        for t in trials:
            score = Score(0.92, 0.91, 0.93, 500, None if t.number == 0 else drop(self.lost.get(t.number, 0.0)))
            self.trials[t.number] = replace(t, held_out=score)

    def on_accelerators(self, trials: list[Trial]) -> tuple[int, ...]:
        for t in trials:
            ms = self.accelerated_ms.get(t.number)
            timing = None if ms is None else Timing(1, ms, ms, ms, 4.0, "webgpu")
            self.trials[t.number] = replace(t, accelerated=timing)
        return tuple(t.number for t in trials)

    @property
    def verdict(self) -> Verdict:
        return decide(tuple(self.trials.values()), self.budget, self.drop_bound)


def test_one_that_the_held_out_split_refutes_makes_way_for_the_next() -> None:
    """float16 is faster and smaller than relaxed, so that only it is looked at first; but it loses too much."""
    trials = [
        trial(0, "", 0.92, 4.0, 14_000),
        trial(1, "relaxed", 0.92, 3.2, 14_000),
        trial(2, "float16", 0.92, 3.0, 7_000),
        trial(3, "int8", 0.60, 1.0, 3_500),
    ]
    search = Bench(trials, {1: 0.0, 2: 0.02, 3: 0.3})
    _measure_and_verify(search)  # type: ignore[arg-type]

    assert search.trials[1].held_out is not None
    assert search.measured == [0, 1, 2, 3]
    assert search.verdict.winner == 1


def test_the_best_are_measured_once_more_and_that_decides() -> None:
    """Of the two that seemed alike one was lucky, int8 is refuted, and one that loses too much is not asked."""
    trials = [
        trial(0, "", 0.92, 4.0, 14_000),
        trial(1, "relaxed", 0.92, 3.0, 14_000),
        trial(2, "float16", 0.92, 3.2, 7_000),
        trial(3, "int8", 0.92, 1.0, 3_500),
        trial(4, "int8(same)", 0.60, 1.0, 3_500),
    ]
    search = Bench(trials, {3: 0.02}, Budget(max_drop=0.01, minimize="latency"))
    search.once_more_ms = {1: 3.4}
    _measure_and_verify(search)  # type: ignore[arg-type]

    assert search.ran_off == [1, 2, 0]
    assert search.verdict.winner == 2
    assert search.trials[2].held_out is not None


def test_nothing_is_measured_once_more_where_latency_does_not_decide() -> None:
    search = Bench(
        [trial(0, "", 0.92, 4.0, 14_000), trial(1, "float16", 0.92, 3.0, 7_000)], {}, Budget(minimize="size")
    )
    _measure_and_verify(search)  # type: ignore[arg-type]

    assert search.ran_off == []


def test_every_file_of_the_front_is_scored_on_the_held_out_split() -> None:
    trials = [trial(n, f"r{n}" if n else "", 0.92 - 0.001 * n, 4.0 - 0.1 * n, 1000 - n) for n in range(20)]
    search = Bench(trials, {})
    _measure_and_verify(search)  # type: ignore[arg-type]
    front = pareto(tuple(search.trials.values()))

    assert len(front) == 20
    assert all(t.held_out is not None for t in front)


def test_a_file_that_needs_two_threads_to_be_within_the_bound_may_win() -> None:
    """Eight larger files are within the bound with one thread; the smallest is with two."""
    trials = [trial(n, f"r{n}" if n else "", 0.92, 1.0, 1000 - n) for n in range(9)]
    small = trial(9, "small", 0.92, 3.0, 100)
    search = Bench([*trials, small], {}, Budget(max_drop=0.01, max_latency_ms=2.0, minimize="size"))
    search.two_threads_ms = {9: 1.6}
    _measure_and_verify(search)  # type: ignore[arg-type]

    assert search.measured == list(range(10))
    assert search.verdict.winner == 9
    assert "it wants 2 threads" in search.verdict.reasons


def test_an_accelerator_brings_a_file_within_the_bound_and_is_named() -> None:
    trials = [
        trial(0, "", 0.92, 4.0, 14_000),
        trial(1, "float16", 0.92, 4.0, 7_000),
        trial(2, "int8", 0.60, 1.0, 3_500),
    ]
    search = Bench(trials, {2: 0.3}, Budget(max_drop=0.01, max_latency_ms=2.0))
    search.accelerated_ms = {1: 1.5}
    _measure_and_verify(search)  # type: ignore[arg-type]
    assert search.verdict.winner is None, "nobody asked for accelerators"

    search.measuring = Measuring((1, 2), accelerators=9)
    tried = _measure_and_verify(search)  # type: ignore[arg-type]

    assert tried == (1,), "a file that loses too much is not tried, nor one that another beats in everything"
    assert search.verdict.winner == 1
    assert search.trials[1].latency_ms == 1.5
    assert "it wants the accelerator webgpu: 1.5 ms there" in search.verdict.reasons


def test_the_cpu_is_taken_where_an_accelerator_is_hardly_faster() -> None:
    made = trial(1, "int8", 0.92, 1.0, 100)
    on = [replace(made, accelerated=Timing(1, ms, ms, ms, 4.0, "webgpu")).best_timing for ms in (0.97, 0.9)]

    assert [timing.accelerator for timing in on if timing is not None] == ["", "webgpu"]


def test_accelerators_that_were_not_tried_are_told() -> None:
    trials = [trial(n, f"r{n}" if n else "", 0.92 - 0.001 * n, 4.0 - 0.1 * n, 1000 - n) for n in range(9)]
    search = Bench(trials, {})
    search.measuring = Measuring(accelerators=9)
    _measure_and_verify(search)  # type: ignore[arg-type]

    assert [name for name, _ in search.left_out] == [f"{t.name} on accelerators" for t in trials[2::-1]]
