# SPDX-License-Identifier: Apache-2.0
"""The user's own folder of classes, made fit for training: what cannot be read left out, what cannot work said at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from litesmith.data import Dataset
from litesmith.errors import DataError
from litesmith.progress import task
from litesmith.train._audio_features import SAMPLE_RATE, mfcc, takes_coefficients

LEAST = 5
"""Samples a class needs: three to learn from, one to choose by, one to be scored by."""
FEW = 20
_BLOCK = 64
_PARTS = {"train": 0.7, "validation": 0.15, "test": 0.15}
_SOUNDS = (".wav", ".flac", ".ogg")


@dataclass(frozen=True)
class ClassData:
    """Samples of named classes in three parts, and what was found on the way."""

    train: Dataset
    validation: Dataset
    test: Dataset
    names: tuple[str, ...]
    counts: tuple[int, ...]
    notes: tuple[str, ...]


def is_sound(data: Any) -> bool:
    """Say whether the data is a folder of sound files."""
    if not isinstance(data, (str, Path)) or not Path(data).is_dir():
        return False
    first = next((p for p in sorted(Path(data).rglob("*")) if p.is_file() and not p.name.startswith(".")), None)
    return first is not None and first.suffix.lower() in _SOUNDS


def class_data(data: Any, preprocess: Any, shape: Sequence[int], seed: int) -> ClassData:
    """Open, check and divide the samples of a classifier whose input has this shape."""
    opened = Dataset.open(data, preprocess=preprocess)
    labels = opened.labels
    if labels is None or not isinstance(labels, np.ndarray) or labels.dtype.kind not in "iu" or labels.ndim != 1:
        raise DataError(
            "retraining needs samples of named classes: a folder with one subfolder a class, or data with class numbers"
        )
    kept, notes = _readable(opened)
    if kept.preprocess.sample_rate and takes_coefficients(shape):
        kept = _sound_features(kept, shape)
    labels = np.asarray(kept.labels)
    names = kept.class_names or tuple(str(number) for number in range(int(labels.max()) + 1))
    counts = tuple(int((labels == number).sum()) for number in range(len(names)))
    _check_counts(names, counts)
    notes += _remarks(names, counts)
    return ClassData(*_divided(kept, labels, len(names), seed), names, counts, tuple(notes))


def _readable(data: Dataset) -> tuple[Dataset, list[str]]:
    """Return the samples that can be read, and a note on those that cannot."""
    bad: list[tuple[int, str]] = []
    with task("Checking samples", total=len(data)) as advance:
        for first in range(0, len(data), _BLOCK):
            block = range(first, min(first + _BLOCK, len(data)))
            if _problem(data, block) is not None:
                for row in block:
                    problem = _problem(data, range(row, row + 1))
                    if problem is not None:
                        bad.append((row, problem))
            advance(len(block))
    if not bad:
        return data, []
    if 2 * len(bad) > len(data):
        raise DataError(f"{len(bad)} of {len(data)} samples cannot be read, first: {bad[0][1]}")
    kept = np.setdiff1d(np.arange(len(data)), [row for row, _ in bad])
    return data.subset(kept), [f"{len(bad)} samples left out, first: {bad[0][1]}"]


def _problem(data: Dataset, rows: range) -> str | None:
    try:
        for _ in data[rows.start : rows.stop]:
            pass
    except DataError as error:
        return str(error)
    return None


def _sound_features(data: Dataset, shape: Sequence[int]) -> Dataset:
    """Return sounds as the cepstral coefficients that a net of this input shape takes."""
    rate = data.preprocess.sample_rate or SAMPLE_RATE
    rows = []
    with task("Computing features", total=len(data)) as advance:
        for sample in data:
            rows.append(mfcc(sample.x.reshape(-1), shape[1], shape[2], sample_rate=rate))
            advance(1)
    stacked = np.stack(rows)
    return Dataset.from_arrays(
        stacked[..., None] if len(shape) == 4 else stacked, data.labels, class_names=data.class_names
    )


def _check_counts(names: Sequence[str], counts: Sequence[int]) -> None:
    present = [name for name, count in zip(names, counts, strict=True) if count]
    if len(present) < 2:
        raise DataError(
            f"there is one class, {present[0]!r}: a classifier needs two or more; add a folder of what is not "
            f"{present[0]!r}"
        )
    few = [f"{name!r} {count}" for name, count in zip(names, counts, strict=True) if count < LEAST]
    if few:
        raise DataError(
            f"too few samples to learn from and to score by: {', '.join(few[:5])}; each class needs {LEAST} at the least, "
            f"and {FEW} or more to be worth it"
        )


def _remarks(names: Sequence[str], counts: Sequence[int]) -> list[str]:
    notes = []
    few = [name for name, count in zip(names, counts, strict=True) if count < FEW]
    if few:
        notes.append(f"fewer than {FEW} samples of {', '.join(map(repr, few[:5]))}: expect a wide interval")
    if max(counts) > 2 * min(counts):
        most, least = names[int(np.argmax(counts))], names[int(np.argmin(counts))]
        notes.append(
            f"classes are uneven, {max(counts)} of {most!r} and {min(counts)} of {least!r}: rare ones count for more in "
            "training"
        )
    return notes


def _divided(data: Dataset, labels: np.ndarray[Any, Any], classes: int, seed: int) -> tuple[Dataset, Dataset, Dataset]:
    """Divide each class for itself, by lot, so that every part has all classes."""
    rows: dict[str, list[int]] = {name: [] for name in _PARTS}
    for number in range(classes):
        places = np.flatnonzero(labels == number)
        order = np.random.default_rng((seed, number)).permutation(len(places))
        counts = {name: max(round(share * len(places)), 1) for name, share in _PARTS.items() if name != "train"}
        taken = 0
        for name, count in counts.items():
            rows[name] += places[order[taken : taken + count]].tolist()
            taken += count
        rows["train"] += places[order[taken:]].tolist()
    train, validation, test = (data.subset(sorted(rows[name])) for name in _PARTS)
    return train, validation, test
