# SPDX-License-Identifier: Apache-2.0
"""Run candidates: each is built, scored range by range, stopped where it is hopeless, and written down.

What becomes of a candidate depends on itself alone, never on when or where its jobs ran: ranges are tested in order,
and one that was run ahead, because a worker was idle, counts for nothing where an earlier one stopped the candidate.
So the trials are the same for any number of workers.
"""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from litesmith.errors import SessionError
from litesmith.measure._accelerators import BASELINE
from litesmith.optimize import Coverage, Recipe
from litesmith.optimize._compressed_size import gzip_bytes
from litesmith.progress import task
from litesmith.tune._budget import Budget
from litesmith.tune._jobs import (
    REWRITES,
    Accelerate,
    Build,
    Built,
    Explain,
    Failure,
    FindRewrites,
    Job,
    Measure,
    Observation,
    Observe,
    OnAccelerator,
    TunedLayer,
    Weigh,
    Weight,
)
from litesmith.tune._journal import NO_SPACE, Journal, write_whole
from litesmith.tune._measuring import Measuring
from litesmith.tune._question import Array, Question, content_hash, joined
from litesmith.tune._rehearse import Rehearsal, Rehearse
from litesmith.tune._sequential import refuted_after
from litesmith.tune._speed import Speed, at_speed
from litesmith.tune._stamp import training_stamp
from litesmith.tune._trial import DONE, FAILED, NO_TIME, STOPPED, Timing, Trial
from litesmith.tune._workers import Workers

RANGES = 8
FEWEST_SAMPLES = 64
HOPELESS = 5.0
"""A candidate is too slow to score when its latency is this many times what it has to beat."""
SUSPECT = 0.5
"""A rough latency above this share of what is hopeless is looked at again, with nothing else running."""
LOOK_S = 0.1
RUN_OFFS = 3
"""How often the best files are measured beside each other, at most."""
UNMEASURABLE = "its latency cannot be measured: "
USUAL = (BASELINE, "litesmith")
"""Accelerators that every session takes by itself where they help, so that latencies are of them anyway."""


@dataclass
class _Candidate:
    """A candidate under way: its file, and what was seen of it by range."""

    trial: Trial
    model: bytes | None = None
    coverage: Coverage | None = None
    is_suspect: bool = False  # maybe too slow: it waits until nothing else runs
    asked: int = 0
    seen: dict[int, Observation | Failure] = field(default_factory=dict)
    whole: list[Observation] = field(default_factory=list)  # of the ranges that were tested, in order
    tested: int = 0
    finished: bool = False


