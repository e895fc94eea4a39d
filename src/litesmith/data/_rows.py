# SPDX-License-Identifier: Apache-2.0
"""Arrays that stay on disk and are read row by row.

Rows are fetched with ``pread``, not mapped: the memory in use is the rows asked for, a file that shrinks is an error
and not a crash, and threads and forked processes can read at the same time.
"""

from __future__ import annotations

import errno
import math
import os
import shutil
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from litesmith.errors import DataError

Array = NDArray[Any]
Indices = NDArray[np.int64]


class OpenFile:
    """A file descriptor that closes itself when nobody holds it any more."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    @classmethod
    def reading(cls, path: str | os.PathLike[str]) -> OpenFile:
        """Open a file for reading."""
        return cls(os.open(path, os.O_RDONLY | os.O_CLOEXEC))

    @classmethod
    def temporary(cls) -> OpenFile:
        """Create a nameless file in the temporary folder (TMPDIR), which vanishes when it is closed."""
        descriptor, path = tempfile.mkstemp(prefix="litesmith-")
        os.unlink(path)  # noqa: PTH108 - a descriptor and its name, not a path to work with
        return cls(descriptor)

    def append(self, data: memoryview) -> None:
        """Write all of ``data`` at the end."""
        try:
            while data:
                data = data[os.write(self.descriptor, data) :]
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise DataError(
                f"no space left in {tempfile.gettempdir()} for the unpacked samples; free some, or set TMPDIR to a "
                "folder on a bigger disk"
            ) from error

    def __del__(self) -> None:
        os.close(self.descriptor)


class Rows:
    """An array in a file, whose first axis counts samples; ``rows[indices]`` reads those rows.

    ``locate`` opens the file and says where the data begins; it is called at the first read, so that an archive is
    unpacked only for the arrays that are used.
    """

    def __init__(
        self, shape: tuple[int, ...], dtype: np.dtype[Any], locate: Callable[[], tuple[OpenFile, int]]
    ) -> None:
        self.shape, self.dtype = shape, dtype
        self._locate = locate
        self._place: tuple[OpenFile, int] | None = None

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, indices: Indices) -> Array:
        if self._place is None:
            self._place = self._locate()
        file, offset = self._place
        rows = np.empty((len(indices), *self.shape[1:]), self.dtype)
        row_bytes = math.prod(self.shape[1:]) * self.dtype.itemsize
        data = bytes_of(rows)
        for first, last in _runs(indices) if len(data) else ():
            _read(file, data[first * row_bytes : last * row_bytes], offset + int(indices[first]) * row_bytes)
        return rows if rows.dtype.isnative else rows.astype(rows.dtype.newbyteorder("="))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_place": None}  # another process opens the file itself


class RaggedRows:
    """Arrays in a file that differ in shape or type; they can be read one at a time only."""

    def __init__(self, file: OpenFile, places: list[tuple[int, tuple[int, ...], np.dtype[Any]]]) -> None:
        self._file, self._places = file, places

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, indices: Indices) -> Array:
        arrays = np.empty(len(indices), object)
        for row, index in enumerate(indices):
            offset, shape, dtype = self._places[index]
            array = np.empty(shape, dtype)
            _read(self._file, bytes_of(array), offset)
            arrays[row] = array
        return arrays


class Spool:
    """Arrays appended to a temporary file one after another, to be read back in any order."""

    def __init__(self) -> None:
        self._file = OpenFile.temporary()
        self._end = 0
        self._next_check = 0
        self._places: list[tuple[int, tuple[int, ...], np.dtype[Any]]] = []

    def append(self, array: Array) -> None:
        """Add one array."""
        if array.dtype.hasobject:
            raise DataError(f"it holds Python objects ({array.dtype}); give numbers or text of one type")
        array = array.astype(array.dtype.newbyteorder("="), order="C", copy=False)
        self._places.append((self._end, array.shape, array.dtype))
        self._file.append(bytes_of(array))
        self._end += array.nbytes
        if self._end >= self._next_check:
            self._next_check += _CHECK_BYTES
            if shutil.disk_usage(tempfile.gettempdir()).free < _CHECK_BYTES:
                raise DataError(
                    f"the samples fill the disk of {tempfile.gettempdir()} ({self._end >> 20} MB so far): if the "
                    "function never ends, limit it with itertools.islice; else set TMPDIR to a folder on a bigger disk"
                )

    def rows(self) -> Rows | RaggedRows:
        """Return what was appended, as one array where all are alike."""
        if len({place[1:] for place in self._places}) > 1:
            return RaggedRows(self._file, self._places)
        _, shape, dtype = self._places[0]
        return Rows((len(self._places), *shape), dtype, lambda: (self._file, 0))


_CHECK_BYTES = 256 << 20  # look at the free disk each time this much was written


def bytes_of(array: Array) -> memoryview:
    """Return the memory of an array in C order, whatever its type."""
    return array.reshape(-1).view(np.uint8).data if array.nbytes else memoryview(b"")


def _runs(indices: Indices) -> list[tuple[int, int]]:
    """Return where runs of consecutive indices begin and end: each is one read."""
    breaks = np.flatnonzero(np.diff(indices) != 1) + 1
    return list(zip([0, *breaks.tolist()], [*breaks.tolist(), len(indices)], strict=True))


def _read(file: OpenFile, buffer: memoryview, offset: int) -> None:
    done = 0
    while done < len(buffer):
        count = os.preadv(file.descriptor, [buffer[done:]], offset + done)
        if count == 0:
            raise DataError("the file became shorter while it was read; open the dataset again")
        done += count
