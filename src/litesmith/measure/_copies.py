# SPDX-License-Identifier: Apache-2.0
"""What it costs to put inputs in and to take outputs out, on each path that LiteRT and Litesmith offer, interleaved."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from litesmith.errors import UsageError
from litesmith.machine import MachineFacts, machine_facts
from litesmith.measure._audit import audit_copies
from litesmith.measure._bench import as_file
from litesmith.measure._statistics import Summary, summarize
from litesmith.measure._timing import Timed, measure
from litesmith.model import Model
from litesmith.result import Result
from litesmith.runtime import Session, random_inputs

Array = np.ndarray[Any, Any]
FEED, READ = "feed", "read"
_CALLS_AT_ONCE = 20  # some paths take a fraction of a microsecond, less than the clock itself


@dataclass(frozen=True)
class CopyPath:
    """One way to feed all inputs or to read all outputs; ``samples_us`` are empty where ``problem`` says why not."""

    path: str
    direction: str  # feed or read
    bytes: int
    copies: bool  # False for a view of the model's own memory
    samples_us: tuple[float, ...]
    problem: str = ""

    @property
    def summary(self) -> Summary | None:
        """The quantiles, here in microseconds; None where it could not be measured."""
        return summarize(self.samples_us) if self.samples_us else None


@dataclass(frozen=True)
class Copies(Result, kind="copies", schema=1):
    """What ``copies`` measured: each path, and the latency of the model itself to hold it against."""

    model: str
    threads: int
    latency_ms: float  # the median of running the model, without feeding and reading
    paths: tuple[CopyPath, ...]
    machine: MachineFacts
    command: tuple[str, ...]
    complete: bool = True

    def of(self, direction: str) -> tuple[CopyPath, ...]:
        """Return the paths that feed, or those that read."""
        return tuple(path for path in self.paths if path.direction == direction)

    def share(self, path: CopyPath) -> float:
        """Return what a path takes of the latency of running the model."""
        return path.summary.median / 1000 / self.latency_ms if path.summary else 0.0

    def plot(self) -> Any:
        """Return a Plotly figure: microseconds of each path, feeding and reading."""
        import plotly.graph_objects as go

        figure = go.Figure(layout={"xaxis_title": "µs", "template": "plotly_white", "barmode": "group"})
        for direction in (READ, FEED):
            measured = [(p, p.summary) for p in reversed(self.of(direction)) if p.summary]
            figure.add_bar(
                y=[p.path for p, _ in measured], x=[s.median for _, s in measured], name=direction, orientation="h"
            )
        return figure


@dataclass
class _Way:
    """A path under test: how it feeds and how it reads; None for a call with the reason in ``problem``."""

    path: str
    feed: Callable[[], object] | None
    read: Callable[[], object] | None
    copies: bool = True
    problem: str = ""


def copies(
    model: Model | str | Path,
    *,
    threads: int = 1,
    kernels: str = "delegate",
    seconds: float = 0.5,
    seed: int = 0,
) -> Copies:
    """Measure what feeding all inputs and reading all outputs of a model costs on each path.

    Of a view, feeding is what it takes to get hold of it: the data is then made in place. ``copies.audit`` watches
    one's own code.

    Args:
        model: A Model or the path of a `.tflite`.
        threads: Threads of the CPU kernels, for the latency to compare with.
        kernels: As in ``bench``, for that latency too.
        seconds: Time for each path and direction.
        seed: Of the random inputs.

    Example:
        >>> import litesmith
        >>> result = litesmith.copies(litesmith.samples.model(), seconds=0.05)
        >>> [path.path for path in result.of("feed") if not path.copies]
        ['Interpreter.tensor view', 'Session view']
    """
    if not seconds > 0:
        raise UsageError(f"seconds must be positive, not {seconds}")
    with contextlib.ExitStack() as stack:
        file, name = stack.enter_context(as_file(model))
        session = stack.enter_context(Session(file, threads=threads, kernels=kernels))
        feeds = random_inputs(session, seed)
        session.run(feeds)
        ways = [*_interpreter(file, feeds), _compiled(file, feeds), *_session(session, feeds)]
        running = Timed("run", session.run)
        timed: dict[tuple[str, str], Timed] = {}
        for way in ways:
            for direction, call in ((FEED, way.feed), (READ, way.read)):
                if call is not None:
                    timed[way.path, direction] = Timed(way.path, _repeated(call))
        complete = measure([running, *timed.values()], runs=None, seconds=seconds)
        fed_bytes = sum(array.nbytes for array in session.inputs.values())
        read_bytes = sum(array.nbytes for array in session.outputs.values())
    paths = [
        CopyPath(
            path=way.path,
            direction=direction,
            bytes=size,
            copies=way.copies,
            samples_us=_microseconds(timed.get((way.path, direction))),
            problem=way.problem,
        )
        for direction, size in ((FEED, fed_bytes), (READ, read_bytes))
        for way in ways
        if way.problem or (way.path, direction) in timed
    ]
    return Copies(
        model=name,
        threads=threads,
        latency_ms=summarize(running.samples_ms).median,
        paths=tuple(paths),
        machine=machine_facts(),
        command=tuple(sys.argv),
        complete=complete,
    )


copies.audit = audit_copies  # type: ignore[attr-defined]


def _repeated(call: Callable[[], object]) -> Callable[[], None]:
    def repeat() -> None:
        for _ in range(_CALLS_AT_ONCE):
            call()

    return repeat


def _microseconds(timed: Timed | None) -> tuple[float, ...]:
    return () if timed is None else tuple(1000 * sample / _CALLS_AT_ONCE for sample in timed.samples_ms)


def _interpreter(file: Path, feeds: Mapping[str, Array]) -> list[_Way]:
    """Return the two ways of the wheel's Interpreter: set_tensor and get_tensor, and views."""
    from litesmith.runtime._interpreter import make_interpreter
    from litesmith.runtime._options import CompileOptions
    from litesmith.runtime._source import ModelSource

    try:
        interpreter = make_interpreter(ModelSource.of(file, verify=False), CompileOptions())
        inputs = [detail["index"] for detail in interpreter.get_input_details()]
        outputs = [detail["index"] for detail in interpreter.get_output_details()]
        _resize(interpreter, feeds)
        pairs = list(zip(inputs, feeds.values(), strict=True))
        for index, array in pairs:
            interpreter.set_tensor(index, array)
        interpreter.invoke()
    except (RuntimeError, ValueError) as error:
        problem = str(error).strip().splitlines()[0]
        return [
            _Way(path, None, None, problem=problem)
            for path in ("Interpreter.set/get_tensor", "Interpreter.tensor view")
        ]

    def set_all() -> None:
        for index, array in pairs:
            interpreter.set_tensor(index, array)

    def get_all() -> None:
        for index in outputs:
            interpreter.get_tensor(index)

    def view_inputs() -> None:
        for index in inputs:
            interpreter.tensor(index)()

    def view_outputs() -> None:
        for index in outputs:
            interpreter.tensor(index)()

    return [
        _Way("Interpreter.set/get_tensor", set_all, get_all),
        _Way("Interpreter.tensor view", view_inputs, view_outputs, copies=False),
    ]


