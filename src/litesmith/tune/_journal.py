# SPDX-License-Identifier: Apache-2.0
"""The journal: a line of JSON for everything that is finished, on disk before the search goes on.

A file is written beside its place, flushed to disk and renamed; then its line is appended and flushed. So whatever
moment the process is killed at, a line stands for something whole; a torn last line is cut off when the journal is
opened again. Where the disk is full, lines wait in memory and are tried again with the next one.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from litesmith.errors import UsageError

NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Journal:
    """Lines of JSON at a path; see the module for what survives."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._waiting: list[bytes] = []
        self.records: list[dict[str, Any]] = []
        content = path.read_bytes() if path.exists() else b""
        whole = content[: content.rfind(b"\n") + 1]
        for number, line in enumerate(whole.splitlines(), 1):
            try:
                self.records.append(json.loads(line))
            except json.JSONDecodeError as error:
                raise UsageError(
                    f"{path}, line {number}, is not what a journal holds ({error}); remove the line or use another folder"
                ) from error
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        os.ftruncate(self._file, len(whole))
        self._end = len(whole)

    def append(self, record: dict[str, Any]) -> bool:
        """Add a record; returns whether it is on disk, False where there is no space for it now."""
        self.records.append(record)
        self._waiting.append(json.dumps(record, ensure_ascii=False).encode("utf-8", "replace") + b"\n")
        return self.flush()

    def flush(self) -> bool:
        """Write what waits; returns whether all of it is on disk."""
        while self._waiting:
            try:
                self._write(self._waiting[0])
            except OSError as error:
                if error.errno not in NO_SPACE:
                    raise
                os.ftruncate(self._file, self._end)  # no half line stays behind
                return False
            del self._waiting[0]
        return True

    def _write(self, line: bytes) -> None:
        view = memoryview(line)
        place = self._end
        while view:
            written = os.pwrite(self._file, view, place)
            place += written
            view = view[written:]
        os.fsync(self._file)
        self._end = place

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that it is there whole or not at all, also after a crash."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with beside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Hold a folder for this process; the system lets go of it when the process ends, however it ends."""
    file = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        raise UsageError(f"another search is writing to {folder}; wait for it, or use another folder") from None
    try:
        yield
    finally:
        os.close(file)
