# SPDX-License-Identifier: Apache-2.0
"""See each call that unmodified code makes to LiteRT: loading, feeding, running and reading a model, and from where.

The methods of the wheel's classes and of Session are wrapped while somebody watches, on the classes themselves, so that
it does not matter when the code imported them; afterwards they are what they were. A call inside a call (a Session that
runs on the wheel's Interpreter) counts once, as the outer one.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

LOAD, FEED, RUN, READ = "load", "feed", "run", "read"
API, LAYOUT, DTYPE, ALIGNMENT = "API", "layout", "dtype", "alignment"
_ALIGNMENT_BYTES = 64  # what LiteRT asks of host memory

Details = tuple[int, str]  # bytes that were copied, and why; (0, "") for none


@dataclass(frozen=True, slots=True)
class Call:
    """One call to LiteRT: what it was for, what it copied and why, when (CLOCK_MONOTONIC, µs), and who called."""

    kind: str
    api: str
    bytes: int
    reason: str
    start_us: float
    end_us: float
    thread: int
    file: str
    line: int
    function: str
    subject: int  # the id of the object that was called
    overhead_us: float  # what it took to see it, behind its end

    @property
    def duration_us(self) -> float:
        """How long it took."""
        return self.end_us - self.start_us


@dataclass(frozen=True, eq=False)
class _Watcher:
    calls: list[Call]
    after_call: Callable[[], object] | None


@dataclass(frozen=True)
class _Hook:
    owner: Any
    method: str
    kind: str
    details: Callable[[tuple[Any, ...], dict[str, Any], Any], Details]
    transparent: bool = False  # calls inside count for themselves; this one is what comes behind the last of them


_watchers: list[_Watcher] = []
_originals: list[tuple[Any, str, Any]] = []
_lock = threading.Lock()
_inside = threading.local()


@contextlib.contextmanager
def watch_calls(after_call: Callable[[], object] | None = None) -> Iterator[list[Call]]:
    """Yield a list that grows by each call that any thread makes to LiteRT inside the block.

    ``after_call`` is called after each of them, off the clock.

    Example:
        >>> from litesmith.runtime import Session
        >>> from litesmith.runtime._selfcheck import TINY_MODEL
        >>> with watch_calls() as calls, Session(TINY_MODEL) as session:
        ...     _ = session.run()
        >>> [call.kind for call in calls]
        ['load', 'run']
    """
    watcher = _Watcher([], after_call)
    with _lock:
        if not _watchers:
            _install()
        _watchers.append(watcher)
    try:
        yield watcher.calls
    finally:
        with _lock:
            _watchers.remove(watcher)
            if not _watchers:
                _uninstall()


def _install() -> None:
    for hook in _hooks():
        original = hook.owner.__dict__[hook.method]
        _originals.append((hook.owner, hook.method, original))
        setattr(hook.owner, hook.method, _wrapped(hook, original))


def _uninstall() -> None:
    while _originals:
        owner, method, original = _originals.pop()
        setattr(owner, method, original)


def _hooks() -> list[_Hook]:
    from ai_edge_litert._pywrap_litert_interpreter_wrapper import InterpreterWrapper
    from ai_edge_litert.compiled_model import CompiledModel
    from ai_edge_litert.interpreter import Interpreter
    from ai_edge_litert.tensor_buffer import TensorBuffer

    from litesmith.runtime import Session

    return [
        _Hook(Interpreter, "__init__", LOAD, _nothing),
        _Hook(InterpreterWrapper, "AllocateTensors", LOAD, _nothing),
        _Hook(InterpreterWrapper, "SetTensor", FEED, _set_tensor),
        _Hook(InterpreterWrapper, "Invoke", RUN, _nothing),
        _Hook(InterpreterWrapper, "GetTensor", READ, _returned),
        _Hook(CompiledModel, "from_file", LOAD, _nothing),
        _Hook(CompiledModel, "from_buffer", LOAD, _nothing),
        _Hook(CompiledModel, "run_by_name", RUN, _nothing),
        _Hook(CompiledModel, "run_by_index", RUN, _nothing),
        _Hook(TensorBuffer, "write", FEED, _written),
        _Hook(TensorBuffer, "read", READ, _returned),
        _Hook(TensorBuffer, "create_from_host_memory", FEED, _host_memory),
        _Hook(Session, "__init__", LOAD, _nothing),
        _Hook(Session, "_feed", FEED, _session_feed),
        _Hook(Session, "_invoke", RUN, _nothing),
        _Hook(Session, "__call__", READ, _session_outputs, transparent=True),
    ]


def _wrapped(hook: _Hook, original: Any) -> Any:
    """Return the method with a clock around it; what it is for is worked out when the clock has stopped."""
    function = original.__func__ if isinstance(original, classmethod) else original
    clock = time.monotonic_ns

    @functools.wraps(function)
    def watched(*arguments: Any, **named: Any) -> Any:
        if getattr(_inside, "call", False):
            return function(*arguments, **named)
        _inside.call = not hook.transparent
        start = clock()
        try:
            result = function(*arguments, **named)
        except BaseException:
            if not hook.transparent:
                _note(hook, start, clock(), (0, ""), arguments[0])
            raise
        else:
            end = clock()
            start = _inside.last_end if hook.transparent else start
            _note(hook, start, end, hook.details(arguments, named, result), arguments[0])
            return result
        finally:
            _inside.call = False

    return classmethod(watched) if isinstance(original, classmethod) else watched


def _note(hook: _Hook, start_ns: int, end_ns: int, details: Details, subject: object) -> None:
    _inside.last_end = end_ns
    caller, api = _caller(sys._getframe(2))  # noqa: SLF001  (the only way to a caller that costs little)
    watchers = list(_watchers)
    for watcher in watchers:
        if watcher.after_call is not None:
            watcher.after_call()
    call = Call(
        kind=hook.kind,
        api=api or f"{hook.owner.__name__}.{hook.method}",
        bytes=details[0],
        reason=details[1],
        start_us=start_ns / 1000,
        end_us=end_ns / 1000,
        thread=threading.get_ident(),
        file=caller.f_code.co_filename,
        line=caller.f_lineno,
        function=caller.f_code.co_name,
        subject=id(subject),
        overhead_us=(time.monotonic_ns() - end_ns) / 1000,
    )
    for watcher in watchers:
        watcher.calls.append(call)


def _caller(frame: FrameType) -> tuple[FrameType, str]:
    """Return the frame of the user's code, and the method of a library class that it called."""
    api = ""
    while frame.f_back is not None and is_library(frame.f_code.co_filename):
        if frame.f_code.co_filename != __file__:
            api = f"{type(frame.f_locals.get('self')).__name__}.{frame.f_code.co_name}"
        frame = frame.f_back
    return frame, api.removeprefix("NoneType.")


