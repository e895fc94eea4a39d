# SPDX-License-Identifier: Apache-2.0
"""Prove, once per process and before it is relied on, that the installed wheel is the C API that `_litert` declares.

A wrong declaration does not raise: it reads other memory. So on a wheel that is not in `TESTED_VERSIONS`, or that
fails any check, the C API is not used at all; sessions then run on the wheel's Interpreter, and say so once.
"""

from __future__ import annotations

import base64
import ctypes
import functools
import platform
import warnings
import zlib

import numpy as np

from litesmith.runtime import _litert

# One ADD with the signature "add": y = x + [1, 2, 3], float32, x and y of shape (2, 3).
TINY_MODEL = zlib.decompress(
    base64.b64decode(
        "eNpdUTkOwjAQnByKosSKKFJQ8ABKJOhJhSgoKChoEX5E0vEYnsCLeAEvwOyZAtuT1W5mRrv2CsDlcNr2WKLHAoHyGrxKyiEYCU9GBhQUKRCT"
        "VyOKmrgNZcHqGyjvFqNw1VN57J2Lu/pMFjl/p5S8PhpvbXqgEn1lXK099vQZ6Ayfb0reV7BJmO89nXlOwtX8e9F3EpnbEreb50LrumNS39wA"
        "03stsxrPGwk76+9Futr69Dndo5C637X26DyPd4vKDfOb+PuEv3ty38z+l7KBH4LaHBQ="
    )
)


class LitesmithWarning(UserWarning):
    """Something works, but not in the way that was asked for."""


@functools.cache
def why_not_litert() -> str | None:
    """Return None if the C API of the installed wheel can be relied on, else what speaks against it."""
    version = _litert.litert_version()
    if version not in _litert.TESTED_VERSIONS:
        return f"ai-edge-litert {version} is not tested ({', '.join(_litert.TESTED_VERSIONS)} is)"
    if ctypes.sizeof(ctypes.c_void_p) != 8:
        return f"its C API is only declared for 64-bit machines, not for {platform.machine()}"
    for struct, size in _litert.STRUCT_SIZES.items():
        if ctypes.sizeof(struct) != size:
            return f"the struct {struct.__name__} has {ctypes.sizeof(struct)} bytes here instead of {size}"
    try:
        _litert.load()
    except (OSError, AttributeError) as error:  # no such library, or no such function in it
        return f"its library does not load: {error}"
    return _try_tiny_model()


def litert_is_trusted() -> bool:
    """Tell whether the C API can be relied on; the first time that it cannot, warn."""
    reason = why_not_litert()
    if reason is not None:
        _warn_once(reason)
    return reason is None


@functools.cache
def _warn_once(reason: str) -> None:
    warnings.warn(
        f"LiteRT's C API is not used: {reason}. Sessions run on the Interpreter, without profiling. "
        f"To use the C API: pip install ai-edge-litert=={_litert.TESTED_VERSIONS[-1]}",
        LitesmithWarning,
        stacklevel=6,  # the line that made the session
    )


def _try_tiny_model() -> str | None:
    from litesmith.errors import SessionError
    from litesmith.runtime._backend import NeedsInterpreter
    from litesmith.runtime._compiled import CompiledBackend
    from litesmith.runtime._options import CompileOptions
    from litesmith.runtime._source import ModelSource

    try:
        backend = CompiledBackend(ModelSource(content=TINY_MODEL), "add", CompileOptions())
        try:
            x = np.arange(6, dtype=np.float32).reshape(2, 3)
            backend.inputs["x"][...] = x
            backend.run()
            right = np.array_equal(backend.outputs["y"], x + np.array([1, 2, 3], np.float32))
        finally:
            backend.close()
    except (SessionError, NeedsInterpreter, KeyError, ValueError) as error:
        return f"a small model does not run on it: {error}"
    return None if right else "a small model gives a wrong result on it"
