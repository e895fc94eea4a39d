# SPDX-License-Identifier: Apache-2.0
"""Which architecture: each that fits is built and measured on this machine, beside the accuracy that is published of it."""

from __future__ import annotations

import hashlib
import math
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from litesmith.errors import MeasureError, UsageError
from litesmith.measure import MachineFacts, MemoryUse, bench, machine_facts
from litesmith.measure._memory import memory_use
from litesmith.optimize import quantize
from litesmith.progress import task
from litesmith.result import Result
from litesmith.tune._budget import parse_bytes, parse_milliseconds
from litesmith.tune._jobs import Failure
from litesmith.tune._journal import NO_SPACE, write_whole
from litesmith.tune._stamp import stamp
from litesmith.tune._workers import LocalWorkers
from litesmith.zoo import Entry, catalogue

PRECISIONS = ("float", "int8")
TOGETHER = 6
SECONDS = 0.5
NEAREST = 3
"""How many variants are shown where none fits."""


@dataclass(frozen=True)
class Measured(Result, kind="zoo-measurement", schema=1):
    """What a variant takes on this machine; times in milliseconds."""

    latency_ms: float
    low_ms: float
    high_ms: float
    memory_bytes: int
    size_bytes: int


@dataclass(frozen=True)
class Variant:
    """A variant in one precision: what is published, and what was measured.

    Attributes:
        name: of the variant.
        architecture, width, resolution, classes: what builds it.
        precision: float or int8.
        accuracy: published, for this precision.
        measured: None where a bound on accuracy rules it out before it is built, or where it failed.
        reason: why it does not fit; empty where it does.
        front: whether no other variant is as accurate and faster or smaller.
        source: of the accuracy.
    """

    name: str
    architecture: str
    width: float
    resolution: int
    classes: int
    precision: str
    accuracy: float
    measured: Measured | None = None
    reason: str = ""
    front: bool = False
    source: str = ""


@dataclass(frozen=True)
class Choice(Result, kind="choose", schema=1):
    """What ``choose`` measured and picks.

    Attributes:
        task, dataset, metric: what the accuracies are of.
        higher_is_better: whether more of it is better.
        max_latency_ms, min_accuracy, max_size_bytes: the bounds; None is none.
        threads: of the measurements.
        variants: all, best accuracy first.
        pick: the position of the pick in ``variants``; None where nothing fits.
        reasons: why it; where nothing fits, which bounds are to blame, and the nearest variants.
        command: what to do next: it makes the file that was measured, with random weights.
        cached: how many measurements were known already.
        machine: the facts of the machine.
    """

    task: str
    dataset: str
    metric: str
    higher_is_better: bool
    max_latency_ms: float | None
    min_accuracy: float | None
    max_size_bytes: int | None
    threads: int
    variants: tuple[Variant, ...]
    pick: int | None
    reasons: tuple[str, ...]
    command: str
    cached: int
    machine: MachineFacts


@dataclass(frozen=True)
class Prepare:
    """Build a variant into a file and see what memory it takes: the part of the work that need not be alone."""

    entry: str
    precision: str
    path: str

    def answer(self, question: object) -> tuple[int, int]:
        """Return size and memory in bytes."""
        del question
        entry = next(e for e in catalogue() if e.variant == self.entry)
        model = entry.build()
        if self.precision == "int8":
            model = quantize(model, scheme="int8", check=False).model
        path = Path(self.path)
        model.save(path)
        used: MemoryUse = memory_use(path)
        return path.stat().st_size, used.model_bytes


