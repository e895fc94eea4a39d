# SPDX-License-Identifier: Apache-2.0
"""Labels: words into numbers, and the numbers into those of the user's list of classes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from litesmith.data._npz import read_npy
from litesmith.data._rows import Array
from litesmith.errors import DataError

_WHOLE = re.compile("[+-]?[0-9]+")


def encode(words: Sequence[str]) -> tuple[Array, tuple[str, ...] | None]:
    """Return words as numbers where all are numbers, else as positions in their sorted list of classes.

    >>> encode(["dog", "cat", "dog"])
    (array([1, 0, 1]), ('cat', 'dog'))
    >>> encode(["3", "7"])
    (array([3, 7]), None)
    """
    if all(map(_WHOLE.fullmatch, words)):
        numbers = np.array([int(word) for word in words])
        if numbers.dtype.kind in "iu":  # longer ids are words: no number of 64 bits tells them apart
            return numbers, None
    elif not any("_" in word for word in words):
        try:
            numbers = np.array([float(word) for word in words])
        except ValueError:
            numbers = np.array([np.nan])
        if np.isfinite(numbers).all():
            return numbers, None
    names = tuple(sorted(set(words)))
    numbers_by_name = {name: number for number, name in enumerate(names)}
    return np.array([numbers_by_name[word] for word in words]), names


def read_labels(labels: Any) -> tuple[Array, tuple[str, ...] | None]:
    """Return labels given as a sequence, an array, an `.npy` file, or a text file with one label a line."""
    if not isinstance(labels, (str, Path)):
        if isinstance(labels, np.ndarray):
            return labels, None
        values = list(labels)
        if all(isinstance(value, (int, float, str, np.generic)) for value in values):
            return np.array(values), None
        array = np.empty(len(values), object)
        array[:] = values
        return array, None
    path = Path(labels)
    if not path.is_file():
        raise DataError(f"labels: {path} is neither a file nor the name of an array in the samples' .npz")
    if path.suffix == ".npy":
        return read_npy(path), None
    return encode(read_lines(path))


def read_class_names(names: Sequence[str] | str | Path) -> tuple[str, ...]:
    """Return class names given as a sequence, or a text file with one name a line."""
    return tuple(read_lines(Path(names)) if isinstance(names, (str, Path)) else names)


def read_lines(path: Path) -> list[str]:
    """Return the lines of a text file, without blank ones at its end."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read as text: {error}") from error
    while lines and not lines[-1].strip():
        lines.pop()
    return [line.strip() for line in lines]


def renumber(labels: Array, known: tuple[str, ...] | None, wanted: tuple[str, ...], title: str) -> Array:
    """Return the labels as numbers of ``wanted`` classes: by name where names are known, else checked for range."""
    if labels.ndim != 1:
        return labels
    if labels.dtype.kind == "U":
        positions = _positions(labels.tolist(), wanted, title)
        return np.array([positions[name] for name in labels.tolist()])
    if labels.dtype.kind not in "iu":
        return labels
    _check_range(labels, wanted if known is None else known, title)
    if known is None or known == wanted:
        return labels
    positions = _positions((known[number] for number in np.unique(labels)), wanted, title)
    return np.array([positions[known[number]] for number in labels.tolist()])


def _positions(names: Iterable[str], wanted: tuple[str, ...], title: str) -> dict[str, int]:
    """Return the places of names in ``wanted``; refuse a name that is not there, or there twice."""
    used = set(names)
    missing = sorted(used - set(wanted))
    if missing:
        raise DataError(
            f"{title}: class {missing[0]!r}{f' and {len(missing) - 1} others' if missing[1:] else ''} not found "
            f"among the {len(wanted)} class names given ({', '.join(wanted[:3])} …); rename it or add it there"
        )
    positions: dict[str, int] = {}
    for number, name in enumerate(wanted):
        if name in used and positions.setdefault(name, number) != number:
            raise DataError(
                f"{title}: class {name!r} stands twice among the class names given, as {positions[name]} and {number}; "
                "give each a name of its own, or give labels as numbers"
            )
    return positions


def _check_range(labels: Array, names: tuple[str, ...], title: str) -> None:
    wrong = np.flatnonzero((labels < 0) | (labels >= len(names)))
    if len(wrong):
        raise DataError(
            f"{title}: sample {wrong[0]} has label {labels[wrong[0]]}, and there are {len(names)} class names "
            f"(0 … {len(names) - 1}); give a name for each number"
        )
