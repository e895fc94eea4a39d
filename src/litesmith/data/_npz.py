# SPDX-License-Identifier: Apache-2.0
"""`.npy` and `.npz` files as arrays that stay on disk.

An uncompressed member of an `.npz` lies in the archive as it is, so its rows are read from there (and its checksum,
which covers the whole array, is not verified). A compressed one is unpacked once, as a stream, into a nameless
temporary file and read from that; datasets of one process share it. The same is done with arrays in Fortran order,
whose rows are scattered. Pickled objects are never loaded.
"""

from __future__ import annotations

import math
import mmap
import os
import struct
import weakref
import zipfile
import zlib
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.lib import format as npy

from litesmith.data._rows import Array, OpenFile, Rows, bytes_of
from litesmith.errors import DataError

_COPY_BYTES = 1 << 20
_unpacked: weakref.WeakValueDictionary[tuple[object, ...], OpenFile] = weakref.WeakValueDictionary()


class Header(NamedTuple):
    """What the head of an `.npy` says, and how many bytes that head takes."""

    shape: tuple[int, ...]
    fortran_order: bool
    dtype: np.dtype[Any]
    size_bytes: int


def open_npy(path: Path) -> Rows:
    """Return the array of an `.npy` file."""
    return _rows(path, None, f"{path}")


def open_npz(path: Path) -> dict[str, Rows]:
    """Return the arrays of an `.npz` file by name; scalars, which cannot hold samples, are left out."""
    with _archive(path) as archive:
        members = [name for name in archive.namelist() if name.endswith(".npy")]
    arrays = {name.removesuffix(".npy"): _rows(path, name, f"{path}: array {name[:-4]!r}") for name in members}
    return {name: rows for name, rows in arrays.items() if rows.shape}


def read_npy(path: Path) -> Array:
    """Read a whole `.npy` file into memory."""
    _header(path, None, f"{path}")  # refuses what cannot be read, in words
    with path.open("rb") as file:
        array: Array = npy.read_array(file, allow_pickle=False)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _rows(path: Path, member: str | None, where: str) -> Rows:
    header = _header(path, member, where)
    return Rows(header.shape, header.dtype, partial(_locate, path, member, header.shape, header.dtype))


def _archive(path: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except (OSError, zipfile.BadZipFile) as error:
        raise DataError(f"{path} cannot be read as .npz: {error}; write it again with numpy.savez") from error


def _header(path: Path, member: str | None, where: str) -> Header:
    try:
        if member is None:
            with path.open("rb") as file:
                return _read_header(file, path.stat().st_size, where)
        with _archive(path) as archive, archive.open(member) as file:
            return _read_header(file, archive.getinfo(member).file_size, where)
    except (OSError, EOFError, KeyError, RuntimeError, NotImplementedError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{where} cannot be read: {error}; write it again with numpy.save or numpy.savez") from error


def _read_header(file: IO[bytes], size_bytes: int, where: str) -> Header:
    try:
        version = npy.read_magic(file)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, fortran_order, dtype = read(file)
    except Exception as error:  # NumPy evaluates the header as Python text: damage can raise nearly anything
        raise DataError(f"{where} is not a NumPy array: {error}; write it again with numpy.save") from error
    if dtype.hasobject:
        raise DataError(
            f"{where} holds pickled Python objects, which are never loaded because they can run code; "
            "save an array of one number type, e.g. numpy.stack(list)"
        )
    if dtype.names or any(length < 0 for length in shape):
        raise DataError(f"{where} is {dtype} {shape}; save a plain array of one number type")
    data_bytes = math.prod(shape) * dtype.itemsize
    if file.tell() + data_bytes > size_bytes:
        raise DataError(
            f"{where} is cut off: {dtype} {shape} needs {data_bytes} bytes, and {max(0, size_bytes - file.tell())} are "
            "there; copy or write it again"
        )
    return Header(shape, fortran_order and len(shape) > 1, dtype, file.tell())


def _locate(path: Path, member: str | None, shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[OpenFile, int]:
    """Open the file whose bytes from the returned offset on are the array, row after row."""
    where = f"{path}" if member is None else f"{path}: array {member.removesuffix('.npy')!r}"
    header = _header(path, member, where)
    if (header.shape, header.dtype) != (shape, dtype):
        raise DataError(f"{where} changed since it was opened; open the dataset again")
    start = 0 if member is None else _stored_at(path, member)
    if start is not None and not header.fortran_order:
        return OpenFile.reading(path), start + header.size_bytes
    stat = path.stat()
    identity = (path.resolve(), member, stat.st_mtime_ns, stat.st_size)
    file = _unpacked.get(identity)
    if file is None:
        file = _unpack(path, member, header, where) if member is not None else OpenFile.reading(path)
        if header.fortran_order:
            file = _row_major(file, 0 if member is not None else header.size_bytes, header)
        _unpacked[identity] = file
    return file, 0


def _stored_at(path: Path, member: str) -> int | None:
    """Return where an uncompressed member's bytes begin in the archive; None for a compressed one."""
    with _archive(path) as archive, path.open("rb") as file:
        info = archive.getinfo(member)
        if info.compress_type != zipfile.ZIP_STORED:
            return None
        # The local header repeats the name and may carry other extra fields than the directory at the end.
        file.seek(info.header_offset)
        name_bytes, extra_bytes = struct.unpack("<26x2H", file.read(30))
        return int(info.header_offset + 30 + name_bytes + extra_bytes)


def _unpack(path: Path, member: str, header: Header, where: str) -> OpenFile:
    file = OpenFile.temporary()
    try:
        with _archive(path) as archive, archive.open(member) as stream:
            stream.read(header.size_bytes)
            while block := stream.read(_COPY_BYTES):
                file.append(memoryview(block))
    except (OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{where} cannot be unpacked: {error}; the file is damaged, copy or write it again") from error
    return file


def _row_major(file: OpenFile, offset: int, header: Header) -> OpenFile:
    rewritten = OpenFile.temporary()
    rows_at_once = max(
        1, _COPY_BYTES * max(1, header.shape[0]) // max(1, math.prod(header.shape) * header.dtype.itemsize)
    )
    if os.fstat(file.descriptor).st_size > offset:
        with mmap.mmap(file.descriptor, 0, access=mmap.ACCESS_READ) as mapped:
            array = np.ndarray(header.shape, header.dtype, mapped, offset, order="F")
            for first in range(0, len(array), rows_at_once):
                block = array[first : first + rows_at_once].copy(order="C")  # a view would keep the map open
                rewritten.append(bytes_of(block))
            del array
    return rewritten