def choose(
    *,
    task: str = "image-classification",
    max_latency: str | float | None = None,
    min_accuracy: float | None = None,
    max_size: str | float | None = None,
    precision: str = "both",
    dataset: str | None = None,
    threads: int = 1,
    workers: int | None = None,
    refresh: bool = False,
) -> Choice:
    """Build the variants of the zoo that may fit, measure them here, and pick one.

    Measurements are kept in the user's cache, by what builds the variant, the machine and the versions.

    Args:
        task: such as "image-classification"; ``zoo.catalogue()`` has them.
        max_latency: of one inference, such as "10ms".
        min_accuracy: published, in the metric of the task, such as 70.
        max_size: of the file, such as "8MB".
        precision: "float", "int8" or "both"; int8 where an accuracy of it is published.
        dataset: whose accuracies to compare; by default the one with the most variants.
        threads: of the measurement.
        workers: processes that build; one for each core by default.
        refresh: measure again what is in the cache.
    """
    if precision not in (*PRECISIONS, "both"):
        raise UsageError(f"the precision cannot be {precision!r}; choose float, int8 or both")
    latency_ms = None if max_latency is None else parse_milliseconds(max_latency)
    size_bytes = None if max_size is None else parse_bytes(max_size)
    for name, bound in (("max_latency", latency_ms), ("min_accuracy", min_accuracy), ("max_size", size_bytes)):
        if bound is not None and not 0 < bound < math.inf:
            raise UsageError(f"{name} must be a finite number above 0, not {bound}")
    for name, count in (("threads", threads), ("workers", workers)):
        if count is not None and count < 1:
            raise UsageError(f"{name} must be 1 or more, not {count}")
    entries = _entries(task, dataset)
    better = entries[0].higher_is_better
    variants = sorted(_variants(entries, precision), key=lambda v: (-v.accuracy if better else v.accuracy, v.name))
    variants = [_ruled_out(v, min_accuracy, better=better) for v in variants]
    variants, cached = _measured(variants, threads, workers, refresh=refresh)
    variants = _with_front([_judged(v, latency_ms, size_bytes) for v in variants], better=better)
    fitting = [n for n, v in enumerate(variants) if not v.reason]
    pick = min(fitting, key=lambda n: (_worse(variants[n], better=better), _latency(variants[n])), default=None)
    return Choice(
        task=task,
        dataset=entries[0].dataset,
        metric=entries[0].metric,
        higher_is_better=better,
        max_latency_ms=latency_ms,
        min_accuracy=min_accuracy,
        max_size_bytes=size_bytes,
        threads=threads,
        variants=tuple(variants),
        pick=pick,
        reasons=tuple(
            _blame(variants, min_accuracy, latency_ms, size_bytes, better=better)
            if pick is None
            else _reasons(variants, pick, fitting)
        ),
        command="" if pick is None else _command(variants[pick]),
        cached=cached,
        machine=machine_facts(),
    )


def _entries(task: str, dataset: str | None) -> list[Entry]:
    of_task = [e for e in catalogue() if e.task == task]
    if not of_task:
        raise UsageError(f"there is no task {task!r}; there are {', '.join(sorted({e.task for e in catalogue()}))}")
    names = [e.dataset for e in of_task]
    wanted = dataset or max(sorted(set(names)), key=names.count)
    found = [e for e in of_task if e.dataset == wanted]
    if not found:
        raise UsageError(f"no variant for {task} is scored on {wanted!r}; there are {', '.join(sorted(set(names)))}")
    return found


def _variants(entries: Sequence[Entry], precision: str) -> list[Variant]:
    found = []
    for entry in entries:
        published = {"float": entry.accuracy, "int8": entry.accuracy_int8}
        for kind in PRECISIONS if precision == "both" else (precision,):
            accuracy = published[kind]
            if accuracy is not None:
                size = entry.width, entry.resolution, entry.classes
                found.append(Variant(entry.variant, entry.name, *size, kind, accuracy, source=entry.source))
    return found


def _ruled_out(variant: Variant, least: float | None, *, better: bool) -> Variant:
    if _is_accurate(variant, least, better=better):
        return variant
    return replace(variant, reason=f"published accuracy {variant.accuracy:g}")


def _is_accurate(variant: Variant, least: float | None, *, better: bool) -> bool:
    return least is None or (variant.accuracy >= least if better else variant.accuracy <= least)


