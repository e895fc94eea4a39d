# SPDX-License-Identifier: Apache-2.0
"""The lock file: everything that made the winner, so that it can be made again byte for byte, and held to its figures."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from litesmith.data import Dataset
from litesmith.errors import DataError, OptimizeError, UsageError
from litesmith.machine import package_version
from litesmith.measure import MachineFacts, machine_facts
from litesmith.optimize import Recipe
from litesmith.result import Result
from litesmith.tune._budget import Budget
from litesmith.tune._journal import write_whole
from litesmith.tune._question import Question, content_hash
from litesmith.tune._stamp import makers
from litesmith.tune._trial import Trial

if TYPE_CHECKING:
    from litesmith.tune._tune import Tuned


@dataclass(frozen=True)
class Origin:
    """Where the parts of a question come from; None for samples that only a program can make again.

    Paths are as the user has them; in a lock file they are relative to its folder. ``own_calibration`` where the samples
    to calibrate on were given, and are no part of the data.
    """

    model: str
    data: str | None
    calibrate: str | None
    preprocess: str
    limit: int | None
    train: str | None = None
    own_calibration: bool = False


@dataclass(frozen=True)
class Lock(Result, kind="lock", schema=1):
    """What made the winner, and what it reached.

    Attributes:
        recipe: of the winner; empty where the float model won.
        model_hash: SHA-256 of the float file.
        winner_hash: SHA-256 of the winner.
        origin: where model and samples are.
        calibrate_hash, search_hash, held_out_hash: fingerprints of the splits.
        train_hash: fingerprint of the samples that the winner was trained on; empty where it was not.
        metric: its name.
        model_output: the output that was scored, where the model has several.
        label_offset: added to class numbers.
        seed: of the splits and everything drawn.
        budget: the bounds.
        drop_bound: what the score may fall by, in its own unit.
        trial: the winner's figures.
        machine: the facts of the machine that made it, and the versions of all packages that take part in that.
        device: the address of the device that measured its latency, where there was one.
        measured_on: the facts of the machine that measured it, where that was another: a device, or a worker of a cluster.
    """

    recipe: str
    model_hash: str
    winner_hash: str
    origin: Origin
    calibrate_hash: str
    search_hash: str
    held_out_hash: str
    metric: str
    model_output: str | None
    label_offset: int
    seed: int
    budget: Budget
    drop_bound: float
    trial: Trial
    machine: MachineFacts
    device: str = ""
    measured_on: MachineFacts | None = None
    train_hash: str = ""

    def __post_init__(self) -> None:
        timings = {"timing": self.trial.timing, "accelerated": self.trial.accelerated}
        timings |= {f"threads[{number}]": timing for number, timing in enumerate(self.trial.threads)}
        wrong = []
        for name, timing in timings.items():
            if timing is not None and timing.threads < 1:
                wrong.append(f"trial.{name}.threads must be 1 or more, not {timing.threads}")
            if timing is not None and not timing.median_ms > 0:
                wrong.append(f"trial.{name}.median_ms must be above 0, not {timing.median_ms}")
        wrong += [f"seed must be 0 or more, not {self.seed}"] if self.seed < 0 else []
        wrong += ["trial.score is missing, and a winner was scored"] if self.trial.score is None else []
        if wrong:
            raise UsageError("; ".join(wrong))

    @property
    def meter(self) -> MachineFacts:
        """The machine whose latency the lock has."""
        return self.measured_on or self.machine


def make_lock(
    question: Question,
    origin: Origin,
    result: Tuned,
    winner: Trial,
    machine: MachineFacts,
    folder: Path,
) -> Lock:
    """Return the lock of a winner that was made on ``machine``, for a file in ``folder``."""

    def relative(place: str | None) -> str | None:
        return os.path.relpath(place, folder.resolve()) if place is not None and Path(place).is_absolute() else place

    moved = Origin(
        relative(origin.model) or "",
        relative(origin.data),
        relative(origin.calibrate),
        origin.preprocess,
        origin.limit,
        relative(origin.train),
        origin.own_calibration,
    )
    trained_on = question.train if Recipe.parse(winner.recipe).trains else None
    return Lock(
        recipe=winner.recipe,
        model_hash=content_hash(question.model),
        winner_hash=winner.file,
        origin=moved,
        calibrate_hash=question.calibrate.fingerprint(),
        search_hash=question.search.fingerprint(),
        held_out_hash=question.held_out.fingerprint(),
        metric=question.metric,
        model_output=question.output,
        label_offset=question.label_offset,
        seed=question.seed,
        budget=result.budget,
        drop_bound=result.drop_bound,
        trial=winner,
        machine=replace(machine, versions={**machine.versions, **makers(winner.recipe)}),
        device=result.device,
        measured_on=result.machine if result.device or result.machine != machine else None,
        train_hash="" if trained_on is None else trained_on.fingerprint(),
    )


def read_lock(path: str | Path) -> Lock:
    """Read a lock file; refuses one with fields that are missing, of another type, or impossible."""
    try:
        return Lock.from_json(Path(path))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    except UsageError as error:
        raise UsageError(f"{error}; give a litesmith.lock as `litesmith tune` left it") from error


def ask_again(
    lock: Lock,
    folder: Path,
    *,
    model: str | Path | None = None,
    data: Any = None,
    calibrate: Any = None,
    train: Any = None,
    to_train: bool = False,
) -> Question:
    """Return the question that a lock answers, from the places it names or those given; refuses other content.

    The samples to train on are opened only ``to_train``.
    """
    from litesmith.tune._tune import ask

    found_model = _found(lock.origin.model, folder, model, "the float model", "model")
    found_data = _found(lock.origin.data, folder, data, "the samples", "data")
    wants_own = lock.origin.own_calibration or lock.origin.calibrate is not None or calibrate is not None
    found_calibrate = (
        _found(lock.origin.calibrate, folder, calibrate, "the calibration samples", "calibrate") if wants_own else None
    )
    found_train = _found(lock.origin.train, folder, train, "the samples to train on", "train") if to_train else None
    question, _ = ask(
        found_model,
        found_data,
        None if isinstance(found_data, Dataset) else lock.origin.preprocess or None,
        found_calibrate,
        lock.metric,
        limit=lock.origin.limit,
        model_output=lock.model_output,
        label_offset=lock.label_offset,
        seed=lock.seed,
        train=found_train,
    )
    if content_hash(question.model) != lock.model_hash:
        raise OptimizeError(f"{found_model} is not the float model of the lock: its SHA-256 differs")
    for name, what in (("calibrate", "calibrate"), ("held_out", "held-out"), ("train", "training")):
        samples = getattr(question, name)
        if samples is not None and samples.fingerprint() != getattr(lock, f"{name}_hash"):
            raise DataError(
                f"the {what} samples are not those of the lock: their fingerprint differs; give the same data and "
                "preprocessing"
            )
    return question


def _found(place: str | None, folder: Path, given: Any, what: str, option: str) -> Any:
    if given is not None:
        return given
    if place is None:
        raise UsageError(
            f"the lock does not say where {what} are: they came from a program; give {option}=… or --{option}"
        )
    is_there = Path(folder, function_file(place) or place).exists()
    return folder / place if is_there or "/" in place else place  # a name such as module:function is no path


def function_file(place: str) -> str:
    """Return the file of samples that are a function of a file, as `tools/data.py:samples`; nothing for others."""
    file, _, _ = place.rpartition(":")
    return file if file.endswith(".py") else ""


def reproduce(
    lock: str | Path,
    output: str | Path | None = None,
    *,
    model: str | Path | None = None,
    data: Dataset | str | Path | None = None,
    calibrate: Dataset | str | Path | None = None,
    train: Dataset | str | Path | None = None,
) -> Path:
    """Make the winner of a lock file again, byte for byte, and return its path.

    Args:
        lock: the `litesmith.lock`.
        output: the file to write, or a folder for ``winner.tflite``; by default the lock's.
        model: the float model, where it is not where the lock says.
        data: the samples, where they are not where the lock says.
        calibrate: the calibration samples, likewise.
        train: the samples to train on, likewise; only for a winner that was trained.

    Raises:
        OptimizeError: the model differs, or what was made is not the winner; the message says which versions differ.
    """
    kept = read_lock(lock)
    folder = Path(lock).resolve().parent
    trains = Recipe.parse(kept.recipe).trains
    question = ask_again(kept, folder, model=model, data=data, calibrate=calibrate, train=train, to_train=trains)
    content = question.made(kept.recipe)
    if content_hash(content) != kept.winner_hash:
        raise OptimizeError(f"the file made is not the winner of the lock: its SHA-256 differs; {_differences(kept)}")
    target = folder if output is None else Path(output)
    target = target / "winner.tflite" if target.is_dir() else target
    write_whole(target, content)
    return target


def _differences(lock: Lock) -> str:
    now = machine_facts()
    found = [
        f"{name} was {version} and is {package_version(name) or 'missing'}"
        for name, version in lock.machine.versions.items()
        if package_version(name) != version
    ]
    found += [] if now.cpu == lock.machine.cpu else [f"the CPU was {lock.machine.cpu} and is {now.cpu}"]
    return ", ".join(found) or "versions and CPU are the same"
