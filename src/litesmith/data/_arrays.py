# SPDX-License-Identifier: Apache-2.0
"""Samples that are rows of arrays, in memory or on disk: one array for each input of the model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

import numpy as np

from litesmith.data._npz import open_npy, open_npz
from litesmith.data._preprocess import Preprocess
from litesmith.data._rows import Array, Indices, RaggedRows, Rows
from litesmith.data._source import Source, hash_array
from litesmith.errors import DataError, UsageError

Column: TypeAlias = Array | Rows | RaggedRows

LABEL_NAMES = ("y", "label", "labels")
_CHUNK_BYTES = 4 << 20
_CHUNK_ROWS = 32  # preprocessing may make a row many times bigger


class ArraySource(Source):
    """Rows of arrays. ``inputs`` are the arrays meant for the model; the others are there to be asked for by name."""

    def __init__(
        self,
        arrays: Mapping[str, Column],
        *,
        name: str,
        title: str,
        inputs: tuple[str, ...],
        labels: Column | None = None,
        class_names: tuple[str, ...] | None = None,
    ) -> None:
        super().__init__()
        self.name, self.title, self.inputs, self.class_names = name, title, inputs, class_names
        self._length = len(arrays[inputs[0]])
        for other in inputs:
            if len(arrays[other]) != self._length:
                raise DataError(
                    f"{title}: the inputs differ in their number of samples: {inputs[0]!r} has {self._length}, "
                    f"{other!r} has {len(arrays[other])}; the first axis of each must count the samples"
                )
        if labels is not None and len(labels) != self._length:
            raise DataError(
                f"{title}: {self._length} samples but {len(labels)} labels; the first axis of both must count the "
                "samples"
            )
        self._arrays = {other: array for other, array in arrays.items() if len(array) == self._length}
        self.columns = tuple(self._arrays)
        self.labels = _one_number_each(labels)

    def __len__(self) -> int:
        return self._length

    def chunks(
        self, indices: Indices, columns: tuple[str, ...], preprocess: Preprocess, size: int | None = None
    ) -> Iterator[tuple[Indices, dict[str, Array]]]:
        """Read rows, many at a time."""
        del preprocess
        arrays = {name: self._arrays[name] for name in columns}
        if any(isinstance(array, RaggedRows) for array in arrays.values()):
            size = 1
        elif size is None:
            row_bytes = sum(_row_bytes(array) for array in arrays.values())
            size = min(max(1, _CHUNK_BYTES // max(1, row_bytes)), _CHUNK_ROWS)
        for first in range(0, len(indices), size):
            chunk = indices[first : first + size]
            yield chunk, {name: _rows_of(array, chunk) for name, array in arrays.items()}

    def describe(self) -> str:
        """Say the type and shape of each input."""
        return ", ".join(f"{name} {_describe(self._arrays[name])}" for name in self.inputs)

    def key(self, index: int) -> str:
        """Return the row as ``file.npz[17]``."""
        return f"{self.name}[{index}]"

    def where(self, index: int) -> str:
        """Return the row and the file."""
        return f"sample {index} of {self.title}"

    def _hash_contents(self, indices: Indices) -> Iterator[bytes]:
        for _, arrays in self.chunks(indices, tuple(sorted(self.inputs)), Preprocess()):
            for rows in zip(*arrays.values(), strict=True):
                digest = b""
                for row in rows:
                    digest = hash_array(row, start=digest)
                yield digest


def npy_source(path: Path, inputs: tuple[str, ...] | None) -> ArraySource:
    """Open an `.npy` file whose first axis counts samples."""
    if inputs is not None:
        raise UsageError(f"inputs={','.join(inputs)} chooses arrays of an .npz file, and {path} holds only one array")
    rows = open_npy(path)
    if not rows.shape:
        raise DataError(f"{path} holds a single number; its first axis must count the samples")
    return ArraySource({"x": rows}, name=path.name, title=str(path), inputs=("x",))


def npz_source(path: Path, inputs: tuple[str, ...] | None, labels: str | None) -> ArraySource:
    """Open an `.npz` file: its inputs are ``inputs``, or ``x``, or all arrays but the labels."""
    arrays: dict[str, Column] = dict(open_npz(path))
    known = ", ".join(arrays) or "none"
    for name in (*(inputs or ()), *((labels,) if labels else ())):
        if name not in arrays:
            raise DataError(f"{path} has no array {name!r}; its arrays are: {known}")
    if labels is None:
        labels = next((name for name in LABEL_NAMES if name in arrays and name not in (inputs or ())), None)
    label_rows = arrays[labels] if labels is not None else None
    if labels is not None and labels not in (inputs or ()):  # an autoencoder's labels are its inputs
        del arrays[labels]
    class_names = arrays.pop("class_names", None) if "class_names" not in (inputs or ()) else None
    if inputs is None:
        inputs = ("x",) if "x" in arrays else tuple(arrays)
    if not inputs:
        raise DataError(
            f"{path} has no array of samples (arrays: {known}); call it x, or by the name of the model's input"
        )
    return ArraySource(
        arrays,
        name=path.name,
        title=str(path),
        inputs=inputs,
        labels=label_rows,
        class_names=None if class_names is None else tuple(map(str, class_names[np.arange(len(class_names))].tolist())),
    )


def _rows_of(array: Column, indices: Indices) -> Array:
    if isinstance(array, RaggedRows):
        return np.stack(list(array[indices]))
    rows = array[indices]
    return rows if rows.dtype.isnative else rows.astype(rows.dtype.newbyteorder("="))


def _row_bytes(array: Column) -> int:
    if isinstance(array, RaggedRows):
        return 0
    return int(np.prod(array.shape[1:])) * array.dtype.itemsize


def _describe(array: Column) -> str:
    if isinstance(array, RaggedRows):
        return "of several shapes"
    return f"{array.dtype} {'×'.join(map(str, array.shape[1:])) or 'scalar'}"


def _one_number_each(labels: Column | None) -> Column | None:
    """Read one-number labels into memory, also when each stands in an array of its own (shape N×1)."""
    if labels is None or isinstance(labels, RaggedRows):
        return labels
    if len(labels.shape) == 1 or labels.shape[1:] == (1,):
        return labels[np.arange(len(labels))].reshape(len(labels))
    return labels