def _measured(
    variants: Sequence[Variant], threads: int, workers: int | None, *, refresh: bool
) -> tuple[list[Variant], int]:
    """Measure what is not in the cache: built by all cores, a few at a time, then timed with nothing else running."""
    folder = cache_folder()
    result = list(variants)
    wanted = []
    for number, variant in enumerate(variants):
        if variant.reason:
            continue
        known = None if refresh else _read(folder / f"{_key(variant, threads)}.json")
        if known is None:
            wanted.append(number)
        else:
            result[number] = replace(variant, measured=known)
    cached = sum(v.measured is not None for v in result)
    team = LocalWorkers(None, workers or len(os.sched_getaffinity(0)))
    try:
        with task("Measuring the zoo", total=len(wanted)) as advance:
            for start in range(0, len(wanted), TOGETHER):
                group = wanted[start : start + TOGETHER]
                for number, found in zip(group, _measure_group([result[n] for n in group], threads, team), strict=True):
                    result[number] = found
                    if found.measured is not None:
                        _write(folder / f"{_key(found, threads)}.json", found.measured)
                    advance(1)
    finally:
        team.close()
    return result, cached


def _measure_group(group: Sequence[Variant], threads: int, team: LocalWorkers) -> list[Variant]:
    with tempfile.TemporaryDirectory(prefix="litesmith-") as folder:
        paths = [Path(folder) / f"{v.name}-{v.precision}.tflite" for v in group]
        for number, (variant, path) in enumerate(zip(group, paths, strict=True)):
            team.submit(number, Prepare(variant.name, variant.precision, str(path)))
        answers = dict(team.next() for _ in group)
        result = list(group)
        good = [n for n in range(len(group)) if not isinstance(answers[n], Failure)]
        for number in set(answers) - set(good):
            result[number] = replace(group[number], reason=f"cannot be measured: {answers[number].reason}")
        if good:
            timed = bench(*(paths[n] for n in good), threads=threads, seconds=SECONDS, memory=False)
            for number, latency in zip(good, timed.latencies, strict=True):
                size, memory = answers[number]
                summary = latency.summary
                measured = Measured(summary.median, summary.low, summary.high, memory, size)
                result[number] = replace(group[number], measured=measured)
    return result


def _judged(variant: Variant, latency_ms: float | None, size_bytes: int | None) -> Variant:
    if variant.reason or variant.measured is None:
        return variant
    broken = []
    if latency_ms is not None and variant.measured.latency_ms > latency_ms:
        broken.append(f"takes {variant.measured.latency_ms:.2f} ms")
    if size_bytes is not None and variant.measured.size_bytes > size_bytes:
        broken.append(f"has {_size_text(variant.measured.size_bytes)}")
    return replace(variant, reason=" and ".join(broken))


def _with_front(variants: Sequence[Variant], *, better: bool) -> list[Variant]:
    def costs(v: Variant) -> tuple[float, float, float]:
        assert v.measured is not None
        return _worse(v, better=better), v.measured.latency_ms, float(v.measured.size_bytes)

    known = [(costs(v), v) for v in variants if v.measured is not None]
    front = {
        id(v)
        for mine, v in known
        if not any(all(a <= b for a, b in zip(other, mine, strict=True)) and other != mine for other, _ in known)
    }
    return [replace(v, front=id(v) in front) for v in variants]


def _worse(variant: Variant, *, better: bool) -> float:
    return -variant.accuracy if better else variant.accuracy


def _latency(variant: Variant) -> float:
    return variant.measured.latency_ms if variant.measured is not None else float("inf")


def _size(variant: Variant) -> float:
    return variant.measured.size_bytes if variant.measured is not None else float("inf")


def _size_text(size: float) -> str:
    return f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{size / 1e3:.1f} kB"


def _named(variant: Variant) -> str:
    return f"{variant.name} as {variant.precision}"


@dataclass(frozen=True)
class _Limit:
    """A bound on what is measured, how it is read off a variant, and how it is written."""

    name: str
    bound: float
    of: Callable[[Variant], float]
    text: Callable[[float], str]


