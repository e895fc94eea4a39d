# SPDX-License-Identifier: Apache-2.0
"""Recognize what the user points to."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from litesmith.data._arrays import ArraySource, npy_source, npz_source
from litesmith.data._callable import CallableSource
from litesmith.data._csv import csv_source
from litesmith.data._files import FilesSource, kind_of
from litesmith.data._folder import folder_source
from litesmith.data._rows import Array
from litesmith.data._source import Source
from litesmith.errors import DataError, UsageError

SourceLike: TypeAlias = str | os.PathLike[str] | Array | Mapping[str, Array] | Callable[[], Iterable[Any]]

KINDS = "an .npz, .npy or .csv file, a folder of images, .wav or .npy files, or module:function"


def open_source(source: SourceLike, *, inputs: tuple[str, ...] | None, labels: str | None) -> Source:
    """Return the Source for whatever the user gave; ``inputs`` and ``labels`` name arrays of an `.npz`."""
    opened = _open(source, inputs, labels)
    if len(opened) == 0:
        raise DataError(f"{opened.title} has no samples; the first axis of the array counts them and is 0")
    return opened


def arrays_source(arrays: Array | Mapping[str, Array], labels: Any = None) -> ArraySource:
    """Return the Source of arrays in memory; they are not copied."""
    named = {
        str(name): np.asarray(a) for name, a in (arrays.items() if isinstance(arrays, Mapping) else [("x", arrays)])
    }
    for name, array in named.items():
        if array.ndim == 0 or array.dtype.hasobject or array.dtype.names:
            raise DataError(
                f"array {name!r} is {array.dtype} {array.shape}; its first axis must count samples of one plain type"
            )
    if not named:
        raise DataError("there are no arrays; give one for each input of the model")
    return ArraySource(named, name="array", title="the given arrays", inputs=tuple(named), labels=labels)


def _open(source: SourceLike, inputs: tuple[str, ...] | None, labels: str | None) -> Source:
    if isinstance(source, (np.ndarray, Mapping)):
        return arrays_source(source)
    if callable(source):
        return CallableSource(source)
    if not isinstance(source, (str, os.PathLike)):
        raise UsageError(f"a {type(source).__name__} is not a source of samples; give {KINDS}, arrays, or a function")
    path = Path(source)
    try:
        return _open_path(path, str(source), inputs, labels)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error


def _open_path(path: Path, text: str, inputs: tuple[str, ...] | None, labels: str | None) -> Source:
    suffix = path.suffix.lower()
    if not path.exists():
        if ":" in text:
            return CallableSource(text)
        raise DataError(f"{path} does not exist (looked in {Path.cwd()}); give {KINDS}")
    if path.is_dir():
        return folder_source(path)
    if suffix == ".npz":
        return npz_source(path, inputs, labels)
    if suffix == ".npy":
        return npy_source(path, inputs)
    if suffix in (".csv", ".tsv"):
        return csv_source(path)
    if kind_of(path):
        return FilesSource(path.parent, [path.name], title=str(path))
    raise DataError(f"{path}: unknown kind of file; give {KINDS}")