def _resize(interpreter: Any, feeds: Mapping[str, Array]) -> None:
    for detail, array in zip(interpreter.get_input_details(), feeds.values(), strict=True):
        if tuple(detail["shape"]) != array.shape:
            interpreter.resize_tensor_input(detail["index"], array.shape)
    interpreter.allocate_tensors()


def _compiled(file: Path, feeds: Mapping[str, Array]) -> _Way:
    """Return the way of the wheel's CompiledModel: buffers that are written and read."""
    name = "CompiledModel buffers"
    try:
        from ai_edge_litert.compiled_model import CompiledModel

        model = CompiledModel.from_file(str(file))
        inputs, outputs = model.create_input_buffers(0), model.create_output_buffers(0)
        arrays = list(feeds.values())
        for buffer, array in zip(inputs, arrays, strict=True):
            buffer.write(array)
        model.run_by_index(0, inputs, outputs)
        shapes = [buffer.get_tensor_details() for buffer in outputs]
        sizes = [(int(np.prod(d["shape"])), np.dtype(d["dtype"])) for d in shapes]
        for buffer, (count, dtype) in zip(outputs, sizes, strict=True):
            buffer.read(count, dtype)
    except (RuntimeError, ValueError, TypeError) as error:
        return _Way(name, None, None, problem=str(error).strip().splitlines()[0])

    def write_all() -> None:
        for buffer, array in zip(inputs, arrays, strict=True):
            buffer.write(array)

    def read_all() -> None:
        for buffer, (count, dtype) in zip(outputs, sizes, strict=True):
            buffer.read(count, dtype)

    return _Way(name, write_all, read_all)


def _session(session: Session, feeds: Mapping[str, Array]) -> list[_Way]:
    """Return the two ways of a Session: arrays of one's own, copied, and views."""

    def copy_in() -> None:
        for name, array in feeds.items():
            session.inputs[name][...] = array

    def copy_out() -> None:
        for array in session.outputs.values():
            array.copy()

    def view_inputs() -> None:
        for name in session.inputs:
            session.inputs[name]

    def view_outputs() -> None:
        for name in session.outputs:
            session.outputs[name]

    return [
        _Way("Session copy", copy_in, copy_out),
        _Way("Session view", view_inputs, view_outputs, copies=False),
    ]
