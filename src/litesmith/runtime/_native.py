# SPDX-License-Identifier: Apache-2.0
"""Litesmith's own delegate, liblitesmith_delegate.so: where it is, which models want it, what it recorded.

It runs int16x8, pruned float and hybrid operators (float activations with int8 weights, or with floats where less
precision will do), which LiteRT has no fast kernels for on this kind of machine, and leaves all others to XNNPACK. What
it takes of a graph it decides itself (native/src/core/delegate.cc); here is only decided whether to offer it a graph at
all, so that a model without such operators runs exactly as without it.
"""

from __future__ import annotations

import ctypes
import functools
import json
import sys
from collections.abc import Sequence
from ctypes import c_char_p, c_int, c_int64, c_size_t, c_void_p
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from litesmith.errors import ModelError, SessionError, UsageError
from litesmith.runtime._profile import ProfileEvent

if TYPE_CHECKING:
    from litesmith.model import Model, Subgraph
    from litesmith.runtime._options import CompileOptions
    from litesmith.runtime._source import ModelSource

LITESMITH = "Litesmith"
_FILE = "liblitesmith_delegate.so"
_REMEDY = "install Litesmith on this machine, with a C++17 compiler"
_NODE = "LitesmithDelegate"  # how LiteRT's profiler calls a partition of the delegate
_PRUNED = 0.3  # of the weights are zero: below, no chain of operators can win (native/src/ops/planar_op.h)
_SAMPLE = 65_536  # weights of an operator that are looked at; the delegate looks at all of them
_DRAIN_AT = 500_000  # of 1,048,576 events
REDUCED_PRECISION = "reduced_precision_support"  # the name of LiteRT's metadata entry, e.g. fp16accfp32
# The weights besides relaxed floats that hybrid operators are for: with 8-bit dot products LiteRT is as fast with int8.
_HYBRID_WEIGHTS = {"avx2": ("int8",), "avx512vnni": ()}


def delegate_path() -> str:
    """Return the path of Litesmith's delegate, which any LiteRT program can load.

    Raises:
        SessionError: This installation was made without the C++ kernels, or they do not load on this machine.

    Example:
        >>> import litesmith
        >>> from ai_edge_litert.interpreter import load_delegate
        >>> delegate = load_delegate(litesmith.delegate_path(), {"num_threads": 1})
    """
    found = _find()
    if found is None:
        raise SessionError(f"{_why_none()}; {_REMEDY}")
    return found


def has_library() -> bool:
    """Return whether this installation has the native library, and it loads."""
    return _find() is not None


@functools.cache
def _find() -> str | None:
    """Return the first library that loads here."""
    return next((str(file) for file in _files() if not _why_not(file)), None)


def _files() -> list[Path]:
    """Return the libraries that there are for this version.

    An editable installation has the Python files in one folder and the library in another. A device runs the Litesmith that
    it was sent, maybe without a library, and may have one in an installation of its own.
    """
    import litesmith.runtime

    folders = [Path(folder) for folder in litesmith.runtime.__path__]
    for entry in map(Path, sys.path):
        if (entry / f"litesmith-{litesmith.__version__}.dist-info").is_dir():
            folders.append(entry / "litesmith" / "runtime")
    return [file for folder in dict.fromkeys(folders) if (file := folder / _FILE).is_file()]


@functools.cache
def _why_not(file: Path) -> str:
    """Return why a library cannot be used here, nothing if it can."""
    try:
        _load(str(file))
    except (OSError, AttributeError) as error:  # for another machine or libc, or of another version
        return str(error)
    return ""


def _why_none() -> str:
    """Return why there is no library."""
    for file in _files():
        if problem := _why_not(file):
            return f"the native delegate of this Litesmith does not load here ({problem})"
    return "this Litesmith has no native delegate, because it was installed or sent here without the kernels"


