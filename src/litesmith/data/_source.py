# SPDX-License-Identifier: Apache-2.0
"""What every place that samples come from has in common: samples by position, read in chunks, hashed by content."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

import numpy as np

from litesmith.data._preprocess import Preprocess
from litesmith.data._rows import Array, Indices, RaggedRows, Rows, bytes_of
from litesmith.progress import task

HASH_BYTES = 16


class Source(ABC):
    """Samples by position. A source never changes, so subsets and splits share it.

    Attributes:
        name: short, for keys; ``title``: as the user knows it, for messages.
        columns: every array a sample has; ``inputs``: those that are meant for the model unless it asks by name.
        labels: one for each sample, or None; ``class_names``: what the numbers in ``labels`` mean, or None.
    """

    name: str
    title: str
    columns: tuple[str, ...]
    inputs: tuple[str, ...]
    labels: Array | Rows | RaggedRows | None
    class_names: tuple[str, ...] | None

    def __init__(self) -> None:
        self._hashes: dict[int, bytes] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_hashes": {}}  # cheaper to compute where they are needed than to send along

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def chunks(
        self, indices: Indices, columns: tuple[str, ...], preprocess: Preprocess, size: int | None = None
    ) -> Iterator[tuple[Indices, dict[str, Array]]]:
        """Read samples in the order asked for, as many at a time as have one shape and fit ``size`` or the memory.

        ``preprocess`` is for what only the reader of a file can do, like changing the sample rate.
        """

    @abstractmethod
    def describe(self) -> str:
        """Say in a few words what a sample is."""

    @abstractmethod
    def key(self, index: int) -> str:
        """Return the name of a sample that is the same in every subset."""

    @abstractmethod
    def where(self, index: int) -> str:
        """Return the words that lead a user to the sample."""

    @abstractmethod
    def _hash_contents(self, indices: Indices) -> Iterator[bytes]:
        """Hash what is stored for each sample, before preprocessing and without its label."""

    def identities(self, indices: Indices) -> list[bytes]:
        """Return what tells samples apart cheaply and does not depend on their order."""
        return self.content_hashes(indices)

    def content_hashes(self, indices: Indices) -> list[bytes]:
        """Return the hash of what is stored for each sample; alike samples have the same."""
        missing = np.array([index for index in indices.tolist() if index not in self._hashes], np.int64)
        if len(missing):
            with task(f"Hashing {self.title}", total=len(missing)) as advance:
                for index, digest in zip(missing.tolist(), self._hash_contents(missing), strict=True):
                    self._hashes[index] = digest
                    advance(1)
        return [self._hashes[index] for index in indices.tolist()]


def hash_array(array: Array, *, start: bytes = b"") -> bytes:
    """Hash an array's type, shape and values, after ``start``."""
    digest = blake2b(start, digest_size=HASH_BYTES)
    digest.update(f"{array.dtype.str}{array.shape}".encode())
    digest.update(bytes_of(np.ascontiguousarray(array)))
    return digest.digest()
