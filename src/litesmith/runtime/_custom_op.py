# SPDX-License-Identifier: Apache-2.0
"""Kernels for custom operators: a Python function or native code under the name that models call it by.

The names are known to the whole process: whatever compiles a model finds its kernels here. Processes that this one
starts learn of them through the environment, as far as they can be loaded again from a module, a file or a library.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import importlib.util
import json
import os
import sys
import threading
import types
from collections.abc import Callable
from ctypes import c_int32, c_int64, c_void_p
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from litesmith.errors import UsageError

K = TypeVar("K")
Shape = tuple[int, ...]

NATIVE = ctypes.CFUNCTYPE(c_int32, c_void_p, c_void_p, c_void_p, c_void_p, c_int64)
"""What native code looks like:

    int32_t kernel(const void* const* inputs, void* const* outputs, const int64_t* const* shapes,
                   const void* options, int64_t options_size);

`shapes` has an entry for each input, then one for each output: the rank, and as many dimensions. It returns 0, or a
number of its own that ends the run with an error."""

_FUNCTION_POINTER: Any = NATIVE.__mro__[1]  # the type of all ctypes functions has no public name
_INHERITED = "LITESMITH_CUSTOM_OPS"


@dataclass(frozen=True)
class Kernel:
    """What runs for a custom operator.

    Attributes:
        name: The operator's name in the model.
        function: A Python function, or native code as a ctypes function.
        native: Which of the two.
        shapes: Returns the shapes of the outputs from those of the inputs; None where they are those in the file.
        origin: What another process can load it from; empty if it lives in this process only.
        owner: What must stay alive as long as the code may run.
    """

    name: str
    function: Callable[..., Any]
    native: bool
    shapes: Callable[..., Any] | None
    origin: str
    owner: object = None


_kernels: dict[str, Kernel] = {}
_lock = threading.RLock()
_state = {"inherited": False}


def custom_op(
    name: str, kernel: Any = None, *, symbol: str | None = None, shapes: Callable[..., Any] | None = None
) -> Any:
    """Register the kernel of a custom operator, for every model that is compiled from here on.

    A Python function gets NumPy views of the inputs in order and writes the result into ``out``, a view of the output
    (a tuple of views where there are several); or it returns the result, which costs a copy. A parameter called
    ``options`` gets the options in the model: what its FlexBuffer holds, or the bytes. The views are only valid during
    the call. An input that the model leaves out is None.

    Native code is a C function ``int32_t f(const void* const* inputs, void* const* outputs, const int64_t* const*
    shapes, const void* options, int64_t options_size)`` that returns 0; ``shapes`` has, for each input and then each
    output, the rank followed by the dimensions. It runs without Python's lock.

    Args:
        name: The operator's name in the model.
        kernel: A Python function, a ctypes function or the address of a C function, a Numba cfunc, or the path of a
            shared library; without it, the returned function is a decorator.
        symbol: The function in the shared library; by default, ``name``.
        shapes: Takes the shapes of the inputs and returns that of the output (a list where there are several), for
            models whose inputs are resized. By default the shapes are those in the file.

    Returns:
        The kernel as it was given, so that it can be used as a decorator.

    Example:
        >>> import numpy as np
        >>> from litesmith.model import Builder
        >>> from litesmith.runtime import Session, forget_custom_op
        >>> @custom_op("Double")
        ... def double(x, *, out):
        ...     np.multiply(x, 2, out=out)
        >>> b = Builder()
        >>> y = b.op("CUSTOM", b.input("x", (3,)), custom_code="Double", outputs=[((3,), "float32")])
        >>> with Session(b.build({"y": y})) as session:
        ...     session(np.array([1, 2, 3], np.float32))["y"].tolist()
        [2.0, 4.0, 6.0]
        >>> forget_custom_op("Double")
    """
    if not isinstance(name, str) or not name:
        raise UsageError(f"a custom operator is registered by its name in the model, not by {name!r}")
    caller = sys._getframe(1)  # noqa: SLF001  (to find the kernel again in another process)

    def register(given: K) -> K:
        _add(_kernel(name, given, symbol, shapes, _origin(caller)))
        return given

    return register if kernel is None else register(kernel)


def forget_custom_op(name: str) -> None:
    """Take a kernel out again; sessions that use it keep it."""
    with _lock:
        kernel = _kernels.pop(name, None)
        if kernel is None:
            raise UsageError(f"there is no kernel for {name!r}; there are: {', '.join(_kernels) or 'none'}")
        sys.modules.pop(
            _module_name(kernel.origin.partition(":")[0]), None
        )  # whoever loads its file again has it again
        _tell_children()


def put_back(kernel: Kernel) -> None:
    """Register a kernel again as it was."""
    _add(kernel)


def custom_ops() -> dict[str, Kernel]:
    """Return the registered kernels by name of the operator."""
    with _lock:
        if not _state["inherited"]:
            _state["inherited"] = True
            for name, origin in json.loads(os.environ.get(_INHERITED, "{}")).items():
                if name not in _kernels:
                    with contextlib.suppress(UsageError):  # the operator is then reported as missing, by its name
                        load_custom_op(f"{name}={origin}")
        return dict(_kernels)


def load_custom_op(spec: str) -> tuple[str, ...]:
    """Register kernels from text, as on the command line, and return the names of the operators.

    Args:
        spec: A module or a Python file, whose decorated functions are registered; with ``:function``, that function;
            or a shared library with ``:symbol``. The operator's name is that of the function or symbol, or what stands
            before a ``=``: ``MyOp=kernels.py:my_op``.
    """
    name, _, place = spec.rpartition("=")
    where, colon, attribute = place.rpartition(":")
    if not colon:
        where, attribute = place, ""
    if not where:
        raise UsageError(f"{spec!r} is no kernel; give module:function, file.py, or library.so:symbol")
    if where.endswith((".so", ".dylib")) or ".so." in where:
        symbol = attribute or name
        if not symbol:
            raise UsageError(f"{spec!r} does not say which function of the library; give {where}:function")
        custom_op(name or symbol, Path(where), symbol=symbol)
        return (name or symbol,)
    before = dict(_kernels)
    module = _import(where)
    if attribute:
        kernel = getattr(module, attribute, None)
        if kernel is None:
            raise UsageError(f"{where} has no {attribute!r} to be the kernel of a custom operator")
        added = _added(before)
        if name or not added:
            chosen = name or attribute
            _add(_kernel(chosen, kernel, None, _shapes_of(kernel), f"{_absolute(where)}:{attribute}"))
            return (chosen,)
        return added
    added = _added(before) or tuple(n for n, k in _kernels.items() if k.origin.partition(":")[0] == _absolute(where))
    if name and name in _kernels:
        return (name,)
    if not added:
        raise UsageError(f"{where} registers no custom operator; decorate a function with litesmith.custom_op(NAME)")
    return added


def _added(before: dict[str, Kernel]) -> tuple[str, ...]:
    return tuple(name for name, kernel in _kernels.items() if before.get(name) is not kernel)


def _shapes_of(kernel: object) -> Callable[..., Any] | None:
    """Return the shape function under which the same kernel was registered by its module, if it was."""
    return next((k.shapes for k in _kernels.values() if k.function is kernel), None)


def _add(kernel: Kernel) -> None:
    with _lock:
        _kernels[kernel.name] = kernel
        _tell_children()


def _tell_children() -> None:
    """Let processes that this one starts load the same kernels."""
    known = {name: kernel.origin for name, kernel in _kernels.items() if kernel.origin}
    if known:
        os.environ[_INHERITED] = json.dumps(known)
    else:
        os.environ.pop(_INHERITED, None)


def _kernel(name: str, given: Any, symbol: str | None, shapes: Callable[..., Any] | None, origin: str) -> Kernel:
    if shapes is not None and not callable(shapes):
        raise UsageError(f"the shapes of {name!r} come from a function of the inputs' shapes, not from {shapes!r}")
    if isinstance(given, (str, os.PathLike)):
        path = Path(given).absolute()
        return Kernel(name, _symbol(path, symbol or name), True, shapes, f"{path}:{symbol or name}")
    if symbol is not None:
        raise UsageError(f"symbol={symbol!r} goes with the path of a shared library, not with {given!r}")
    if isinstance(given, int) and not isinstance(given, bool):
        return Kernel(name, NATIVE(given), True, shapes, "")
    if isinstance(given, _FUNCTION_POINTER):
        address = ctypes.cast(given, c_void_p).value or 0
        return Kernel(name, NATIVE(address), True, shapes, origin, owner=given)
    if isinstance(getattr(given, "address", None), int):  # a Numba cfunc
        return Kernel(name, NATIVE(given.address), True, shapes, origin, owner=given)
    if not callable(given):
        raise UsageError(
            f"the kernel of {name!r} is a function, a C function's address or a shared library, not {given!r}"
        )
    return Kernel(name, given, False, shapes, origin)


def _symbol(path: Path, symbol: str) -> Callable[..., Any]:
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise UsageError(f"{path} cannot be loaded as a shared library: {error}") from None
    try:
        return NATIVE((symbol, library))
    except AttributeError:
        raise UsageError(f'{path} has no function {symbol!r}; in C++ it must be extern "C"') from None


def _origin(caller: types.FrameType) -> str:
    """Return what another process can import to have the caller's code run again, empty where there is nothing."""
    names = caller.f_globals
    if caller.f_code.co_name != "<module>":
        return ""  # a function may have been called in any way
    module = str(names.get("__name__", "__main__"))
    if module in ("__main__", "builtins"):
        return ""
    if module.startswith(_FILE_MODULE):
        return str(names.get("__file__", ""))
    return module if module in sys.modules and getattr(sys.modules[module], "__file__", None) else ""


_FILE_MODULE = "_litesmith_kernels_"


def _module_name(file: str) -> str:
    return _FILE_MODULE + "".join(c if c.isalnum() else "_" for c in file)


def _import(where: str) -> Any:
    try:
        if not where.endswith(".py"):
            if str(Path.cwd()) not in sys.path:
                sys.path.append(str(Path.cwd()))
            return importlib.import_module(where)
        path = Path(where).absolute()
        name = _module_name(str(path))
        if name in sys.modules:
            return sys.modules[name]
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None or not path.is_file():
            raise UsageError(f"there is no file {path} to load kernels from")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(f"{where} cannot be imported for its kernels: {type(error).__name__}: {error}") from error
    return module


def _absolute(where: str) -> str:
    return str(Path(where).absolute()) if where.endswith(".py") else where