class Search:
    """All trials of one question: those in the journal are not repeated.

    With ``keeps_state``, for workers that share this machine's files, a training goes on where it was killed. With
    ``is_measured_elsewhere`` the rough latencies of those who make files say nothing.
    """

    def __init__(
        self,
        question: Question,
        workers: Workers,
        meter: Workers,
        journal: Journal,
        folder: Path,
        budget: Budget,
        *,
        key: str,
        deadline: float | None = None,
        keeps_state: bool = False,
        is_measured_elsewhere: bool = False,
        measuring: Measuring | None = None,
    ) -> None:
        self.question, self.budget = question, budget
        self._workers, self._meter, self._journal, self._folder, self._key = workers, meter, journal, folder, key
        self._deadline, self._keeps_state = deadline, keeps_state
        self._is_measured_elsewhere = is_measured_elsewhere
        self.measuring = measuring or Measuring()
        self._files = folder / "files"
        self._files.mkdir(exist_ok=True)
        self._known = {
            record["key"]: Trial.from_json(json.dumps(record)) for record in journal.records if "key" in record
        }
        self.trials: dict[int, Trial] = {}
        self.left_out: list[tuple[str, str]] = []
        self.work_s = 0.0
        self._from_before = frozenset(self._known)
        self.reused = 0
        self._tickets = 0
        self._float_seen: dict[str, dict[str, Array]] = {}
        self._float_ms = 0.0
        self._speed = Speed()
        self.drop_bound = 0.0
        self.start = ""
        self._stops = f"drop {budget.max_drop:g}, latency {budget.max_latency_ms}, least {budget.minimize}"
        self._stops += ", on accelerators" if self.measuring.accelerators else ""

    @property
    def out_of_time(self) -> bool:
        """Whether the time of the budget is up, or what is left too short for one more candidate."""
        if self._deadline is None:
            return False
        tried = [t.build_s + t.score_s for t in self.trials.values() if t.number and not Recipe.parse(t.recipe).trains]
        return self.left_s < (sum(tried) / len(tried) if tried else 0.0)

    @property
    def left_s(self) -> float:
        """How much of the time of the budget is left to try candidates, in seconds: those tried must be measured yet."""
        return float("inf") if self._deadline is None else self._deadline - time.monotonic() - self._measuring_s()

    def _measuring_s(self) -> float:
        """Return how long measuring takes of what was tried and is under way, by how long scoring took."""
        if not self.trials:
            return 0.0
        scored = [t for t in self.trials.values() if t.number and t.score] or [self.trials[0]]
        run_s = sum(t.score_s for t in scored) / sum(t.score.samples for t in scored if t.score)
        files = sum(t.status == DONE for t in self.trials.values()) + self.workers
        return self.measuring.all_s(files, run_s, len(self.question.held_out), self.workers)

    @property
    def workers(self) -> int:
        """How many jobs are done at once."""
        return self._workers.count

    # ------------------------------------------------------------------ the float model

    def baseline(self) -> Trial:
        """Score the float model on the search split."""
        started = time.perf_counter()
        built = self._one(Build(""))
        if isinstance(built, Failure):
            raise SessionError(f"the float model does not run, so there is nothing to start from: {built.reason}")
        if self.budget.max_latency_ms is not None and not self._is_measured_elsewhere:
            looked = self._alone_ms(self.question.model)
            if isinstance(looked, Failure):
                raise SessionError(f"the latency of the float model cannot be measured: {looked.reason}")
            self._float_ms = looked[0]
        seen = self._observed_float("search")
        score = self.question.score(seen)
        self.drop_bound = self.budget.drop_bound(score.value)
        trial = Trial(0, "baseline", "", DONE, score=score, score_s=time.perf_counter() - started)
        trial = replace(trial, key=self._trial_key(""))
        known = self._known.get(trial.key)
        if known is not None and known.status == DONE:
            trial = self._for_this_search(replace(known, number=0))
        self._speed.saw(t for t in (trial.timing, *trial.threads) if t is not None)
        return self._keep(trial, self.question.model)

    def _observed_float(self, split: str) -> dict[str, Array]:
        """Return what the metric keeps of the float model, from the folder where it is there for these samples."""
        if split not in self._float_seen:
            path = self._files / f"{self._key[:16]}-{split}-{self.question.sequence(split)[:16]}.npz"
            if path.exists():
                with np.load(path, allow_pickle=False) as stored:
                    self._float_seen[split] = dict(stored)
            else:
                seen = self._observe_all([self.question.model], split)[0]
                if isinstance(seen, Failure):
                    raise SessionError(f"the float model cannot be scored: {seen.reason}")
                self._float_seen[split] = seen
                if all(array.dtype != object for array in seen.values()):  # texts and boxes are run again instead
                    self._save_arrays(path, seen)
        return self._float_seen[split]

    def _save_arrays(self, path: Path, arrays: dict[str, Array]) -> None:
        import io

        buffer = io.BytesIO()
        named: dict[str, Any] = dict(arrays)
        np.savez_compressed(buffer, **named)
        self._save(path, buffer.getvalue())  # without space it is run again after a restart

    def _save(self, path: Path, content: bytes) -> None:
        """Write what the search can do without; where the disk is full it is not there."""
        try:
            write_whole(path, content)
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise

    # ------------------------------------------------------------------ candidates

    def run(self, stage: str, recipes: Sequence[str]) -> list[Trial]:
        """Build and score candidates, each after what all begin with; returns their trials in the order given."""
        first = max(self.trials, default=-1) + 1  # some may have been left out
        whole = [self._whole(recipe) for recipe in recipes]
        wanted = [
            Trial(first + n, stage, r, DONE, key=self._trial_key(r), start=self.start) for n, r in enumerate(whole)
        ]
        waiting = []
        for trial in wanted:
            known = self._known.get(trial.key)
            if known is not None and self._still_holds(known):
                known = replace(known, number=trial.number, stage=stage, start=trial.start)
                known = self._for_this_search(known)
                self.trials[trial.number] = self._weighed(known)
                self.reused += trial.key in self._from_before
            else:
                waiting.append(_Candidate(trial))
        with task(f"Trying {stage}", total=len(waiting)) as advance:
            self._run(waiting, advance)
        return [self.trials[t.number] for t in wanted if t.number in self.trials]

    def _whole(self, recipe: str) -> str:
        """Return a recipe with what all candidates begin with."""
        return " → ".join(filter(None, [self.start, recipe]))

    @property
    def alike(self) -> list[Trial]:
        """The trials that begin as every candidate does by now, so that their scores tell of others."""
        return [trial for trial in self.trials.values() if trial.start == self.start]

    def begin_with_rewrites(self) -> None:
        """Try the rewrites that help this processor, and begin every candidate with them from now on.

        They cost a few bytes, so that they are of no use where latency does not count.
        """
        if not self.budget.counts_latency:
            return
        found = self._one(FindRewrites())
        if isinstance(found, Failure):
            self.left_out.append((REWRITES, found.reason))
        if isinstance(found, Failure) or not found:
            return
        own = next((t for t in self.trials.values() if t.recipe == REWRITES), None)  # somebody asked for it
        trial = own or next(iter(self.run("rewrites", [REWRITES])), None)
        if trial is None or trial.status != DONE or trial.drop is None or trial.drop > self.drop_bound:
            reason = "" if trial is None else f": {trial.reason or 'it loses more than is allowed'}"
            self.left_out.append(
                (f"{REWRITES} before other candidates", f"it was not finished within the bound{reason}")
            )
            return
        self.start = REWRITES
        alike = {n: t for n, t in self.trials.items() if t.recipe == REWRITES or t.recipe.startswith(f"{REWRITES} → ")}
        self.trials.update({n: replace(t, start=REWRITES) for n, t in alike.items()})

    def _still_holds(self, known: Trial) -> bool:
        """Say whether a trial of the journal answers this budget too: one that was stopped answers only its own."""
        if known.status == FAILED:
            return not known.transient
        if known.status == STOPPED and known.stopped_by != self._stops:
            return False
        return (self._files / f"{known.file}.tflite").exists()

    def _for_this_search(self, known: Trial) -> Trial:
        """Return a trial of the journal without its score on held-out samples that are not those of this search.

        And without its latency on an accelerator, which counts only where that is asked for, and is then measured again.
        """
        known = replace(known, accelerated=None)
        same = known.held_out_hash == self._held_out_hash
        return known if same else replace(known, held_out=None, held_out_hash="")

    def _run(self, waiting: list[_Candidate], advance: Any) -> None:
        running: list[_Candidate] = []
        tickets: dict[int, tuple[_Candidate, int]] = {}
        while waiting or running:
            while len(tickets) < self._workers.count + 1:
                ready = self._next_job(running, waiting, ahead=len(tickets) < self._workers.count)
                if ready is None:
                    break
                candidate, number, job = ready
                if candidate not in running:
                    running.append(candidate)
                tickets[self._submit(job)] = candidate, number
            if not tickets:
                suspect = next((c for c in running if c.is_suspect), None)
                if suspect is None:
                    break
                self._look_alone(suspect)
                advance(suspect.finished)
                running = [c for c in running if not c.finished]
                continue
            ticket, answer = self._workers.next()
            candidate, number = tickets.pop(ticket)
            if not candidate.finished:
                self._take(candidate, number, answer)
                if candidate.finished:
                    advance(1)
            running = [c for c in running if not c.finished]
        for candidate in waiting:
            self.left_out.append((candidate.trial.recipe, NO_TIME))
        for _ in range(len(tickets)):  # ranges that were run ahead of a candidate that is finished
            self._workers.next()

    def _next_job(
        self, running: list[_Candidate], waiting: list[_Candidate], *, ahead: bool
    ) -> tuple[_Candidate, int, Job] | None:
        """Return what to do next: the range that is due, a new candidate, or a range ahead for an idle worker."""
        ready = [c for c in running if c.model is not None and not c.is_suspect]
        for candidate in ready:
            if candidate.asked == candidate.tested:
                return self._range_job(candidate)
        if waiting and not self.out_of_time and len(running) <= self._workers.count:
            candidate = waiting.pop(0)
            return candidate, -1, Build(candidate.trial.recipe, self._checkpoint(candidate.trial))
        for candidate in ready if ahead else ():
            if candidate.asked < len(self._ranges("search")):
                return self._range_job(candidate)
        return None

    def _checkpoint(self, trial: Trial) -> str:
        """Return where the state of a training is kept; nowhere for what does not train, or is done elsewhere."""
        trains = self._keeps_state and Recipe.parse(trial.recipe).trains
        return str((self._files / f"{trial.key}.checkpoint").resolve()) if trains else ""

    def _range_job(self, candidate: _Candidate) -> tuple[_Candidate, int, Job] | None:
        ranges = self._ranges("search")
        if candidate.asked >= len(ranges):
            return None
        number, candidate.asked = candidate.asked, candidate.asked + 1
        assert candidate.model is not None
        return candidate, number, Observe(candidate.model, "search", *ranges[number])

    def _take(self, candidate: _Candidate, number: int, answer: Any) -> None:
        """Take the answer to a job of a candidate: its file, what was seen of a range, or a failure."""
        if isinstance(answer, Built):
            self._take_file(candidate, answer)
        elif number < 0:
            self._finish(candidate, _failed(candidate.trial, answer))
        else:
            candidate.seen[number] = answer
            self._test(candidate)

    def _take_file(self, candidate: _Candidate, built: Built) -> None:
        digest = content_hash(built.model)
        trial = replace(candidate.trial, file=digest, size_bytes=len(built.model), build_s=built.seconds)
        candidate.trial, candidate.model, candidate.coverage = trial, built.model, built.coverage
        self.work_s += built.seconds
        twin = next((t for t in self.trials.values() if t.file == digest and t.status != FAILED), None)
        if twin is not None:  # another recipe made the same file
            same = {
                name: getattr(twin, name) for name in ("status", "reason", "score", "timing", "stopped_by", "about_ms")
            }
            self._finish(candidate, replace(trial, **same))
            return
        candidate.is_suspect = built.slowness > SUSPECT * self._hopeless(self._float_ms)

    def _hopeless(self, float_ms: float) -> float:
        """Return how many times as slow as the float model a candidate is when it is hopeless.

        Never, where one thread of this machine says nothing about what counts: another machine, or accelerators.
        """
        if self._is_measured_elsewhere or self.measuring.accelerators:
            return float("inf")
        if self.budget.max_latency_ms is not None:
            most = max(HOPELESS, *self.measuring.threads)  # several threads gain at most their number
            return most * self.budget.max_latency_ms / float_ms
        return HOPELESS if self.budget.minimize == "latency" else float("inf")

    def _look_alone(self, candidate: _Candidate) -> None:
        """Stop a candidate that is too slow; with nothing else running, so that the number of workers does not matter."""
        assert candidate.model is not None
        candidate.is_suspect = False
        looked = self._alone_ms(self.question.model, candidate.model)
        if isinstance(looked, Failure):
            self._finish(candidate, _failed(candidate.trial, looked, UNMEASURABLE))
            return
        float_ms, own_ms = looked
        limit_ms = self._hopeless(float_ms) * float_ms
        if own_ms > limit_ms:
            reason = f"too slow to score: about {own_ms:.3g} ms, and {limit_ms:.3g} ms are hopeless already"
            slow = replace(candidate.trial, status=STOPPED, reason=reason, stopped_by=self._stops, about_ms=own_ms)
            self._finish(candidate, slow)

    def _alone_ms(self, *models: bytes) -> list[float] | Failure:
        """Return latencies from a short look where latency is measured, with nothing else under way."""
        answer = self._one(Measure(models, (1,), LOOK_S), self._meter)
        if isinstance(answer, Failure):
            return answer
        self.work_s += answer.seconds
        return [median for median, _, _ in answer.summaries]

    def _test(self, candidate: _Candidate) -> None:
        """Look at the ranges that are complete from the first on: stop the candidate, go on, or be done with it."""
        question, ranges = self.question, self._ranges("search")
        while candidate.tested in candidate.seen:
            answer = candidate.seen[candidate.tested]
            if isinstance(answer, Failure):
                self._finish(candidate, _failed(candidate.trial, answer))
                return
            candidate.whole.append(answer)
            candidate.tested += 1
            seen = joined([part.seen for part in candidate.whole])
            seconds = sum(part.seconds for part in candidate.whole)
            count = ranges[candidate.tested - 1][1]
            before = {name: array[:count] for name, array in self._observed_float("search").items()}
            is_last = candidate.tested == len(ranges)
            losses = question.losses(before, seen)
            stopped = None
            if losses is not None and not is_last:
                stopped = refuted_after(losses, self.drop_bound)
            elif losses is None and not is_last:
                stopped = count if self._far_below(before, seen) else None
            if not is_last and stopped is None:
                continue
            self.work_s += seconds
            score = question.score(seen, before)
            trial = replace(candidate.trial, score=score, score_s=seconds)
            if stopped is not None:
                reason = (
                    f"loses more than {self.drop_bound:.4g} for sure after {stopped} of {len(question.search)} samples"
                )
                trial = replace(trial, status=STOPPED, reason=reason, stopped_by=self._stops)
            self._finish(candidate, trial)
            return

    def _far_below(self, before: dict[str, Array], seen: dict[str, Array]) -> bool:
        """Say whether a score without right and wrong is below the bound for sure, allowing for all the looks."""
        drop = self.question.score(seen, before).drop
        assert drop is not None
        spread = (drop.drop_high - drop.drop_low) / 3.92  # of a 95 % interval, to a standard deviation
        return drop.drop - 3.0 * spread > self.drop_bound  # one-sided 0.13 %, over at most 7 looks below 1 %

    def _finish(self, candidate: _Candidate, trial: Trial) -> None:
        candidate.finished = True
        if self._keep(trial, candidate.model).status == DONE and candidate.coverage is not None:
            self._save(self._coverage_path(trial), candidate.coverage.to_json().encode("utf-8", "replace"))
        over = self._checkpoint(trial) and not trial.transient
        for state in self._files.glob(f"{trial.key}.checkpoint*") if over else ():
            state.unlink(missing_ok=True)

    # ------------------------------------------------------------------ finalists

    def measure(self, trials: Sequence[Trial]) -> list[Trial]:
        """Measure latencies, alone and interleaved with the float model; returns the trials with them.

        Files of different groups are compared by what they take beside the float model.
        """
        threads, together = self.measuring.threads, self.measuring.together
        result = {t.number: t for t in trials}
        lacking = [t for t in trials if t.file and any(n not in _measured(t) for n in threads)]
        with task("Measuring latency", total=len(lacking)) as advance:
            for start in range(0, len(lacking), together):
                group = lacking[start : start + together]
                for trial, timings in zip(group, self._timings(group), strict=True):
                    result[trial.number] = self._with_timings(trial, timings)
                    advance(1)
        return [result[t.number] for t in trials]

    def run_off(self, rivals: Sequence[Trial]) -> None:
        """Measure the trials that may win once more, all in the same rounds.

        Neighbours of a virtual machine slow some kernels more than others. So the rounds are repeated while the float model
        takes longer than at its best, and those in which it was fastest count.
        """
        if len(rivals) < 2 or not any(_is_open(t, rivals[0]) for t in rivals):
            return
        found: list[tuple[Timing, ...]] = []
        with task("Measuring the best once more", total=RUN_OFFS) as advance:
            for _ in range(RUN_OFFS):
                rows = self._timings(rivals)
                if not all(rows):
                    return  # one cannot be measured any more, which is written down
                if not found or rows[0][0].float_ms < found[0][0].float_ms:
                    found = rows
                advance(1)
                is_late = self._deadline is not None and time.monotonic() > self._deadline
                if is_late or self._speed.is_quiet(found[0][0]):
                    break
        for trial, timings in zip(rivals, found, strict=True):
            self._with_timings(trial, [replace(timing, ran_off=True) for timing in timings])

    def _with_timings(self, trial: Trial, timings: Sequence[Timing]) -> Trial:
        """Return a trial with its latencies, told at the speed at which the float model ran first."""
        if not timings:
            return trial
        told = [self._speed.told(timing) for timing in timings]
        first = next((t for t in told if t.threads == 1), trial.timing)
        others = tuple(t for t in told if t.threads != 1) or trial.threads
        return self._keep(replace(trial, timing=first, threads=others))

    def _timings(self, group: Sequence[Trial]) -> list[tuple[Timing, ...]]:
        """Measure files in interleaved rounds with the float model; nothing for one that cannot be measured."""
        threads = self.measuring.threads
        models = (self.question.model, *(self.content(t) for t in group))
        answer = self._one(Measure(models, threads, self.measuring.seconds), self._meter)
        if isinstance(answer, Failure):
            if len(group) == 1:
                self._keep(_failed(group[0], answer, UNMEASURABLE))
                return [()]
            return [self._timings([trial])[0] for trial in group]
        self.work_s += answer.seconds
        found = answer.summaries
        base, *rows = [found[start : start + len(threads)] for start in range(0, len(found), len(threads))]
        timings = [
            tuple(
                Timing(n, median, low, high, float_ms)
                for n, (median, low, high), (float_ms, _, _) in zip(threads, row, base, strict=True)
            )
            for row in rows
        ]
        self._speed.saw(timings[0])
        return timings

    def verify(self, trials: Sequence[Trial]) -> list[Trial]:
        """Score trials on the samples that the search never saw."""
        lacking = [t for t in trials if t.held_out is None and t.file]
        before = self._observed_float("held_out")
        found = self._observe_all([self.content(t) for t in lacking], "held_out")
        result = {t.number: t for t in trials}
        for trial, seen in zip(lacking, found, strict=True):
            if isinstance(seen, Failure):
                result[trial.number] = self._keep(_failed(trial, seen))
            else:
                is_float = trial.file == content_hash(self.question.model)
                score = self.question.score(seen, None if is_float else before)
                verified = replace(trial, held_out=score, held_out_hash=self._held_out_hash)
                result[trial.number] = self._keep(verified)
        return [result[t.number] for t in trials]

    def weights(self, trial: Trial) -> tuple[Weight, ...]:
        """Return the operators of the float model that lose most once they are quantized as in this trial."""
        found = self._one(Weigh(self.content(trial), trial.start))
        if isinstance(found, Failure):
            self.left_out.append(
                ("mixed precision", f"the weak layers of {trial.recipe} cannot be found: {found.reason}")
            )
            return ()
        return tuple(found)

    def layers(self, trial: Trial) -> tuple[TunedLayer, ...]:
        """Return size, time and error of each operator of a trial's file."""
        content = self.content(trial) if trial.number else self.question.model  # which is known without its file
        found = self._one(Explain(content, trial.recipe), self._meter)
        if isinstance(found, Failure):
            self.left_out.append((f"the layers of {trial.name}", found.reason))
            return ()
        if found.not_compared:
            self.left_out.append((f"the error of each layer of {trial.name}", found.not_compared))
        layers: tuple[TunedLayer, ...] = found.layers
        return layers

    def coverage(self, trial: Trial) -> Coverage | None:
        """Return what the quantizing step of a trial left float; None where it has no such step."""
        path = self._coverage_path(trial)
        if path.exists():
            return Coverage.from_json(path)
        if Recipe.parse(trial.recipe).before_quantizing is not None:
            self.left_out.append((f"the coverage of {trial.name}", f"{path} was not written, or is gone"))
        return None

    def _coverage_path(self, trial: Trial) -> Path:
        return self._files / f"{trial.key}.coverage.json"

    def on_accelerators(self, trials: Sequence[Trial]) -> tuple[OnAccelerator, ...]:
        """Return the latency of trials' files on every accelerator of the machine that measures; trials keep the best."""
        found: list[OnAccelerator] = []
        with task("Trying accelerators", total=len(trials)) as advance:
            for trial in trials:
                job = Accelerate(self.content(trial), self.measuring.seconds, trial.number)
                answer = self._one(job, self._meter)
                if isinstance(answer, Failure):
                    self.left_out.append((f"{trial.name} on accelerators", answer.reason))
                else:
                    found += answer
                    self._keep(replace(trial, accelerated=_on_best(trial, answer)))
                advance(1)
        return tuple(found)

    def knows(self, recipe: str) -> bool:
        """Say whether the journal has the outcome of a recipe."""
        known = self._known.get(self._trial_key(self._whole(recipe)))
        return known is not None and self._still_holds(known)

    def rehearse(self) -> Rehearsal | Failure:
        """Find out how long training takes."""
        found: Rehearsal | Failure = self._one(Rehearse())
        return found

    def others(self) -> list[Trial]:
        """Return the trials of the journal that this search has no use for: other models, data or bounds may."""
        used = {t.key for t in self.trials.values()}
        return [t for key, t in self._known.items() if key not in used]

    def content(self, trial: Trial) -> bytes:
        """Return the bytes of a trial's file."""
        return (self._files / f"{trial.file}.tflite").read_bytes()

    # ------------------------------------------------------------------ jobs and journal

    def _observe_all(self, models: Sequence[bytes], split: str) -> list[dict[str, Array] | Failure]:
        """Run all samples of a split through each model, the ranges spread over the workers."""
        tickets: dict[int, tuple[int, int]] = {}
        parts: list[dict[int, Observation]] = [{} for _ in models]
        failures: dict[int, Failure] = {}
        ranges = self._ranges(split)
        for row, model in enumerate(models):
            for number, (start, stop) in enumerate(ranges):
                tickets[self._submit(Observe(model, split, start, stop))] = row, number
        with task(f"Scoring on {split.replace('_', '-')}", total=len(tickets)) as advance:
            for _ in range(len(tickets)):
                ticket, answer = self._workers.next()
                row, number = tickets[ticket]
                if isinstance(answer, Failure):
                    failures[row] = answer
                else:
                    parts[row][number] = answer
                    self.work_s += answer.seconds
                advance(1)
        return [
            failures[row] if row in failures else joined([part[n].seen for n in range(len(ranges))])
            for row, part in enumerate(parts)
        ]

    def _ranges(self, split: str) -> list[tuple[int, int]]:
        count = len(self.question.split(split))
        step = max(FEWEST_SAMPLES, -(-count // RANGES))
        return [(start, min(start + step, count)) for start in range(0, count, step)]

    def _submit(self, job: Job, workers: Workers | None = None) -> int:
        self._tickets += 1
        (workers or self._workers).submit(self._tickets, job)
        return self._tickets

    def _one(self, job: Job, workers: Workers | None = None) -> Any:
        """Do one job with nothing else under way."""
        started = time.perf_counter()
        ticket = self._submit(job, workers)
        found, answer = (workers or self._workers).next()
        assert found == ticket
        if isinstance(job, (Build, FindRewrites, Weigh, Explain, Accelerate, Rehearse)):
            self.work_s += time.perf_counter() - started
        return answer

    def _trial_key(self, recipe: str) -> str:
        trained = f"\n{self._training_key}" if Recipe.parse(recipe).trains else ""
        return content_hash(f"{self._key}\n{recipe}{trained}".encode())

    @functools.cached_property
    def _training_key(self) -> str:
        samples = self.question.train
        return "" if samples is None else f"{samples.fingerprint()} {training_stamp()}"

    @functools.cached_property
    def _held_out_hash(self) -> str:
        return self.question.held_out.fingerprint()

    def _weighed(self, trial: Trial) -> Trial:
        """Return a trial with the size of its download where that is what counts, and else without."""
        if self.budget.minimize != "download":
            return replace(trial, download_bytes=0)
        if trial.download_bytes or trial.status != DONE or not trial.file:
            return trial
        return replace(trial, download_bytes=gzip_bytes(self.content(trial)))

    def _keep(self, trial: Trial, model: bytes | None = None) -> Trial:
        """Write a trial down, its file first; where the disk is full the trial has failed, and that is written."""
        if model is not None and trial.status != FAILED:  # weak layers are looked for in one that was stopped, too
            trial = replace(trial, file=content_hash(model), size_bytes=len(model))
            path = self._files / f"{trial.file}.tflite"
            try:
                if not path.exists():
                    write_whole(path, model)
            except OSError as error:
                if error.errno not in NO_SPACE:
                    raise
                reason = f"no space for its file of {len(model):,} bytes in {self._files}"
                trial = replace(trial, status=FAILED, reason=reason, file="", transient=True)
        trial = self._weighed(trial)
        self.trials[trial.number] = trial
        self._known[trial.key] = trial
        self._journal.append(json.loads(trial.to_json()))
        return trial


def _failed(trial: Trial, failure: Failure, what: str = "") -> Trial:
    """Return a trial as one that failed."""
    return replace(trial, status=FAILED, reason=f"{what}{failure.reason}", transient=failure.transient)


def _is_open(rival: Trial, first: Trial) -> bool:
    """Say whether a trial may be the fastest, and was not measured beside the others that may."""
    own, least = rival.best_timing, first.best_timing
    return own is not None and least is not None and own.low_ms <= least.high_ms and not own.ran_off


def _on_best(trial: Trial, found: Sequence[OnAccelerator]) -> Timing | None:
    """Return the latency on the accelerator that is best for a file; None where that is what it runs on anyway."""
    best = next((on for on in found if on.best and on.name not in USUAL), None)
    if best is None or best.latency_ms is None or trial.timing is None:
        return None
    on_cpu = [on.latency_ms for on in found if on.name in USUAL and on.ran and on.latency_ms is not None]
    then_ms = trial.timing.float_ms * min(on_cpu) / trial.timing.median_ms if on_cpu else trial.timing.float_ms
    there = Timing(1, best.latency_ms, best.low_ms, best.high_ms, then_ms, best.name)
    return at_speed(there, trial.timing.float_ms)


def _measured(trial: Trial) -> set[int]:
    """Return the numbers of threads with which a latency is known; one that is unsure is measured again."""
    return {t.threads for t in (trial.timing, *trial.threads) if t is not None and t.is_sure}
