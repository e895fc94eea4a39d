# SPDX-License-Identifier: Apache-2.0
"""Samples that are files, one each: images, audio or `.npy`, read when they are asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from pathlib import Path

import numpy as np

from litesmith.data import _audio, _images
from litesmith.data._npz import read_npy
from litesmith.data._preprocess import Preprocess
from litesmith.data._rows import Array, Indices
from litesmith.data._source import HASH_BYTES, Source
from litesmith.errors import DataError

_KINDS = {"images": _images.SUFFIXES, "audio files": _audio.SUFFIXES, "arrays": frozenset((".npy",))}


class FilesSource(Source):
    """Files below ``root``, with a label each or none at all."""

    columns = inputs = ("x",)

    def __init__(
        self,
        root: Path,
        paths: Sequence[str],
        *,
        title: str,
        labels: Array | None = None,
        class_names: tuple[str, ...] | None = None,
    ) -> None:
        super().__init__()
        self.name, self.title = root.name, title
        self.labels, self.class_names = labels, class_names
        self._root, self._paths = root, tuple(paths)
        self._kind = self._common_kind()

    def __len__(self) -> int:
        return len(self._paths)

    def chunks(
        self, indices: Indices, columns: tuple[str, ...], preprocess: Preprocess, size: int | None = None
    ) -> Iterator[tuple[Indices, dict[str, Array]]]:
        """Read one file at a time, since each may have its own size."""
        del size
        for row, index in enumerate(indices.tolist()):
            sample = self._read(index, preprocess)[np.newaxis]
            yield indices[row : row + 1], dict.fromkeys(columns, sample)

    def describe(self) -> str:
        """Say the kind of file."""
        return self._kind

    def key(self, index: int) -> str:
        """Return the path, relative to the folder or CSV file."""
        return self._paths[index]

    def where(self, index: int) -> str:
        """Return the position and the path."""
        return f"sample {index} ({self._root / self._paths[index]})"

    def identities(self, indices: Indices) -> list[bytes]:
        """Return the paths: nothing has to be read for them."""
        return [self._paths[index].encode("utf-8", "surrogateescape") for index in indices.tolist()]

    def _read(self, index: int, preprocess: Preprocess) -> Array:
        path = self._root / self._paths[index]
        try:
            if self._kind == "images":
                return _images.read_image(path)
            if self._kind == "audio files":
                return _audio.read_audio(path, preprocess.sample_rate)
            return read_npy(path)
        except (DataError, OSError) as error:
            raise DataError(f"{self.where(index)}: {error}") from error

    def _hash_contents(self, indices: Indices) -> Iterator[bytes]:
        for index in indices.tolist():
            try:
                yield blake2b((self._root / self._paths[index]).read_bytes(), digest_size=HASH_BYTES).digest()
            except OSError as error:
                raise DataError(f"{self.where(index)}: {error}") from error

    def _common_kind(self) -> str:
        first = kind_of(self._paths[0])
        for index, path in enumerate(self._paths):
            kind = kind_of(path)
            if kind is None:
                known = " ".join(sorted(suffix for suffixes in _KINDS.values() for suffix in suffixes))
                raise DataError(f"{self.where(index)}: unknown kind of file; a sample is one of {known}")
            if kind != first:
                raise DataError(
                    f"{self.where(index)} is of another kind ({kind}) than the first one ({first}); separate them"
                )
        assert first is not None
        return first


def kind_of(path: str | Path) -> str | None:
    """Return what kind of sample a file is by its suffix; None for other files."""
    suffix = Path(path).suffix.lower()
    return next((kind for kind, suffixes in _KINDS.items() if suffix in suffixes), None)
