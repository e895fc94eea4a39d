# SPDX-License-Identifier: Apache-2.0
"""The search: float model, candidates from cheap to dear, latency alone, the front verified, the winner with its proof."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from litesmith.data import Dataset, Preprocess
from litesmith.devices import Device
from litesmith.errors import OptimizeError, UsageError
from litesmith.measure import MachineFacts, machine_facts
from litesmith.model import Model
from litesmith.optimize import Coverage, Recipe
from litesmith.optimize._quantize import refuse_quantized
from litesmith.result import Result
from litesmith.runtime._accelerators import known_accelerators
from litesmith.tune import _candidates as candidates
from litesmith.tune._advise import Advice, advise
from litesmith.tune._budget import Budget, parse_bytes, parse_milliseconds, parse_seconds, parse_share
from litesmith.tune._cluster import ClusterWorkers
from litesmith.tune._decide import Verdict, contenders, decide, finalists, rivals
from litesmith.tune._jobs import Failure, OnAccelerator, TunedLayer
from litesmith.tune._journal import NO_SPACE, Journal, only_one, write_whole
from litesmith.tune._lock import Lock, Origin, function_file, make_lock
from litesmith.tune._measuring import ACCELERATED, Measuring, thread_counts
from litesmith.tune._meter import DeviceMeter, measuring_device, measuring_machine, measuring_worker
from litesmith.tune._narrow import search_narrower
from litesmith.tune._plan import MakePlan, Plan
from litesmith.tune._question import Question, content_hash
from litesmith.tune._search import Search
from litesmith.tune._sparsity import search_sparsity
from litesmith.tune._stamp import stamp
from litesmith.tune._training import search_training
from litesmith.tune._training_data import open_training
from litesmith.tune._trial import DONE, NO_TIME, Trial, pareto
from litesmith.tune._widen import search_wider
from litesmith.tune._workers import LocalWorkers, Workers

SPLIT = {"calibrate": 0.2, "search": 0.4, "held_out": 0.4}
CALIBRATION_SAMPLES = 200
EFFORTS = ("quick", "full")
RESULTS = ("winner.tflite", "recipe.toml", "litesmith.lock", "tune.json")
"""What a search leaves in its folder, besides the journal and the files of trials."""


@dataclass(frozen=True)
class Tuned(Result, kind="tune", schema=1):
    """What ``tune`` tried and found.

    Attributes:
        model: the float file.
        description: of the model.
        folder: where the files are.
        data: what it was scored on.
        metric: the name of the metric.
        is_fraction: whether scores are shares, shown in percent.
        higher_is_better: whether more of it is better.
        budget: the bounds.
        drop_bound: what the score may fall by, in its own unit.
        trials: all that was tried; the first is the float model.
        front: numbers of the trials that no other beats.
        verdict: the winner and the reasons, or what stands in the way.
        left_out: what was not tried, and why.
        notes: what a reader should know.
        seconds: of the whole search.
        work_s: of it, building, running samples and measuring, added up over all workers.
        workers: how many there were.
        machine: the facts of the machine that measured latency.
        device: its address, where it was a device.
        layers: of the winner: size, time and error of each operator.
        float_layers: of the float model: size and time of each operator.
        coverage: what quantization left float in the winner, and why; None where it is not quantized.
        advice: what the decision tree said before anything was measured.
        accelerators: latencies of the best files on every accelerator, where that was asked for.
    """

    model: str
    description: str
    folder: str
    data: str
    metric: str
    is_fraction: bool
    higher_is_better: bool
    budget: Budget
    drop_bound: float
    trials: tuple[Trial, ...]
    front: tuple[int, ...]
    verdict: Verdict
    left_out: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    seconds: float
    work_s: float
    workers: int
    machine: MachineFacts
    layers: tuple[TunedLayer, ...] = ()
    advice: Advice | None = None
    accelerators: tuple[OnAccelerator, ...] = ()
    device: str = ""
    float_layers: tuple[TunedLayer, ...] = ()
    coverage: Coverage | None = None

    @property
    def winner(self) -> Trial | None:
        """The trial to ship; None where none is within the bounds."""
        number = self.verdict.winner
        return None if number is None else next(t for t in self.trials if t.number == number)

    @property
    def baseline(self) -> Trial:
        """The float model."""
        return self.trials[0]


def tune(
    model: str | Path,
    data: Dataset | str | Path,
    *,
    output: str | Path = "litesmith-tune",
    preprocess: Preprocess | str | Mapping[str, Any] | None = None,
    calibrate: Dataset | str | Path | None = None,
    metric: str | None = None,
    max_drop: str | float = "1%",
    max_latency: str | float | None = None,
    max_size: str | float | None = None,
    minimize: str = "latency",
    time_limit: str | float | None = None,
    limit: int | None = None,
    model_output: str | None = None,
    label_offset: int = 0,
    recipes: Sequence[str] = (),
    only: Sequence[str] = (),
    effort: str = "full",
    accelerators: bool = False,
    seconds: float = 1.0,
    workers: int | None = None,
    cluster: str | None = None,
    device: str | Device | None = None,
    devices_file: str | Path | None = None,
    seed: int = 0,
    train: Dataset | str | Path | None = None,
    train_epochs: int | None = None,
    on_plan: Callable[[Plan], None] | None = None,
) -> Tuned:
    """Find the file to ship within a budget, by measurement, and leave it in a folder with the proof.

    The folder holds ``winner.tflite``, the files of the Pareto front, ``recipe.toml``, ``litesmith.lock``,
    ``trials.jsonl`` and ``tune.json``. A search that was killed goes on where it was when it is started again.

    Args:
        model: the float `.tflite`.
        data: samples; those with labels are scored by them, others by agreement with the float model.
        output: the folder.
        preprocess: what to do with each sample, as in ``Dataset.open``.
        calibrate: samples for calibration; by default a fifth of ``data``, which then are not scored on.
        metric: as in ``evaluate``; top1 where there are labels, else agreement with the float model.
        max_drop: what may be lost: "1%" is one point of a score in percent, and 1 % of any other score.
        max_latency: of one inference, such as "5ms".
        max_size: of the file, such as "4MB".
        minimize: "latency", "size", "download" (the file through gzip) or "drop": what decides among those within the
            bounds.
        time_limit: of the search, such as "15m". Trying ends early enough to measure what was tried, by an estimate; the
            float model, what is under way then, and measuring are finished whatever the limit.
        limit: how many samples at most to score candidates on.
        model_output: the output that is scored, where the model has several.
        label_offset: added to class numbers.
        recipes: more candidates, such as "int8 + float:SOFTMAX".
        only: nothing but these candidates.
        effort: "full" also searches how many channels and weights can go, which takes longest; "quick" does not.
        accelerators: also measure the best files on every accelerator of the machine that measures, six at most: their
            latency is then that of the fastest whose outputs are right.
        seconds: time to measure the latency of each file for, with each number of threads.
        workers: processes; by default one for each core. The trials do not depend on it.
        cluster: the address of a Dask scheduler, instead of processes of this machine.
        device: where latency is measured, of every candidate, instead of here: `ssh://user@host`, a name of the devices
            file, or a Device. Files are made and scored here.
        devices_file: where devices are listed; the user's own file by default.
        seed: of the splits and of everything that is drawn.
        train: samples to train on, with or without labels, which allows candidates that are trained; those that are also
            scored on are left out. Needs the extra `train`.
        train_epochs: how often each training sees all samples; by default 5, and 16 with zeros or fewer channels.
        on_plan: called with the plan before anything is tried.

    Raises:
        MissingExtraError: there are samples to train on, and PyTorch is not installed.
    """
    started = time.perf_counter()
    if effort not in EFFORTS:
        raise UsageError(f"the effort cannot be {effort!r}; choose one of {', '.join(EFFORTS)}")
    if not seconds > 0:
        raise UsageError(f"seconds must be positive, not {seconds}")
    _check_epochs(train_epochs, train)
    budget = make_budget(max_drop, max_latency, max_size, minimize, time_limit)
    question, origin = ask(
        model,
        data,
        preprocess,
        calibrate,
        metric,
        limit=limit,
        model_output=model_output,
        label_offset=label_offset,
        seed=seed,
        train=train,
    )
    metric_made = question.scorer()
    budget = replace(budget, drop_is_relative=not metric_made.is_fraction)
    usable, unknown = candidates.known([*only, *recipes], trains=question.train is not None)
    if unknown:
        raise UsageError(f"the recipe {unknown[0][0]!r} cannot be tried: {unknown[0][1]}")
    question = replace(question, device=measuring_device(device, devices_file))
    here = machine_facts()
    machine = here if question.device is None else measuring_machine(question, model)
    folder = Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        stack.enter_context(only_one(folder))
        journal = Journal(folder / "trials.jsonl")
        stack.callback(journal.close)
        team, meter = make_workers(question, workers, cluster, stack)
        if isinstance(meter, ClusterWorkers):
            machine = measuring_worker(question, meter)
        elsewhere = _place_of_latency(question, machine, here)
        measuring = _measuring(machine.cores, seconds, accelerators, budget)
        search = Search(
            question,
            team,
            meter,
            journal,
            folder,
            budget,
            key=content_hash(f"{question.digest()}\n{stamp()}{elsewhere}".encode()),
            deadline=None if budget.time_s is None else time.monotonic() + budget.time_s,
            keeps_state=cluster is None,
            is_measured_elsewhere=bool(elsewhere),
            measuring=measuring,
        )
        unplanned = ""
        if on_plan is not None:
            planning = _planning(question, recipes, only, team.count, effort, budget, train_epochs, measuring)
            unplanned = _tell_plan(planning, team, on_plan)
        notes = _notes_on(question.model)
        notes += _run_stages(search, usable, everything=not only, sparsity=effort == "full", train_epochs=train_epochs)
        notes += [f"there is no plan: {unplanned}"] if unplanned else []
        if isinstance(meter, ClusterWorkers):
            notes.append(f"latency was measured on a worker of the cluster: {machine.cpu}, {machine.cores} cores")
        accelerated = _measure_and_verify(search)
        trials = tuple(search.trials[n] for n in sorted(search.trials))
        front = pareto(trials)
        verdict = decide(trials, budget, search.drop_bound)
        unsure = sum(t.timing is not None and not t.timing.is_sure for t in trials)
        if unsure:
            notes.append(
                f"the latency of {unsure} of {len(trials)} files is not known to ±5 %, as the machine was busy: start the "
                "search again when it is quiet, which measures only them"
            )
        float_layers = search.layers(search.trials[0])
        winner = None if verdict.winner is None else search.trials[verdict.winner]
        if not journal.flush():
            notes.append(
                f"the disk of {folder} is full: the journal lacks some lines, and a restart repeats their trials"
            )
        result = Tuned(
            model=str(model),
            description=Model.load(model).description,
            folder=str(folder),
            data=question.search.summary,
            metric=metric_made.name,
            is_fraction=metric_made.is_fraction,
            higher_is_better=metric_made.higher_is_better,
            budget=budget,
            drop_bound=search.drop_bound,
            trials=trials,
            front=tuple(t.number for t in front),
            verdict=verdict,
            left_out=(),
            notes=tuple(notes),
            seconds=time.perf_counter() - started,
            work_s=search.work_s,
            workers=team.count,
            machine=machine,
            device="" if question.device is None else question.device.url,
            layers=() if winner is None else search.layers(winner) if winner.number else float_layers,
            float_layers=float_layers,
            coverage=None if winner is None else search.coverage(winner),
            advice=_advice(model, question, budget),
            accelerators=accelerated,
        )
        result = replace(result, left_out=tuple(search.left_out))
        try:
            _write(result, search, question, origin, folder, here)
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            where = "" if result.winner is None else f"; the winner is {folder / 'files' / result.winner.file}.tflite"
            result = replace(
                result, notes=(*notes, f"the disk of {folder} is full, so not all files were written{where}")
            )
    return result


def plan(model: str | Path, data: Dataset | str | Path, **options: Any) -> Plan:
    """Say what ``tune`` would try, how long it would take, and what memory and disk it needs; same arguments."""
    others = ("output", "time_limit", "workers", "cluster", "seconds", "accelerators", "device", "devices_file")
    wanted = {k: options.pop(k, None) for k in others}
    measuring_device(wanted["device"], wanted["devices_file"])
    bounds = {k: options.pop(k) for k in ("max_drop", "max_latency", "max_size", "minimize") if k in options}
    budget = make_budget(
        **{"max_drop": "1%", "max_latency": None, "max_size": None, "minimize": "latency", **bounds},
        time_limit=wanted["time_limit"],
    )
    measuring = _measuring(machine_facts().cores, wanted["seconds"] or 1.0, wanted["accelerators"], budget)
    recipes, only, effort = options.pop("recipes", ()), options.pop("only", ()), options.pop("effort", "full")
    train_epochs = options.pop("train_epochs", None)
    _check_epochs(train_epochs, options.get("train"))
    positional = [options.pop(k, None) for k in ("preprocess", "calibrate", "metric")]
    question, _ = ask(model, data, *positional, **options)
    workers = wanted["workers"] or len(os.sched_getaffinity(0))
    return _planning(question, recipes, only, workers, effort, budget, train_epochs, measuring).answer(question)


def _planning(
    question: Question,
    recipes: Sequence[str],
    only: Sequence[str],
    workers: int,
    effort: str,
    budget: Budget,
    train_epochs: int | None,
    measuring: Measuring,
) -> MakePlan:
    """Return the job that plans a search."""
    own, untried = candidates.own_schemes(question.model) if not only else (list(only), [])
    usable, left_out = candidates.known([*own, *recipes], trains=question.train is not None)
    return MakePlan(
        recipes=tuple(usable),
        left_out=(*untried, *left_out),
        workers=workers,
        everything=not only,
        sparsity=effort == "full",
        budget=budget,
        train_epochs=train_epochs,
        measuring=measuring,
    )


def _tell_plan(planning: MakePlan, team: Workers, on_plan: Callable[[Plan], None]) -> str:
    """Plan in a process of its own, as the float model may crash it; returns why there is no plan, or nothing."""
    team.submit(0, planning)
    _, planned = team.next()
    if isinstance(planned, Failure):
        return planned.reason
    on_plan(planned)
    return ""


def _measuring(cores: int, seconds: float, accelerators: bool | None, budget: Budget) -> Measuring:
    known = len(known_accelerators()) if accelerators else 0
    return Measuring(thread_counts(cores), seconds, known, runs_off=budget.minimize == "latency")


def _check_epochs(epochs: int | None, train: Dataset | str | Path | None) -> None:
    if epochs is not None and epochs < 1:
        raise UsageError(f"train_epochs must be 1 or more, not {epochs}")
    if epochs is not None and train is None:
        raise UsageError(f"train_epochs is {epochs}, but nothing is trained; give samples to train on as well: train=…")


def _notes_on(content: bytes) -> list[str]:
    """Return what a reader should know of a file before any candidate is read: that it is no float model, if so."""
    try:
        refuse_quantized(Model.from_bytes(content))
    except OptimizeError as error:
        return [f"the row 'float' is the file as it was given, and most candidates need a float one: {error}"]
    return []


def _advice(model: str | Path, question: Question, budget: Budget) -> Advice:
    data = "unlabelled" if question.search.labels is None else "labelled"
    return advise(
        model,
        data=data,
        max_drop=budget.max_drop,
        purpose=budget.minimize if budget.minimize in ("size", "download") else "latency",
    )


def make_budget(
    max_drop: str | float,
    max_latency: str | float | None,
    max_size: str | float | None,
    minimize: str,
    time_limit: str | float | None,
) -> Budget:
    """Return the bounds from what the user wrote."""
    return Budget(
        max_drop=parse_share(max_drop),
        max_latency_ms=None if max_latency is None else parse_milliseconds(max_latency),
        max_size_bytes=None if max_size is None else parse_bytes(max_size),
        minimize=minimize,
        time_s=None if time_limit is None else parse_seconds(time_limit),
    )


def ask(
    model: str | Path,
    data: Dataset | str | Path,
    preprocess: Any = None,
    calibrate: Dataset | str | Path | None = None,
    metric: str | None = None,
    *,
    limit: int | None = None,
    model_output: str | None = None,
    label_offset: int = 0,
    seed: int = 0,
    train: Dataset | str | Path | None = None,
) -> tuple[Question, Origin]:
    """Return the question of a search, and where its parts come from."""
    read = Model.load(model)
    read.verify()
    opened = Dataset.open(data, preprocess=preprocess)
    if calibrate is None:
        parts = opened.split(seed=seed, **SPLIT)
        samples = parts["calibrate"]
    else:
        parts = opened.split(seed=seed, search=0.5, held_out=0.5)
        samples = Dataset.open(calibrate, preprocess=preprocess)
    samples = samples.take(CALIBRATION_SAMPLES, seed=seed) if len(samples) > CALIBRATION_SAMPLES else samples
    scored = {name: parts[name] for name in ("search", "held_out")}
    training, untrained = (
        (None, 0)  # whatever the limit, what could be scored on is not trained on: another limit has the same trials
        if train is None
        else open_training(train, read, opened, tuple(scored.values()), label_offset=label_offset)
    )
    if limit is not None:
        scored = {name: part.take(limit, seed=seed) if len(part) > limit else part for name, part in scored.items()}
    question = Question(
        model=Path(model).read_bytes(),
        calibrate=samples,
        search=scored["search"].shuffled(seed),
        held_out=scored["held_out"],
        metric=metric or ("top1" if opened.labels is not None else "agreement"),
        output=model_output,
        label_offset=label_offset,
        seed=seed,
        train=training,
        untrained=untrained,
    )
    origin = Origin(
        model=str(Path(model).resolve()),
        data=_place(data),
        calibrate=_place(calibrate),
        preprocess=str(opened.preprocess),
        limit=limit,
        train=_place(train),
        own_calibration=calibrate is not None,
    )
    return question, origin


def _place(source: Dataset | str | Path | None) -> str | None:
    """Return where samples can be found again; None for a Dataset, which only its program can make again."""
    if source is None or isinstance(source, Dataset):
        return None
    text = str(source)
    return str(Path(text).resolve()) if Path(function_file(text) or text).exists() else text


def make_workers(
    question: Question, count: int | None, cluster: str | None, stack: ExitStack
) -> tuple[Workers, Workers]:
    """Return those who do the jobs, and the one who measures latency."""
    if count is not None and count < 1:
        raise UsageError(f"workers must be 1 or more, not {count}")
    meter: Workers
    if cluster is None:
        local = LocalWorkers(question, count or len(os.sched_getaffinity(0)))
        stack.callback(local.close)
        return local, local if question.device is None else DeviceMeter(question)
    remote = ClusterWorkers(question, cluster)
    stack.callback(remote.close)
    if question.device is not None:
        return remote, DeviceMeter(question)
    if remote.owns_device:
        return remote, remote
    meter = LocalWorkers(question, 1)
    stack.callback(meter.close)
    return remote, meter


def _run_stages(
    search: Search, asked: Sequence[str], *, everything: bool, sparsity: bool, train_epochs: int | None
) -> list[str]:
    """Try what was asked for, and everything that the scores so far call for; returns notes."""
    search.baseline()
    if asked:
        search.run("asked for", asked)
    if everything:
        search.begin_with_rewrites()
    notes = _run_own_stages(search) if everything else []
    if everything:
        search_wider(search)
    if everything and sparsity:
        search_narrower(search)
        search_sparsity(search)
    if everything and search.question.train is not None:
        search_training(search, train_epochs)
    if search.question.untrained:
        notes.append(f"{search.question.untrained} samples to train on are also scored on, and were left out")
    if search.reused:
        notes.append(f"{search.reused} trials were finished in an earlier run and not repeated")
    if any(reason == NO_TIME for _, reason in search.left_out):
        notes.append("the time was up before everything was tried: what was left of it is for measuring")
    return notes


def _run_own_stages(search: Search) -> list[str]:
    notes: list[str] = []
    schemes, left_out = candidates.own_schemes(search.question.model)
    search.left_out += left_out
    trials = [t for t in search.alike if t.stage == "asked for"]
    asked = {t.body for t in trials}
    trials += search.run("schemes", [s for s in schemes if s not in asked])
    best = candidates.best_int8(trials)
    if candidates.needs_help(best, search.drop_bound):
        recovery, left_out = candidates.known(candidates.RECOVERY)
        search.left_out += left_out
        trials += search.run("recovery", recovery)
        best = candidates.best_int8(trials)
    else:
        notes.append("int8 loses less than half of what is allowed: other ways to calibrate it were not tried")
    if best is not None and candidates.needs_help(best, search.drop_bound) and best.file:
        _mixed(search, best)
    return notes


def _mixed(search: Search, base: Trial) -> None:
    """Promote weak layers to float: in batches, then halving the gap between too few and enough."""
    order = candidates.ranked(search.weights(base))
    if not order:
        return
    tried: dict[int, Trial] = {}

    def attempt(counts: Sequence[int]) -> None:
        fresh = [c for c in counts if c not in tried]
        recipes = [candidates.promoted(base.body, order, c) for c in fresh]
        found = {trial.body: trial for trial in search.run("mixed", recipes)}  # of some, where the time is up
        tried.update({c: found[recipe] for c, recipe in zip(fresh, recipes, strict=True) if recipe in found})

    attempt(candidates.first_counts(len(order)))
    for _ in range(candidates.HALVINGS):
        enough = [c for c, t in tried.items() if t.status == DONE and (t.drop or 0.0) <= search.drop_bound]
        high = min(enough, default=0)
        low = max([c for c in tried if c < high], default=0)
        middle = (low + high) // 2
        if high - low <= 1:
            return
        attempt([middle])
        if middle not in tried:
            return


def _measure_and_verify(search: Search) -> tuple[OnAccelerator, ...]:
    """Measure what is finished, and give finalists the held-out split; returns what the best did on accelerators.

    All are measured with the same numbers of threads: else one that was looked at closer would seem faster.
    """
    search.measure([t for t in search.trials.values() if t.status == DONE])
    _verify_finalists(search)
    search.run_off(rivals(tuple(search.trials.values()), search.budget, search.drop_bound, search.measuring.together))
    _verify_finalists(search)  # latencies have changed, and with them the front
    if not search.measuring.accelerators:
        return ()
    chosen = contenders(tuple(search.trials.values()), search.budget, search.drop_bound)
    for trial in chosen[ACCELERATED:]:
        search.left_out.append((f"{trial.name} on accelerators", f"only the {ACCELERATED} best files are tried there"))
    found = search.on_accelerators(chosen[:ACCELERATED])
    _verify_finalists(search)  # latencies have changed, and with them the front
    return found


def _verify_finalists(search: Search) -> None:
    """Score the front and all that may win on the held-out split; one that it refutes makes way for others."""
    while True:
        found = finalists(tuple(search.trials.values()), search.budget, search.drop_bound)
        wanted = [t for t in (search.trials[0], *found) if t.status == DONE and t.file]
        lacking = {t.number: t for t in wanted if t.held_out is None}
        if not lacking:
            return
        search.verify(list(lacking.values()))


def _place_of_latency(question: Question, machine: MachineFacts, here: MachineFacts) -> str:
    """Return what tells timings of one machine from those of another; nothing for one like this, which the stamp tells."""
    is_alike = (machine.identity, machine.versions) == (here.identity, here.versions)
    place = f"\n{machine.identity} {sorted(machine.versions.items())}"
    return "" if question.device is None and is_alike else place


def _write(result: Tuned, search: Search, question: Question, origin: Origin, folder: Path, here: MachineFacts) -> None:
    """Leave the winner, its recipe and the lock, what was found, and the files of the front.

    What an earlier search left goes first, so that a kill or a full disk leaves no winner or lock of another search; the
    copies of the front come last, as they need most space and can be missed most easily.
    """
    shelf = folder / "pareto"
    shelf.mkdir(exist_ok=True)
    for old in (*(folder / name for name in RESULTS), *shelf.glob("*.tflite")):
        old.unlink(missing_ok=True)
    winner = result.winner
    if winner is not None:
        write_whole(folder / "winner.tflite", search.content(winner))
        write_whole(folder / "recipe.toml", Recipe.parse(winner.recipe).to_toml().encode())
        lock: Lock = make_lock(question, origin, result, winner, here, folder)
        write_whole(folder / "litesmith.lock", (lock.to_json() + "\n").encode())
    write_whole(folder / "tune.json", (result.to_json() + "\n").encode("utf-8", "replace"))
    every = (*result.trials, *search.others())
    lines = "".join(json.dumps(json.loads(t.to_json()), ensure_ascii=False) + "\n" for t in every)
    write_whole(folder / "trials.jsonl", lines.encode("utf-8", "replace"))
    for trial in (t for t in result.trials if t.number in result.front and t.file):
        write_whole(shelf / f"{trial.number:02d}-{_slug(trial.name)}.tflite", search.content(trial))


def _slug(text: str) -> str:
    return "-".join("".join(c if c.isalnum() else " " for c in text).split())[:60]
