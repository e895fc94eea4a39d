# SPDX-License-Identifier: Apache-2.0
"""Keep the log lines of one shared library off the terminal, and read them when they explain a failure.

LiteRT writes its log with ``fprintf(stderr, …)`` and exports no way to stop that. Redirecting file descriptor 2
would swallow what everybody else prints meanwhile, so this gives the library, and nobody else, a ``stderr`` of its
own: a shared library reaches that variable through one slot of its global offset table, and the slot can point to
another ``FILE *``. The private one is /dev/null, or a memory stream while somebody wants to read along.

Linux with ELF relocations of the RELA kind (x86-64, AArch64). Elsewhere nothing is changed: the library then logs
as it always did, and nothing can be read along.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import sys
from collections.abc import Iterator
from ctypes import POINTER, c_char_p, c_int, c_int64, c_long, c_size_t, c_uint64, c_void_p
from pathlib import Path

from litesmith.runtime._litert import libc

_DT_STRTAB, _DT_SYMTAB, _DT_RELA, _DT_RELASZ = 5, 6, 7, 8
_GLOB_DAT = {"x86_64": 6, "aarch64": 1025}
_RTLD_DI_LINKMAP = 2


class _Dynamic(ctypes.Structure):
    _fields_ = [("tag", c_int64), ("value", c_uint64)]


class _LinkMap(ctypes.Structure):
    _fields_ = [("base", c_uint64), ("name", c_char_p), ("dynamic", POINTER(_Dynamic))]


class _Relocation(ctypes.Structure):
    _fields_ = [("offset", c_uint64), ("info", c_uint64), ("addend", c_int64)]


class _Symbol(ctypes.Structure):
    _fields_ = [("name", ctypes.c_uint32), ("rest", ctypes.c_uint8 * 20)]


class PrivateStderr:
    """A ``stderr`` that only `library` writes to.

    `active` says whether the library could be given one. `lines` is a context manager that yields a list, which
    holds what the library logged inside the block once the block has ended.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        # LiteRT keeps the address of _stream for as long as the process lives, so neither may ever be freed: the
        # instance must be kept, and the streams are never closed (a thread may be about to write to one).
        self._stream = c_void_p()
        self._memory: _MemoryStream | None = None
        self.active = False
        slot = _stderr_slot(library)
        if slot is not None:
            self._null = _open_null()
            self._stream.value = self._null
            self.active = bool(self._null) and _write_pointer(slot, ctypes.addressof(self._stream))

    @contextlib.contextmanager
    def lines(self) -> Iterator[list[str]]:
        """Collect the lines that the library logs inside the block; one block at a time, which the caller sees to."""
        collected: list[str] = []
        if not self.active:
            yield collected
            return
        self._memory = self._memory or _MemoryStream()
        self._stream.value = self._memory.stream
        try:
            yield collected
        finally:
            self._stream.value = self._null
            collected.extend(self._memory.take().splitlines())


class _MemoryStream:
    """One open_memstream, reused for ever: what was written since the last `take` starts at position 0."""

    def __init__(self) -> None:
        self._buffer, self._size = c_char_p(), c_size_t()
        libc.open_memstream.argtypes, libc.open_memstream.restype = [POINTER(c_char_p), POINTER(c_size_t)], c_void_p
        libc.fflush.argtypes, libc.fflush.restype = [c_void_p], c_int
        libc.ftell.argtypes, libc.ftell.restype = [c_void_p], c_long
        libc.rewind.argtypes, libc.rewind.restype = [c_void_p], None
        self.stream: int = libc.open_memstream(ctypes.byref(self._buffer), ctypes.byref(self._size))

    def take(self) -> str:
        libc.fflush(self.stream)
        text = ctypes.string_at(self._buffer, libc.ftell(self.stream))
        libc.rewind(self.stream)
        return text.decode("utf-8", "replace")


def _open_null() -> int | None:
    libc.fopen.argtypes, libc.fopen.restype = [c_char_p, c_char_p], c_void_p
    stream: int | None = libc.fopen(os.devnull.encode(), b"we")
    return stream


def _stderr_slot(library: ctypes.CDLL) -> int | None:
    """Return the address of the library's pointer to libc's `stderr`, or None where there is none to be found."""
    machine = os.uname().machine if hasattr(os, "uname") else ""
    if sys.platform != "linux" or machine not in _GLOB_DAT:
        return None
    libc.dlinfo.argtypes, libc.dlinfo.restype = [c_void_p, c_int, c_void_p], c_int
    found = POINTER(_LinkMap)()
    if libc.dlinfo(library._handle, _RTLD_DI_LINKMAP, ctypes.byref(found)):  # noqa: SLF001
        return None
    base, table = found.contents.base, _dynamic_table(found.contents)
    if not {_DT_STRTAB, _DT_SYMTAB, _DT_RELA, _DT_RELASZ} <= table.keys():
        return None
    count = table[_DT_RELASZ] // ctypes.sizeof(_Relocation)
    expected = ctypes.addressof(c_void_p.in_dll(libc, "stderr"))
    for relocation in (_Relocation * count).from_address(table[_DT_RELA]):
        if relocation.info & 0xFFFFFFFF != _GLOB_DAT[machine]:
            continue
        symbol = _Symbol.from_address(table[_DT_SYMTAB] + (relocation.info >> 32) * ctypes.sizeof(_Symbol))
        slot: int = base + relocation.offset
        if ctypes.string_at(table[_DT_STRTAB] + symbol.name) == b"stderr":
            # Anything else than libc's own variable there means that this is not understood: leave it alone.
            return slot if c_uint64.from_address(slot).value == expected else None
    return None


def _dynamic_table(link_map: _LinkMap) -> dict[int, int]:
    table: dict[int, int] = {}
    for entry in iter(link_map.dynamic):  # ends with DT_NULL
        if entry.tag == 0:
            break
        table[entry.tag] = entry.value
    for tag in (_DT_STRTAB, _DT_SYMTAB, _DT_RELA):
        if tag in table and table[tag] < link_map.base:  # some libc leave the addresses relative
            table[tag] += link_map.base
    return table


def _write_pointer(slot: int, value: int) -> bool:
    """Write a pointer, on a page that the dynamic linker may have made read-only after relocation."""
    libc.mprotect.argtypes, libc.mprotect.restype = [c_void_p, c_size_t, c_int], c_int
    page = slot - slot % mmap.PAGESIZE
    read_only = not _is_writable(slot)
    if read_only and libc.mprotect(page, mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE):
        return False
    c_uint64.from_address(slot).value = value
    if read_only:
        libc.mprotect(page, mmap.PAGESIZE, mmap.PROT_READ)
    return True


def _is_writable(address: int) -> bool:
    for line in Path("/proc/self/maps").read_text(encoding="ascii", errors="replace").splitlines():
        span, permissions, *_ = line.split()
        start, _, end = span.partition("-")
        if int(start, 16) <= address < int(end, 16):
            return "w" in permissions
    return False