class Event(ctypes.Structure):
    """One run of one operator, as litesmith_delegate_events hands it out."""

    _fields_ = [
        ("start_ns", c_int64),
        ("duration_ns", c_int64),
        ("op", c_char_p),
        ("kernel", c_char_p),
        ("node", c_int64),
    ]


@functools.cache
def library() -> ctypes.CDLL:
    """Load the delegate once per process."""
    return _load(delegate_path())


def _load(path: str) -> ctypes.CDLL:
    loaded = ctypes.CDLL(path)
    types: dict[str, tuple[type | None, list[type]]] = {
        "tflite_plugin_create_delegate": (c_void_p, [c_void_p, c_void_p, c_size_t, c_void_p]),
        "tflite_plugin_destroy_delegate": (None, [c_void_p]),
        "litesmith_delegate_decisions": (c_size_t, [c_void_p, c_char_p, c_size_t]),
        "litesmith_delegate_events": (c_size_t, [c_void_p, c_void_p, c_size_t]),
        "litesmith_delegate_isa": (c_char_p, [c_void_p]),
        "litesmith_delegate_set_profiling": (None, [c_void_p, c_int]),
        "litesmith_run_each": (c_size_t, [c_void_p, c_size_t, c_size_t, c_void_p]),
    }
    for name, (result, arguments) in types.items():
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments
    return loaded


@functools.cache
def native_tier() -> str:
    """Return the instruction set that the delegate uses on this machine; empty if there is no delegate for it."""
    if _find() is None:
        return ""
    native = library()
    delegate = native.tflite_plugin_create_delegate(None, None, 0, None)
    try:
        tier = native.litesmith_delegate_isa(delegate).decode()
    finally:
        native.tflite_plugin_destroy_delegate(delegate)
    return "" if tier == "none" else str(tier)


def decisions(delegate: int) -> list[dict[str, Any]]:
    """Return what a delegate took of the graphs it was offered, and why it left the rest."""
    ask = library().litesmith_delegate_decisions
    buffer = ctypes.create_string_buffer(ask(delegate, None, 0) + 1)
    ask(delegate, buffer, len(buffer))
    return list(json.loads(buffer.value))


def wants_native(model: Model) -> bool:
    """Return whether a model has operators that the delegate is for.

    These have int16 activations, or weights that are mostly zero; and, on processors where that pays, float activations
    with weights of int8, or of floats if the metadata allow less precision.

    Example:
        >>> import litesmith
        >>> wants_native(litesmith.samples.model())
        False
    """
    if any(has_int16(graph) or _has_pruned(graph) for graph in model.subgraphs):
        return True
    return native_tier() in _HYBRID_WEIGHTS and _has_hybrid(model, _HYBRID_WEIGHTS[native_tier()])


def without_native(kernels: str, delegate: str) -> str:
    """Return the kernels that the two options of a user mean together."""
    if delegate not in ("auto", "off"):
        raise UsageError(f"delegate must be auto or off, not {delegate!r}")
    return "xnnpack" if delegate == "off" and kernels == "delegate" else kernels


def with_native(options: CompileOptions, source: ModelSource) -> CompileOptions:
    """Return the options with Litesmith's delegate, if they allow it and the model has operators for it."""
    if options.kernels != "delegate":
        return options
    try:
        wanted = wants_native(source.read()) if source.native is None else source.native
    except ModelError:  # nobody verified it: let LiteRT say what it thinks of it
        return options
    if not wanted:
        return options
    if not has_library():
        import warnings

        from litesmith.runtime._selfcheck import LitesmithWarning

        what = "has int16 or pruned operators, which run on slow kernels"
        warnings.warn(f"{source} {what}: {_why_none()}; {_REMEDY}", LitesmithWarning, stacklevel=4)
        return options
    return replace(options, native=bool(native_tier()))


def has_int16(subgraph: Subgraph) -> bool:
    """Return whether a subgraph has activations of 16 bits."""
    return any(tensor.dtype == "int16" and tensor.is_quantized for tensor in subgraph.tensors)


