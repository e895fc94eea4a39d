# SPDX-License-Identifier: Apache-2.0
"""Hold a file to its lock, for CI: drop, size and latency within the bounds, or the reason why not."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from litesmith.data import Dataset
from litesmith.devices import Device
from litesmith.errors import UsageError
from litesmith.measure import MachineFacts, machine_facts
from litesmith.result import Result
from litesmith.tune._jobs import measured
from litesmith.tune._lock import Lock, ask_again, read_lock
from litesmith.tune._meter import measuring_device
from litesmith.tune._question import Question, content_hash
from litesmith.tune._search import FEWEST_SAMPLES
from litesmith.tune._trial import Timing

_BOUND = re.compile(r"\s*(drop|latency|size)\s*>\s*\+?(\d+(?:\.\d+)?)\s*(%|ms|MB|kB|B|)\s*")
_UNITS = {"B": 1.0, "kB": 1e3, "MB": 1e6}
ROOM = 0.10
"""What a latency may exceed the lock's by, without a bound of its own: machines of one kind differ that much."""
_MEASURE_S = 2.0


@dataclass(frozen=True)
class _Bound:
    """What is allowed; None for the lock's latency with some room. ``asked`` where the user gave it."""

    quantity: str
    allowed: float | None
    asked: str = ""
    holds_anywhere: bool = False  # in ms, whatever machine measures


@dataclass(frozen=True)
class Check:
    """One bound: what was found, what is allowed, and whether it holds; ``note`` where it could not be checked."""

    quantity: str
    found: float | None
    allowed: float | None
    unit: str
    holds: bool
    note: str = ""

    @property
    def text(self) -> str:
        """What was found, in words.

        Example:
            >>> Check("drop", 0.0125, 0.005, "share", False, "interval +0.73 … +1.77 on 1600 held-out samples").text
            'drop 1.25 points, allowed 0.50 points (interval +0.73 … +1.77 on 1600 held-out samples)'
        """
        figures = "" if self.found is None else f" {self._value(self.found)}, allowed {self._value(self.allowed)}"
        return f"{self.quantity}{figures}{f' ({self.note})' if self.note else ''}"

    def _value(self, value: float | None) -> str:
        if value is None:
            return "anything"
        if self.unit == "bytes":
            return f"{value:,.0f} bytes"
        if self.unit == "share":
            return f"{100 * value:.2f} points"
        return f"{value:.3f} ms" if self.unit == "ms" else f"{value:.4f}"


@dataclass(frozen=True)
class Gate(Result, kind="gate", schema=1):
    """What ``gate`` checked.

    Attributes:
        lock: the lock file.
        model: the file that was held to it.
        is_winner: whether it is the lock's winner, byte for byte.
        checks: one for each bound.
    """

    lock: str
    model: str
    is_winner: bool
    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        """Whether all bounds hold."""
        return all(check.holds for check in self.checks)


def gate(
    lock: str | Path,
    model: str | Path | None = None,
    *,
    data: Dataset | str | Path | None = None,
    calibrate: Dataset | str | Path | None = None,
    fail_if: tuple[str, ...] = (),
    latency: bool = True,
    seconds: float = _MEASURE_S,
    device: str | Device | None = None,
    devices_file: str | Path | None = None,
) -> Gate:
    """Check a file against a lock: its drop on the held-out samples, its size, and its latency here.

    Without ``fail_if`` the bounds are the lock's budget, and the lock's own latency with 10 % of room where it has no
    bound. Both are of the machine that measured the lock's latency: on another kind the latency is not checked, and a
    share of it, "latency>+10%", does not hold; only a bound in milliseconds given here is checked on any.

    Args:
        lock: the `litesmith.lock`.
        model: the file; by default ``winner.tflite`` beside the lock.
        data: the samples, where they are not where the lock says.
        calibrate: the calibration samples, likewise.
        fail_if: bounds instead: "drop>0.5%" (as ``max_drop`` of ``tune``), "drop>0.02" (in the unit of the score),
            "latency>5ms", "latency>+10%" (of the lock's), "size>4MB", "size>+1%".
        latency: False leaves the latency out.
        seconds: time to measure it for.
        device: where to measure it, as in ``tune``.
        devices_file: where devices are listed; the user's own file by default.
    """
    kept = read_lock(lock)
    folder = Path(lock).resolve().parent
    path = folder / "winner.tflite" if model is None else Path(model)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    bounds = [_bound(text, kept) for text in fail_if] or _own_bounds(kept)
    checks = []
    for bound in bounds:
        if bound.quantity == "size":
            assert bound.allowed is not None
            checks.append(Check("size", len(content), bound.allowed, "bytes", len(content) <= bound.allowed))
        elif bound.quantity == "drop":
            question = ask_again(kept, folder, data=data, calibrate=calibrate)
            checks.append(_drop(question, content, bound.allowed))
        elif latency:
            checks.append(_latency(kept, path, bound, seconds, measuring_device(device, devices_file)))
    return Gate(str(lock), str(path), content_hash(content) == kept.winner_hash, tuple(checks))


