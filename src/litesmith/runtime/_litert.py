# SPDX-License-Identifier: Apache-2.0
"""LiteRT's C API as the wheel exports it: the library, its functions' types, its structs, its status codes.

Only declarations: nothing here decides anything. The declarations are those of LiteRT's headers (`litert/c/*.h`)
at the release that `TESTED_VERSIONS` names; `_selfcheck` proves them against the installed library.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
from ctypes import POINTER, c_bool, c_char_p, c_double, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from pathlib import Path

from litesmith.errors import SessionError

TESTED_VERSIONS = ("2.3.0",)

CPU = 1  # LiteRtHwAccelerators

# LiteRtEnvOptionTag
ENV_AUTO_REGISTER_ACCELERATORS = 24
ENV_MIN_LOGGER_SEVERITY = 25
SEVERITY_INFO, SEVERITY_SILENT = 1, 4

# LiteRtAnyType
ANY_INT, ANY_STRING = 2, 8

STATUS_FILE_IO, STATUS_INVALID_FLATBUFFER = 500, 501
_STATUS_NAMES = {
    0: "Ok",
    1: "InvalidArgument",
    2: "MemoryAllocationFailure",
    3: "RuntimeFailure",
    4: "MissingInputTensor",
    5: "Unsupported",
    6: "NotFound",
    7: "TimeoutExpired",
    8: "WrongVersion",
    9: "Unknown",
    10: "AlreadyExists",
    100: "Cancelled",
    500: "FileIO",
    501: "InvalidFlatbuffer",
    502: "DynamicLoading",
    503: "Serialization",
    504: "Compilation",
    1000: "IndexOOB",
    1001: "InvalidIrType",
    1002: "InvalidGraphInvariant",
    1003: "GraphModification",
    1500: "InvalidToolConfig",
    2000: "LegalizeNoMatch",
    2001: "InvalidLegalization",
    3000: "PatternNoMatch",
    3001: "InvalidTransformation",
    4000: "UnsupportedRuntimeVersion",
    4001: "UnsupportedCompilerVersion",
    4002: "IncompatibleByteCodeVersion",
    5000: "UnsupportedOpShapeInferer",
    5001: "ShapeInferenceFailed",
}


class StatusError(Exception):
    """A call of the C API returned a status other than Ok. Internal: becomes a SessionError, or a fallback."""

    def __init__(self, function: str, status: int) -> None:
        super().__init__(f"{function} returned {_STATUS_NAMES.get(status, 'an unknown status')} ({status})")
        self.status = status


class Layout(ctypes.Structure):
    """LiteRtLayout: rank and dimensions."""

    _fields_ = [
        ("rank", c_uint32, 7),
        ("has_strides", c_uint32, 1),
        ("dimensions", c_int32 * 8),
        ("strides", c_uint32 * 8),
    ]

    @property
    def shape(self) -> tuple[int, ...]:
        """The dimensions as a tuple; a dimension that is still unknown is negative."""
        return tuple(self.dimensions[: self.rank])


class RankedTensorType(ctypes.Structure):
    """LiteRtRankedTensorType: element type and layout."""

    _fields_ = [("element_type", c_int), ("layout", Layout)]


class _AnyValue(ctypes.Union):
    _fields_ = [
        ("bool", c_bool),
        ("int", c_int64),
        ("real", c_double),
        ("string", c_char_p),
        ("pointer", c_void_p),
    ]


class Any(ctypes.Structure):
    """LiteRtAny: a tagged value."""

    _fields_ = [("type", c_int), ("value", _AnyValue)]


class EnvironmentOption(ctypes.Structure):
    """LiteRtEnvOption."""

    _fields_ = [("tag", c_int), ("value", Any)]


class _MemoryUsage(ctypes.Structure):
    _fields_ = [("total", c_size_t), ("in_use", c_size_t), ("private", c_size_t)]


class ProfiledEvent(ctypes.Structure):
    """ProfiledEventData."""

    _fields_ = [
        ("tag", c_char_p),
        ("event_type", c_int),
        ("start_us", c_uint64),
        ("duration_us", c_uint64),
        ("begin_memory", _MemoryUsage),
        ("end_memory", _MemoryUsage),
        ("metadata1", c_uint64),
        ("metadata2", c_uint64),
        ("source", c_int),
    ]


STRUCT_SIZES: dict[type[ctypes.Structure], int] = {
    Layout: 68,
    RankedTensorType: 72,
    Any: 16,
    EnvironmentOption: 24,
    ProfiledEvent: 104,
}

_HANDLE_OUT = POINTER(c_void_p)
_NAME_OUT = POINTER(c_char_p)
_SIZE_OUT = POINTER(c_size_t)

# Functions that return a LiteRtStatus, by name, with the types of their arguments.
_FUNCTIONS: dict[str, list[type]] = {
    "LiteRtCreateEnvironment": [c_int, POINTER(EnvironmentOption), _HANDLE_OUT],
    "LiteRtCreateModelFromFile": [c_void_p, c_char_p, _HANDLE_OUT],
    "LiteRtCreateModelFromBuffer": [c_void_p, c_void_p, c_size_t, _HANDLE_OUT],
    "LiteRtGetNumModelSignatures": [c_void_p, _SIZE_OUT],
    "LiteRtGetModelSignature": [c_void_p, c_size_t, _HANDLE_OUT],
    "LiteRtGetSignatureKey": [c_void_p, _NAME_OUT],
    "LiteRtGetNumSignatureInputs": [c_void_p, _SIZE_OUT],
    "LiteRtGetNumSignatureOutputs": [c_void_p, _SIZE_OUT],
    "LiteRtGetSignatureInputName": [c_void_p, c_size_t, _NAME_OUT],
    "LiteRtGetSignatureOutputName": [c_void_p, c_size_t, _NAME_OUT],
    "LiteRtGetSignatureInputTensorByIndex": [c_void_p, c_size_t, _HANDLE_OUT],
    "LiteRtGetSignatureOutputTensorByIndex": [c_void_p, c_size_t, _HANDLE_OUT],
    "LiteRtGetTensorIndex": [c_void_p, POINTER(c_uint32)],
    "LiteRtGetRankedTensorType": [c_void_p, POINTER(RankedTensorType)],
    "LiteRtCreateOptions": [_HANDLE_OUT],
    "LiteRtSetOptionsHardwareAccelerators": [c_void_p, c_int],
    "LiteRtCreateOpaqueOptions": [c_char_p, c_void_p, c_void_p, _HANDLE_OUT],
    "LiteRtAddOpaqueOptions": [c_void_p, c_void_p],
    "LiteRtAddCustomOpKernelOption": [c_void_p, c_char_p, c_int, c_void_p, c_void_p],
    "LiteRtCreateCompiledModel": [c_void_p, c_void_p, c_void_p, _HANDLE_OUT],
    "LiteRtCompiledModelIsFullyAccelerated": [c_void_p, POINTER(c_bool)],
    "LiteRtCompiledModelIsNonCpuFullyAccelerated": [c_void_p, POINTER(c_bool)],
    "LiteRtGetCompiledModelInputTensorLayout": [c_void_p, c_size_t, c_size_t, POINTER(Layout)],
    "LiteRtGetCompiledModelOutputTensorLayouts": [c_void_p, c_size_t, c_size_t, POINTER(Layout), c_bool],
    "LiteRtCompiledModelResizeInputTensorNonStrict": [c_void_p, c_size_t, c_size_t, POINTER(c_int), c_size_t],
    "LiteRtRunCompiledModel": [c_void_p, c_size_t, c_size_t, _HANDLE_OUT, c_size_t, _HANDLE_OUT],
    "LiteRtCompiledModelGetErrorMessages": [c_void_p, _HANDLE_OUT],
    "LiteRtCompiledModelClearErrors": [c_void_p],
    "LiteRtCreateTensorBufferFromHostMemory": [POINTER(RankedTensorType), c_void_p, c_size_t, c_void_p, _HANDLE_OUT],
    "LiteRtLockTensorBuffer": [c_void_p, _HANDLE_OUT, c_int],
    "LiteRtUnlockTensorBuffer": [c_void_p],
    "LiteRtCreateAccelerator": [_HANDLE_OUT],
    "LiteRtSetAcceleratorGetName": [c_void_p, c_void_p],
    "LiteRtSetAcceleratorGetVersion": [c_void_p, c_void_p],
    "LiteRtSetAcceleratorGetHardwareSupport": [c_void_p, c_void_p],
    "LiteRtSetDelegateFunction": [c_void_p, c_void_p],
    "LiteRtSetIsAcceleratorDelegateResponsibleForJitCompilation": [c_void_p, c_void_p],
    "LiteRtRegisterAccelerator": [c_void_p, c_void_p, c_void_p, c_void_p],
    "LiteRtWrapDelegate": [c_void_p, c_void_p, _HANDLE_OUT],
    "LiteRtCompiledModelGetProfiler": [c_void_p, _HANDLE_OUT],
    "LiteRtStartProfiler": [c_void_p],
    "LiteRtStopProfiler": [c_void_p],
    "LiteRtResetProfiler": [c_void_p],
    "LiteRtGetNumProfilerEvents": [c_void_p, POINTER(c_int)],
    "LiteRtGetProfilerEvents": [c_void_p, c_int, POINTER(ProfiledEvent)],
}
_DESTRUCTORS = (
    "LiteRtDestroyEnvironment",
    "LiteRtDestroyModel",
    "LiteRtDestroyOptions",
    "LiteRtDestroyCompiledModel",
    "LiteRtDestroyTensorBuffer",
)


class LiteRt:
    """The loaded library. `call` raises StatusError; `handle`, `name` and `size` also return the one output."""

    def __init__(self, path: Path) -> None:
        self.library = ctypes.CDLL(str(path), mode=ctypes.RTLD_LOCAL)
        for name, argument_types in _FUNCTIONS.items():
            function = getattr(self.library, name)
            function.argtypes, function.restype = argument_types, c_int
        for name in _DESTRUCTORS:
            function = getattr(self.library, name)
            function.argtypes, function.restype = [c_void_p], None

    def call(self, function: str, *arguments: object) -> None:
        """Call `function` and raise StatusError unless it returns Ok."""
        status = getattr(self.library, function)(*arguments)
        if status:
            raise StatusError(function, status)

    def handle(self, function: str, *arguments: object) -> c_void_p:
        """Call `function`, whose last argument is an output handle, and return that handle."""
        result = c_void_p()
        self.call(function, *arguments, ctypes.byref(result))
        return result

    def name(self, function: str, *arguments: object) -> str:
        """Call `function`, whose last argument is an output string, and return that string."""
        result = c_char_p()
        self.call(function, *arguments, ctypes.byref(result))
        return (result.value or b"").decode("utf-8", "replace")

    def size(self, function: str, *arguments: object) -> int:
        """Call `function`, whose last argument is an output size, and return that size."""
        result = c_size_t()
        self.call(function, *arguments, ctypes.byref(result))
        return result.value

    def destroy(self, kind: str, handle: c_void_p | None) -> None:
        """Destroy a handle of `kind`, e.g. "Model"; a null handle is left alone."""
        if handle:
            getattr(self.library, f"LiteRtDestroy{kind}")(handle)


def package_folder() -> Path:
    """Return the folder of the installed wheel."""
    spec = importlib.util.find_spec("ai_edge_litert")
    if spec is None or not spec.submodule_search_locations:
        raise SessionError("the LiteRT runtime is not installed; install it with: pip install ai-edge-litert==2.3.0")
    return Path(spec.submodule_search_locations[0])


@functools.cache
def litert_version() -> str:
    """Return the version of the installed LiteRT wheel.

    Example:
        >>> litert_version().count(".") >= 2
        True
    """
    import importlib.metadata  # 20 ms that only a first session pays

    for distribution in ("ai-edge-litert", "ai-edge-litert-nightly"):
        try:
            return importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            continue
    package_folder()
    return "unknown"


@functools.cache
def load() -> LiteRt:
    """Load the wheel's libLiteRt.so once per process."""
    return LiteRt(package_folder() / "libLiteRt.so")


libc = ctypes.CDLL(None)
libc.free.argtypes, libc.free.restype = [c_void_p], None
libc.strdup.argtypes, libc.strdup.restype = [c_char_p], c_void_p
FREE = ctypes.cast(libc.free, c_void_p)
