# SPDX-License-Identifier: Apache-2.0
"""Litesmith's delegate as an accelerator of LiteRT's compiled-model API, in front of XNNPACK.

LiteRT applies the accelerators of an environment in the order in which they were registered, and registers XNNPACK
itself when the environment is made (litert/runtime/compiled_model.cc, litert/runtime/accelerators/auto_registration.cc).
Told not to, it leaves that to the caller: first Litesmith's delegate, then XNNPACK by the definition that the library
exports (litert/c/internal/litert_accelerator_def.h). So both take part, and LiteRT's profiler sees both.
"""

from __future__ import annotations

import ctypes
import functools
from ctypes import CFUNCTYPE, POINTER, c_char_p, c_int, c_uint16, c_void_p
from typing import Any

from litesmith.runtime import _litert
from litesmith.runtime._native import LITESMITH, library


class _AcceleratorDefinition(ctypes.Structure):
    """The begin of LiteRtAcceleratorDef, version 1."""

    _fields_ = [
        ("size_bytes", c_uint16),
        ("major_version", c_uint16),
        ("minor_version", c_uint16),
        ("reserved", c_uint16),
        ("get_name", c_void_p),
        ("get_version", c_void_p),
        ("get_hardware_support", c_void_p),
        ("compiles_itself", c_void_p),
        ("create_delegate", c_void_p),
    ]


class _Version(ctypes.Structure):
    _fields_ = [("major", c_int), ("minor", c_int), ("patch", c_int)]


_GET_NAME = CFUNCTYPE(c_int, c_void_p, POINTER(c_char_p))
_GET_VERSION = CFUNCTYPE(c_int, c_void_p, POINTER(_Version))
_GET_HARDWARE = CFUNCTYPE(c_int, c_void_p, POINTER(c_int))
_CREATE = CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_void_p, POINTER(c_void_p))

_name = ctypes.create_string_buffer(LITESMITH.encode())
_threads = [1]  # of the model that is being compiled, under the creation lock
_created: list[int] = []  # delegates made since the last `take_created`, under the creation lock


def _get_name(_accelerator: int, name: Any) -> int:
    name[0] = ctypes.cast(_name, c_char_p)
    return 0


def _get_version(_accelerator: int, version: Any) -> int:
    version[0] = _Version(1, 0, 0)
    return 0


def _get_hardware(_accelerator: int, hardware: Any) -> int:
    hardware[0] = _litert.CPU
    return 0


def _create(_context: int, _environment: int, _accelerator: int, _options: int, wrapper: Any) -> int:
    native = library()
    keys, values = (c_char_p * 1)(b"num_threads"), (c_char_p * 1)(str(_threads[-1]).encode())
    delegate = native.tflite_plugin_create_delegate(keys, values, 1, None)
    _created.append(delegate)
    destroy = ctypes.cast(native.tflite_plugin_destroy_delegate, c_void_p)
    return int(_litert.load().library.LiteRtWrapDelegate(delegate, destroy, wrapper))


# LiteRT keeps these for as long as its environments live, which is as long as the process.
_functions = _GET_NAME(_get_name), _GET_VERSION(_get_version), _GET_HARDWARE(_get_hardware), _CREATE(_create)


@functools.cache
def why_not_registrable() -> str:
    """Return why the installed LiteRT cannot have the delegate as an accelerator; empty if it can."""
    try:
        definition = _xnnpack()
    except ValueError:
        return "the installed LiteRT does not say how to register XNNPACK behind Litesmith's delegate"
    if definition.major_version != 1 or definition.size_bytes < ctypes.sizeof(definition):
        return "the installed LiteRT describes its accelerators in another way than Litesmith knows"
    return ""


def _xnnpack() -> _AcceleratorDefinition:
    exported = POINTER(_AcceleratorDefinition).in_dll(_litert.load().library, "LiteRtStaticLinkedAcceleratorCpuDef")
    return exported.contents


def register_native(environment: c_void_p) -> None:
    """Register Litesmith's delegate with an environment."""
    _register(environment, *_functions)


def register_xnnpack(environment: c_void_p) -> None:
    """Register XNNPACK with an environment that was told not to do so itself."""
    cpu = _xnnpack()
    functions = cpu.get_name, cpu.get_version, cpu.get_hardware_support, cpu.create_delegate, cpu.compiles_itself
    _register(environment, *functions)


def set_threads(threads: int) -> None:
    """Say how many threads the next delegates get. Call it with the creation lock held."""
    _threads[-1] = threads


def take_created() -> int | None:
    """Return the delegate of the model that was compiled last. Call it with the creation lock held."""
    last = _created[-1] if _created else None
    _created.clear()
    return last


def _register(environment: c_void_p, *functions: Any) -> None:
    litert = _litert.load()
    setters = (
        "LiteRtSetAcceleratorGetName",
        "LiteRtSetAcceleratorGetVersion",
        "LiteRtSetAcceleratorGetHardwareSupport",
        "LiteRtSetDelegateFunction",
        "LiteRtSetIsAcceleratorDelegateResponsibleForJitCompilation",
    )
    accelerator = litert.handle("LiteRtCreateAccelerator")
    for setter, function in zip(setters, functions, strict=False):
        litert.call(setter, accelerator, ctypes.cast(function, c_void_p) if function else None)
    litert.call("LiteRtRegisterAccelerator", environment, accelerator, None, None)  # which is LiteRT's from here on