def _blame(
    variants: Sequence[Variant], least: float | None, latency_ms: float | None, size_bytes: int | None, *, better: bool
) -> list[str]:
    """Return which bounds are to blame that no variant fits, the best there is for each, and the nearest variants."""
    accurate = [v for v in variants if _is_accurate(v, least, better=better)]
    known = [v for v in accurate if v.measured is not None]
    if not accurate:
        return [
            "no variant is within the bounds, because of that on accuracy",
            f"the best published accuracy is {variants[0].accuracy:g}, of {_named(variants[0])}; asked for is {least:g}",
            *(f"near: {_named(v)}: accuracy {v.accuracy:g}, not measured" for v in variants[1:NEAREST]),
        ]
    if not known:
        return ["no variant could be measured", *dict.fromkeys(v.reason for v in accurate)]
    limits = [] if latency_ms is None else [_Limit("latency", latency_ms, _latency, "{:.4g} ms".format)]
    limits += [] if size_bytes is None else [_Limit("size", size_bytes, _size, _size_text)]
    broken = [limit.name for limit in limits if all(limit.of(v) > limit.bound for v in known)]
    blamed = (
        f", because of that on {' and that on '.join(broken)}" if broken else ": some meet each, but none meets all"
    )
    found = [f"no variant is within the bounds{blamed}"]
    of_those = "" if least is None else " of those that are accurate enough"
    for limit in limits:
        best = min(known, key=limit.of)
        value = f"{limit.text(limit.of(best))}, of {_named(best)}"
        found.append(f"the least {limit.name}{of_those} is {value}; allowed is {limit.text(limit.bound)}")
    if len(accurate) < len(variants):  # whether one of them is faster or smaller is not known
        found.append(f"{len(variants) - len(accurate)} variants are less accurate than {least:g} and were not measured")
    nearest = sorted(known, key=lambda v: max(limit.of(v) / limit.bound for limit in limits))[:NEAREST]
    return found + [
        f"near: {_named(v)}: accuracy {v.accuracy:g}, {_latency(v):.2f} ms, {_size_text(_size(v))}" for v in nearest
    ]


def _reasons(variants: Sequence[Variant], pick: int, fitting: Sequence[int]) -> list[str]:
    chosen = variants[pick]
    assert chosen.measured is not None
    best = f"{chosen.name} as {chosen.precision} has the best published accuracy of them, {chosen.accuracy:g}"
    size, memory = chosen.measured.size_bytes / 1e6, chosen.measured.memory_bytes / 1e6
    found = [
        f"{len(fitting)} of {len(variants)} variants are within the bounds, and {best}",
        f"here it takes {chosen.measured.latency_ms:.2f} ms, {size:.1f} MB on disk and {memory:.1f} MB of memory",
    ]
    faster = [variants[n] for n in fitting if _latency(variants[n]) < 0.7 * _latency(chosen) and variants[n].front]
    if faster:
        other = min(faster, key=lambda v: abs(v.accuracy - chosen.accuracy))
        found.append(
            f"{other.name} as {other.precision} takes {_latency(other):.2f} ms for "
            f"{abs(chosen.accuracy - other.accuracy):.1f} points less"
        )
    return found


def _command(variant: Variant) -> str:
    """Return what makes the file that was measured."""
    built = (
        f"litesmith zoo build {variant.architecture} --width {variant.width:g} --resolution {variant.resolution} "
        f"--classes {variant.classes} -o {variant.name}.tflite"
    )
    if variant.precision == "float":
        return built
    scheme = variant.precision
    return f"{built} && litesmith quantize {variant.name}.tflite --scheme {scheme} -o {variant.name}-{scheme}.tflite"


# -------------------------------------------------------------------- the cache


def cache_folder() -> Path:
    """Return where measurements of the zoo are kept: $LITESMITH_CACHE, else the user's cache folder."""
    base = os.environ.get("LITESMITH_CACHE")
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return (Path(base) if base else home / "litesmith") / "zoo"


def _key(variant: Variant, threads: int) -> str:
    return hashlib.sha256(f"{variant.name} {variant.precision} {threads} {stamp()}".encode()).hexdigest()


def _read(path: Path) -> Measured | None:
    if not path.exists():
        return None
    try:
        return Measured.from_json(path)
    except UsageError:
        return None  # written by another version, or damaged: measured again


def _write(path: Path, measured: Measured) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, (measured.to_json() + "\n").encode())
    except OSError as error:
        if error.errno not in NO_SPACE:
            raise MeasureError(
                f"the measurement cannot be kept in {path.parent}: {error}; set LITESMITH_CACHE"
            ) from error
