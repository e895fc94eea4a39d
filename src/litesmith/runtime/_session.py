# SPDX-License-Identifier: Apache-2.0
"""A model compiled for this machine, ready to run; its inputs and outputs are arrays that LiteRT works in."""

from __future__ import annotations

import os
import threading
import types
import weakref
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from litesmith.errors import SessionError, UsageError
from litesmith.runtime._arrays import Array
from litesmith.runtime._backend import Backend, NeedsInterpreter
from litesmith.runtime._compilation import Compilation
from litesmith.runtime._feeds import fitting
from litesmith.runtime._native import native_tier, with_native, without_native
from litesmith.runtime._options import CompileOptions
from litesmith.runtime._profile import ProfileEvent
from litesmith.runtime._source import ModelLike, ModelSource

if TYPE_CHECKING:
    from typing_extensions import Self


class Session:
    """A model, compiled and ready to run.

    `inputs` and `outputs` map names to 64-byte aligned arrays that LiteRT reads and writes in place: write to
    `session.inputs[name][...]`, call `run()`, read `session.outputs[name]`. The names are those of the signature; of
    a model without one, those of the tensors. Calling the session does all of that with arrays of your own.

    A few models need the wheel's Interpreter: those with strings or int4 at the border, with variable tensors, or
    with outputs whose shape depends on the data. They run the same way, only that each run copies its inputs and
    outputs; an output of changing shape is a new array in `outputs` after a run that changed it.

    A session may be used by several threads, one after the other; different sessions run at the same time. After a
    fork, the child must make its own.

    Args:
        model: A path, the bytes of a `.tflite`, or a Model. A file is mapped: do not overwrite it meanwhile.
        threads: Threads of the CPU kernels.
        signature: The signature to run; the first by default.
        kernels: "delegate" is XNNPACK with LiteRT's built-in kernels for what it leaves, and for int16x8, pruned and
            hybrid operators Litesmith's own delegate; "xnnpack" is without the latter, "builtin" and "reference"
            without both.
        delegate: "off" leaves Litesmith's delegate out, as kernels="xnnpack" does.
        profiling: Whether `start_profile` will be used; costs about 70 MB and a few percent of latency.
        verify: Whether the model is verified first. LiteRT itself does not survive every malformed file.
        backend: "compiled" or "interpreter" insists on one; "auto" takes the Interpreter only where it must.

    Raises:
        ModelError: The file is not a model, or breaks a rule of the format.
        SessionError: LiteRT does not take the model; the message has its reason.

    Example:
        >>> from litesmith.runtime._selfcheck import TINY_MODEL
        >>> with Session(TINY_MODEL) as session:
        ...     session.inputs["x"][...] = 1
        ...     session.run()["y"].tolist()
        [[2.0, 3.0, 4.0], [2.0, 3.0, 4.0]]
    """

    def __init__(
        self,
        model: ModelLike,
        *,
        threads: int = 1,
        signature: str | None = None,
        kernels: str = "delegate",
        delegate: Literal["auto", "off"] = "auto",
        profiling: bool = False,
        verify: bool = True,
        backend: Literal["auto", "compiled", "interpreter"] = "auto",
    ) -> None:
        options = CompileOptions(threads=threads, kernels=without_native(kernels, delegate), profiling=profiling)
        self._start(ModelSource.of(model, verify=verify), signature, options, backend)

    @classmethod
    def _with_options(
        cls, model: ModelLike, options: CompileOptions, *, signature: str | None = None, verify: bool = True
    ) -> Self:
        """Make a session with options that have no argument of their own: the seam for accelerators and custom ops."""
        session = cls.__new__(cls)
        session._start(ModelSource.of(model, verify=verify), signature, options, "auto")  # noqa: SLF001
        return session

    def _start(self, source: ModelSource, signature: str | None, options: CompileOptions, backend: str) -> None:
        if backend not in ("auto", "compiled", "interpreter"):
            raise UsageError(f"backend must be auto, compiled or interpreter, not {backend!r}")
        self._source, self._wanted = source, backend
        self._options = with_native(options, source)
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._closed = self._recording = self._has_run = False
        opened, reason = self._open(signature)
        self._adopt(opened, reason)

    def _open(self, signature: str | None) -> tuple[Backend, str]:
        from litesmith.runtime._compiled import CompiledBackend
        from litesmith.runtime._custom_op_binding import bind_custom_ops
        from litesmith.runtime._native_accelerator import why_not_registrable
        from litesmith.runtime._selfcheck import litert_is_trusted, why_not_litert

        if self._wanted == "interpreter":
            return self._open_interpreter(signature, "it was asked for"), "it was asked for"
        if not litert_is_trusted():
            reason = why_not_litert() or ""
            return self._open_interpreter(signature, reason), reason
        source, self._options = bind_custom_ops(self._source, self._options)
        if self._options.native and (reason := why_not_registrable()):
            return self._open_interpreter(signature, reason), reason
        try:
            return CompiledBackend(source, signature, self._options), ""
        except NeedsInterpreter as turn:
            return self._open_interpreter(signature, str(turn)), str(turn)

    def _open_interpreter(self, signature: str | None, reason: str) -> Backend:
        from litesmith.runtime._interpreter import InterpreterBackend

        if self._wanted == "compiled" or self._options.needs_litert:
            wanted = "profiling" if self._options.profiling else "this"
            raise SessionError(
                f"{wanted} needs LiteRT's compiled-model API, which cannot be used for {self._source}: {reason}"
            )
        return InterpreterBackend(self._source, signature, self._options)

    def _adopt(self, backend: Backend, reason: str) -> None:
        self._backend = backend
        self._inputs = types.MappingProxyType(backend.inputs)
        self._outputs = types.MappingProxyType(backend.outputs)
        self._finalizer = weakref.finalize(self, backend.close)
        self._finalizer.atexit = False  # the process ends anyway; a thread may still be running the model
        self._compilation = Compilation(
            threads=self._options.threads,
            kernels=self._options.kernels,
            delegate=native_tier() if self._options.native else "",
            backend=backend.name,
            reason=reason,
            load_ms=backend.load_ms,
            compile_ms=backend.compile_ms,
            fully_accelerated=backend.fully_accelerated,
            log=backend.log,
            _source=self._source,
        )

    @property
    def inputs(self) -> Mapping[str, Array]:
        """The input arrays by name, in the order of the model; write into them."""
        return self._inputs

    @property
    def outputs(self) -> Mapping[str, Array]:
        """The output arrays by name, in the order of the model; each run overwrites them."""
        return self._outputs

    @property
    def signature(self) -> str | None:
        """The signature that this session runs, or None if the model has none."""
        return self._backend.signature or None

    @property
    def signatures(self) -> tuple[str, ...]:
        """All signatures of the model."""
        return self._backend.signatures

    @property
    def compiled(self) -> Compilation:
        """How the model was compiled."""
        return self._compilation

    def run(self, feeds: Mapping[str, Any] | None = None, /, **named: Any) -> Mapping[str, Array]:
        """Run the model once and return `outputs`: views, which the next run overwrites.

        Args:
            feeds: Arrays by input name, copied into `inputs` first. An input that is not given keeps its content.
            named: The same, for names that Python takes as an argument.

        Raises:
            SessionError: A name, shape or type does not fit, or LiteRT failed.
        """
        self._check_process()
        with self._lock:
            if feeds or named:
                self._feed({**(feeds or {}), **named})
            self._invoke()
            return self._outputs

    def __call__(self, *arrays: Any, **named: Any) -> dict[str, Array]:
        """Run the model on arrays in the order of `inputs`, or by name, and return copies of the outputs.

        Feeding, running and copying are one step as seen from other threads.

        Example:
            >>> from litesmith.runtime._selfcheck import TINY_MODEL
            >>> with Session(TINY_MODEL) as session:
            ...     y = session(np.zeros((2, 3), np.float32))["y"]
            >>> y[0].tolist()
            [1.0, 2.0, 3.0]
        """
        self._check_process()
        if len(arrays) > len(self._inputs):
            raise SessionError(f"the model has {len(self._inputs)} inputs, but {len(arrays)} arrays were given")
        feeds = {**dict(zip(self._inputs, arrays, strict=False)), **named}
        missing = [name for name in self._inputs if name not in feeds]
        if missing:
            raise SessionError(f"no array for the input {_names(missing)}; the inputs are: {_names(self._inputs)}")
        with self._lock:
            self._feed(feeds)
            self._invoke()
            return {name: array.copy() for name, array in self._outputs.items()}

    def run_each(self, samples: Mapping[str, Array]) -> dict[str, Array]:
        """Run the model on each of several samples alone, as fast as the runtime can, and return all outputs stacked.

        Args:
            samples: for every input, the samples along a new first dimension. Variable tensors are reset before each;
                resource variables (VAR_HANDLE) cannot be, and go on from one sample to the next.

        Returns:
            Copies of the outputs, by name, in the order of the samples; an array of arrays where their shapes differ.

        Raises:
            SessionError: A name, shape or type does not fit, or LiteRT failed.

        Example:
            >>> from litesmith.runtime._selfcheck import TINY_MODEL
            >>> with Session(TINY_MODEL) as session:
            ...     session.run_each({"x": np.zeros((10, 2, 3), np.float32)})["y"].shape
            (10, 2, 3)
        """
        self._check_process()
        with self._lock:
            self._check_open()
            stacks = {name: self._fitting_stack(name, samples.get(name)) for name in {**self._inputs, **samples}}
            counts = {len(stack) for stack in stacks.values()}
            if len(counts) > 1 or counts == {0}:
                raise SessionError(
                    f"each input must have as many samples, and at least one; there are {sorted(counts)}"
                )
            count = counts.pop() if counts else 1
            try:
                result = self._backend.run_each(stacks, count)
            except NeedsInterpreter as turn:
                self._turn(turn)
                result = self._backend.run_each(stacks, count)
            self._has_run = True
            return result

    def resize(self, shapes: Mapping[str, Iterable[int]]) -> None:
        """Give inputs new shapes. `inputs` and `outputs` then hold new arrays where a shape changed.

        An input that is not named keeps its shape. If LiteRT refuses, everything stays as it was.

        Example:
            >>> from litesmith.runtime._selfcheck import TINY_MODEL
            >>> with Session(TINY_MODEL) as session:
            ...     session.resize({"x": (5, 3)})
            ...     session.run()["y"].shape
            (5, 3)
        """
        wanted = {name: tuple(int(dimension) for dimension in shape) for name, shape in shapes.items()}
        for name, shape in wanted.items():
            self._check_name(name)
            if any(dimension < 1 for dimension in shape) or len(shape) > _MAX_RANK:
                raise SessionError(
                    f"input {name!r} cannot have the shape {shape}; give at most {_MAX_RANK} dimensions, all positive"
                )
        self._check_process()
        with self._lock:
            self._check_open()
            try:
                self._backend.resize(wanted)
            except NeedsInterpreter as turn:
                self._turn(turn)
                self._backend.resize(wanted)

    def reset(self) -> None:
        """Start a model that keeps a state in variable tensors, such as an LSTM, from zero again.

        Resource variables (VAR_HANDLE) are not reset; open another session to start anew with those.
        """
        self._check_process()
        with self._lock:
            self._check_open()
            self._backend.reset()

    def start_profile(self) -> None:
        """Start to record the profiler's events; those of an earlier recording are forgotten."""
        self._check_process()
        with self._lock:
            self._check_profiling()
            self._backend.start_profile()
            self._recording = True

    def stop_profile(self) -> list[ProfileEvent]:
        """Stop recording and return the events of all runs since `start_profile`, in order."""
        self._check_process()
        with self._lock:
            self._check_profiling()
            if not self._recording:
                raise SessionError("there is no profile to stop; call start_profile() before the runs")
            self._recording = False
            return self._backend.stop_profile()

    def close(self) -> None:
        """Release what LiteRT holds. The arrays of `inputs` and `outputs` stay valid; a second call does nothing."""
        if self._process != os.getpid():
            return
        with self._lock:
            self._closed = True
            self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._closed else self._backend.name
        return f"<Session of {self._source}: {state}, {self._options.threads} thread(s)>"

    def _invoke(self) -> None:
        if self._closed:
            self._check_open()
        try:
            self._backend.run()
        except NeedsInterpreter as turn:
            self._turn(turn)
            self._backend.run()
        self._has_run = True

    def _turn(self, turn: NeedsInterpreter) -> None:
        """Go on with the Interpreter, in the same arrays."""
        from litesmith.runtime._interpreter import InterpreterBackend

        if self._has_run and self._source.keeps_state():
            raise SessionError(
                f"{turn}, and {self._source} keeps state, which would be lost; open it with backend='interpreter'"
            )
        replacement = self._open_interpreter(self._backend.signature or None, str(turn))
        assert isinstance(replacement, InterpreterBackend)
        replacement.adopt(self._backend.inputs, self._backend.outputs)
        self._finalizer()
        self._adopt(replacement, str(turn))

    def _feed(self, feeds: Mapping[str, Any]) -> None:
        """Check everything before the first array is copied."""
        checked = [(self._check_name(name), fitting(name, value, self._inputs[name])) for name, value in feeds.items()]
        for view, value in checked:
            np.copyto(view, value)

    def _fitting_stack(self, name: str, samples: Array | None) -> Array:
        view = self._check_name(name)
        if samples is None:
            raise SessionError(f"no samples for the input {name!r}; the inputs are: {_names(self._inputs)}")
        if samples.shape[1:] != view.shape or samples.dtype != view.dtype:
            raise SessionError(
                f"input {name!r} takes samples of {view.dtype.name} {view.shape}, but the array is {samples.dtype.name} "
                f"{samples.shape}; the first dimension counts the samples"
            )
        return np.ascontiguousarray(samples)

    def _check_name(self, name: str) -> Array:
        if name not in self._inputs:
            raise SessionError(f"the model has no input {name!r}; it has: {_names(self._inputs) or 'none'}")
        return self._inputs[name]

    def _check_process(self) -> None:
        """Before the lock: in a forked child, it may be held by a thread that there is no more."""
        if self._process != os.getpid():
            raise SessionError("this session belongs to the parent process; a forked child must make its own")

    def _check_open(self) -> None:
        if self._closed:
            raise SessionError("this session is closed; make a new one")

    def _check_profiling(self) -> None:
        self._check_open()
        if not self._options.profiling:
            raise SessionError("this session has no profiler; make it with profiling=True")


_MAX_RANK = 8


def _names(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))