def _own_bounds(lock: Lock) -> list[_Bound]:
    size = lock.budget.max_size_bytes
    return [
        _Bound("drop", lock.drop_bound),
        _Bound("size", float(size if size is not None else lock.trial.size_bytes)),
        _Bound("latency", lock.budget.max_latency_ms),
    ]


def _bound(text: str, lock: Lock) -> _Bound:
    match = _BOUND.fullmatch(text)
    fits = {"drop": ("%", ""), "latency": ("%", "ms"), "size": ("%", "MB", "kB", "B")}
    if match is None or match[3] not in fits[match[1]]:
        raise UsageError(f"{text!r} is not a bound; write 'drop>0.5%', 'latency>5ms', 'latency>+10%' or 'size>4MB'")
    quantity, number, unit = match[1], float(match[2]), match[3]
    if quantity == "drop":
        allowed = replace(lock.budget, max_drop=number / 100).drop_bound(_float_score(lock)) if unit == "%" else number
        return _Bound(quantity, allowed, text)
    if unit == "%":
        timing = lock.trial.best_timing
        base = lock.trial.size_bytes if quantity == "size" else 0.0 if timing is None else timing.median_ms
        return _Bound(quantity, base * (1 + number / 100), text)
    return _Bound(quantity, number * _UNITS.get(unit, 1.0), text, holds_anywhere=True)


def _float_score(lock: Lock) -> float:
    """Return what the float model scored in the search."""
    score = lock.trial.score
    assert score is not None, "a winner was scored"
    return score.value if score.drop is None else score.drop.value


def _drop(question: Question, content: bytes, allowed: float | None) -> Check:
    assert allowed is not None
    count = len(question.held_out)
    assert count >= 1
    seen = [question.observe(model, "held_out", 0, count) for model in (question.model, content)]
    drop = question.score(seen[1], seen[0]).drop
    assert drop is not None
    few = f"; {count} samples are few" if count < FEWEST_SAMPLES else ""
    is_share = question.scorer().is_fraction
    ends = [f"{100 * end:+.2f}" if is_share else f"{end:+.4f}" for end in (drop.drop_low, drop.drop_high)]
    note = f"interval {ends[0]} … {ends[1]} on {count} held-out samples{few}"
    return Check("drop", drop.drop, allowed, "share" if is_share else "", drop.drop <= allowed, note)


def _latency(lock: Lock, path: Path, bound: _Bound, seconds: float, device: Device | None) -> Check:
    """Check the latency; it breaks the bound only where the whole interval of its median is beyond."""
    timing = lock.trial.best_timing
    result = None if device is None else _timed(path, timing, seconds, device)
    machine = machine_facts() if result is None else result.machine
    allowed = bound.allowed
    if not bound.holds_anywhere:
        if timing is None or machine.identity != lock.meter.identity:
            return Check("latency", None, None, "ms", not bound.asked, _unchecked(lock, bound, machine))
        allowed = timing.median_ms * (1 + ROOM) if allowed is None else allowed
    result = _timed(path, timing, seconds, None) if result is None else result
    where = "" if device is None else f" on {device.name}"
    if timing is not None and timing.accelerator:
        run = result.run(timing.accelerator)
        if run.problem or run.is_wrong or not run.ran:
            return Check("latency", None, allowed, "ms", False, f"{run.name}{where}: {run.problem or run.verdict}")
        found, how = run.summary, f"on {run.name}"
    else:
        threads = 1 if timing is None else timing.threads
        found, how = result.latencies[0].summary, f"with {threads} thread{'s' * (threads != 1)}"
    note = f"interval {found.low:.3f} … {found.high:.3f} ms {how}{where}"
    return Check("latency", found.median, allowed, "ms", found.low <= allowed, note)


def _timed(path: Path, timing: Timing | None, seconds: float, device: Device | None) -> Any:
    """Measure a file as the lock's latency was: on the same accelerator, or with as many threads."""
    if timing is not None and timing.accelerator:
        return measured(device, "accelerators", path, only=[timing.accelerator], seconds=seconds)
    threads = 1 if timing is None else timing.threads
    return measured(device, "bench", path, threads=threads, seconds=seconds, memory=False)


def _unchecked(lock: Lock, bound: _Bound, machine: MachineFacts) -> str:
    """Return why a latency cannot be held to the lock's here, and what to do."""
    what = f"{bound.asked} cannot be checked" if bound.asked else "not checked"
    if lock.trial.best_timing is None:
        return f"{what}: the lock has no latency; give a bound in ms"
    theirs, ours = (" ".join(map(str, m.identity)).strip() for m in (lock.meter, machine))
    there = f"measure there with --device {lock.device}, or " if lock.device else ""
    return f"{what}: the lock's latency is of another machine ({theirs}; not {ours}); {there}give a bound in ms"