def _has_pruned(subgraph: Subgraph) -> bool:
    sparse: set[int] = set()
    for operator in subgraph.operators:
        widens = operator.kind == "DEQUANTIZE" and sparse.intersection(operator.inputs)
        if operator.kind == "DENSIFY" or widens:
            sparse.update(operator.outputs)
    for operator in subgraph.operators:
        if operator.kind not in ("CONV_2D", "FULLY_CONNECTED") or len(operator.inputs) < 2:
            continue
        weight = subgraph.tensor(operator.inputs[1])
        if weight is None or weight.dtype != "float32":
            continue
        if operator.inputs[1] in sparse:
            return True
        if weight.is_constant and weight.sparsity is None:
            sample = weight.array().reshape(-1)[:_SAMPLE]
            if sample.size and np.count_nonzero(sample) <= (1 - _PRUNED) * sample.size:
                return True
    return False


def _has_hybrid(model: Model, stored: tuple[str, ...]) -> bool:
    if any(m.name == REDUCED_PRECISION and bytes(m.buffer.data).startswith(b"fp16") for m in model.metadata):
        stored = (*stored, "float16", "float32")
    return any(_has_weights_in(graph, stored) for graph in model.subgraphs)


def _has_weights_in(subgraph: Subgraph, stored: tuple[str, ...]) -> bool:
    origin = {
        operator.outputs[0]: operator.inputs[0] for operator in subgraph.operators if operator.kind == "DEQUANTIZE"
    }
    for operator in subgraph.operators:
        if operator.kind not in ("CONV_2D", "FULLY_CONNECTED") or len(operator.inputs) < 2:
            continue
        value, weight = operator.inputs[0], origin.get(operator.inputs[1], operator.inputs[1])
        tensors = [subgraph.tensor(index) for index in (value, weight)]
        if tensors[0] is None or tensors[1] is None or tensors[0].dtype != "float32":
            continue
        if tensors[1].dtype in stored and tensors[1].is_constant:
            return True
    return False


class NativeRecorder:
    """The clock of one delegate, emptied before its buffer is full."""

    def __init__(self, delegate: int) -> None:
        self._delegate = delegate
        self._events: list[ProfileEvent] = []

    def start(self) -> None:
        """Forget all events and record from here on."""
        self._events = []
        library().litesmith_delegate_set_profiling(self._delegate, 1)

    def after_run(self) -> None:
        """Empty the buffer if it might be too small for another run."""
        if library().litesmith_delegate_events(self._delegate, None, 0) >= _DRAIN_AT:
            self._drain()

    def stop(self) -> list[ProfileEvent]:
        """Stop recording and return the events since the start."""
        library().litesmith_delegate_set_profiling(self._delegate, 0)
        self._drain()
        events, self._events = self._events, []
        return events

    def _drain(self) -> None:
        take = library().litesmith_delegate_events
        raw = (Event * take(self._delegate, None, 0))()
        for event in raw[: take(self._delegate, raw, len(raw))]:
            self._events.append(
                ProfileEvent(
                    tag=event.kernel.decode(),
                    type="delegate_operator",
                    start_us=event.start_ns / 1000,
                    duration_us=event.duration_ns / 1000,
                    node=event.node,
                    subgraph=0,
                    source="delegate",
                )
            )


def merged(events: Sequence[ProfileEvent], native: Sequence[ProfileEvent]) -> list[ProfileEvent]:
    """Put the delegate's operators in the place of the partitions that LiteRT's profiler saw."""
    result: list[ProfileEvent] = []
    waiting = iter(native)
    following = next(waiting, None)
    for event in events:
        if event.type != "operator" or event.tag != _NODE:
            result.append(event)
            continue
        end_us = event.start_us + event.duration_us + 1  # whole µs, rounded down
        while following is not None and following.start_us <= end_us:
            result.append(following)
            following = next(waiting, None)
    return result