@functools.cache
def is_library(file: str) -> bool:
    """Tell whether a file is part of LiteRT's wheel or of Litesmith: not where a user changes something."""
    import ai_edge_litert

    folders = [Path(ai_edge_litert.__path__[0]), Path(__file__).parent.parent]
    return any(file.startswith(f"{folder}{os.sep}") for folder in folders)


def _nothing(_arguments: tuple[Any, ...], _named: dict[str, Any], _result: Any) -> Details:
    return 0, ""


def _returned(_arguments: tuple[Any, ...], _named: dict[str, Any], result: Any) -> Details:
    return int(getattr(result, "nbytes", 0)), API


def _set_tensor(arguments: tuple[Any, ...], named: dict[str, Any], _result: Any) -> Details:
    return _array(arguments[2] if len(arguments) > 2 else named.get("value"))


def _written(arguments: tuple[Any, ...], named: dict[str, Any], _result: Any) -> Details:
    return _array(arguments[1] if len(arguments) > 1 else named.get("data_array"))


def _host_memory(arguments: tuple[Any, ...], named: dict[str, Any], _result: Any) -> Details:
    array = arguments[1] if len(arguments) > 1 else named["data_array"]
    return (array.nbytes, ALIGNMENT) if array.ctypes.data % _ALIGNMENT_BYTES else (0, "")


def _session_feed(arguments: tuple[Any, ...], _named: dict[str, Any], _result: Any) -> Details:
    found = [_array(value) for value in arguments[1].values()]
    reasons = [reason for _, reason in found if reason != API]
    return sum(size for size, _ in found), reasons[0] if reasons else API


def _session_outputs(_arguments: tuple[Any, ...], _named: dict[str, Any], result: Any) -> Details:
    return sum(array.nbytes for array in result.values()), API


def _array(value: Any) -> Details:
    """Return the size of what was fed and why it was copied: once by the interface, or once more before that."""
    array = value if isinstance(value, np.ndarray) else np.asarray(value)
    if not isinstance(value, np.ndarray) or not array.dtype.isnative:
        return array.nbytes, DTYPE
    return array.nbytes, API if array.flags.c_contiguous else LAYOUT
