# SPDX-License-Identifier: Apache-2.0
"""Run a model by LiteRT's compiled-model C API, in the memory of the session's own arrays."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import time
from collections.abc import Callable, Mapping
from ctypes import c_bool, c_int, c_uint32, c_void_p

import numpy as np

from litesmith.errors import SessionError
from litesmith.runtime import _litert
from litesmith.runtime._arrays import Array, dtype_of, element_type_name
from litesmith.runtime._backend import BackendName, NeedsInterpreter, choose_signature
from litesmith.runtime._binding import SHAPE_FROM_DATA, Binding, BorderTensor
from litesmith.runtime._environment import creation_lock, environment, litert_log
from litesmith.runtime._explain import explain
from litesmith.runtime._native import NativeRecorder, has_library, merged
from litesmith.runtime._native_accelerator import set_threads, take_created
from litesmith.runtime._options import ERRORS_TO_LOG, CompileOptions
from litesmith.runtime._profile import ProfileEvent, Recorder
from litesmith.runtime._source import ModelSource

_NO_SIGNATURE = "<placeholder signature>"  # LiteRT's key for a model without one
_PATIENCE_S = 0.05  # between two moments at which Ctrl-C is heard
_NOT_A_MODEL = (_litert.STATUS_FILE_IO, _litert.STATUS_INVALID_FLATBUFFER)
_DYNAMIC_OUTPUT = re.compile(r"allocation_type == kTfLiteArenaRw|Custom allocation is too small for tensor")


class CompiledBackend:
    """A model compiled by LiteRT's C API."""

    name: BackendName = "compiled"

    def __init__(self, source: ModelSource, signature: str | None, options: CompileOptions) -> None:
        self._litert = _litert.load()
        self._source = source
        self._options = options
        self._process = os.getpid()
        self._binding: Binding | None = None
        self._recorder: Recorder | None = None
        self._native: NativeRecorder | None = None
        self._model: c_void_p | None = None
        self._compiled: c_void_p | None = None
        self.inputs: dict[str, Array] = {}
        self.outputs: dict[str, Array] = {}
        with contextlib.ExitStack() as cleanup:
            self.log = self._attempt("compile", lambda: self._open(cleanup, signature))
            self._resources = cleanup.pop_all()

    def _open(self, cleanup: contextlib.ExitStack, signature: str | None) -> None:
        litert = self._litert
        started = time.perf_counter()
        shared = environment(self._options)
        self._model = self._load_model(shared)
        cleanup.callback(litert.destroy, "Model", self._model)
        loaded = time.perf_counter()
        self._compiled = self._compile(cleanup, shared)
        self._choose(signature)
        if self._options.profiling:
            self._recorder = Recorder(self._compiled)
        accelerated = c_bool()
        litert.call("LiteRtCompiledModelIsFullyAccelerated", self._compiled, ctypes.byref(accelerated))
        self.fully_accelerated: bool | None = accelerated.value
        self._bind()
        self.load_ms, self.compile_ms = (loaded - started) * 1e3, (time.perf_counter() - loaded) * 1e3

    def _load_model(self, shared: c_void_p) -> c_void_p:
        if self._source.path is not None:
            return self._litert.handle("LiteRtCreateModelFromFile", shared, os.fsencode(self._source.path))
        self._content = self._source.aligned_content()  # LiteRT reads it for as long as the model lives
        address, size = self._content.ctypes.data, self._content.nbytes
        return self._litert.handle("LiteRtCreateModelFromBuffer", shared, address, size)

    def _compile(self, cleanup: contextlib.ExitStack, shared: c_void_p) -> c_void_p:
        litert = self._litert
        set_threads(self._options.threads)
        options = self._options.make()
        cleanup.callback(litert.destroy, "Options", options)
        try:
            compiled = litert.handle("LiteRtCreateCompiledModel", shared, self._model, options)
        except _litert.StatusError:
            # The reason went down with the half-made model: try again with the reason going to the log.
            options = self._options.make(error_mode=ERRORS_TO_LOG)
            cleanup.callback(litert.destroy, "Options", options)
            compiled = litert.handle("LiteRtCreateCompiledModel", shared, self._model, options)
        cleanup.callback(litert.destroy, "CompiledModel", compiled)
        if self._options.native and self._options.profiling and (delegate := take_created()) is not None:
            self._native = NativeRecorder(delegate)
        return compiled

    def _choose(self, signature: str | None) -> None:
        litert = self._litert
        count = litert.size("LiteRtGetNumModelSignatures", self._model)
        handles = [litert.handle("LiteRtGetModelSignature", self._model, index) for index in range(count)]
        keys = [litert.name("LiteRtGetSignatureKey", handle) for handle in handles]
        self.signatures = () if keys == [_NO_SIGNATURE] else tuple(keys)
        self.signature = choose_signature(signature, self.signatures)
        self._signature_index = keys.index(self.signature) if self.signature else 0
        handle = handles[self._signature_index]
        self._input_tensors = self._tensors(handle, "Input")
        self._output_tensors = self._tensors(handle, "Output")

    def _tensors(self, signature: c_void_p, kind: str) -> list[BorderTensor]:
        litert, tensors = self._litert, []
        for position in range(litert.size(f"LiteRtGetNumSignature{kind}s", signature)):
            name = litert.name(f"LiteRtGetSignature{kind}Name", signature, position)
            tensor = litert.handle(f"LiteRtGetSignature{kind}TensorByIndex", signature, position)
            index, ranked = c_uint32(), _litert.RankedTensorType()
            litert.call("LiteRtGetTensorIndex", tensor, ctypes.byref(index))
            litert.call("LiteRtGetRankedTensorType", tensor, ctypes.byref(ranked))
            if dtype_of(ranked.element_type) is None:
                kind_of_data = element_type_name(ranked.element_type)
                raise NeedsInterpreter(f"the {kind.lower()} {name!r} is {kind_of_data}, which no NumPy array can share")
            tensors.append(BorderTensor(name or f"{kind.lower()}_{position}", index.value, ranked.element_type))
        if len({tensor.name for tensor in tensors}) < len(tensors):
            # LiteRT looks tensors up by name and would take one for the other.
            raise NeedsInterpreter(f"its {kind.lower()}s have no names of their own")
        return tensors

    def _bind(self) -> None:
        """Give LiteRT arrays of the present shapes."""
        assert self._compiled is not None
        views = self.inputs, self.outputs
        borders = self._input_tensors, self._output_tensors
        binding = Binding(self._compiled, self._signature_index, *borders, views, self._source.keeps_state)
        if self._binding is not None:
            self._binding.close()
        self._binding = binding
        self._check_custom_ops()

    def _check_custom_ops(self) -> None:
        for op in self._options.custom_ops:
            op.check()

    def run(self) -> None:
        """Run once from `inputs` to `outputs`."""
        assert self._binding is not None
        try:
            status = self._binding.run()
        finally:
            self._check_custom_ops()  # what a kernel raised says more than what came of it
        if status:
            raise self._failure(_litert.StatusError("LiteRtRunCompiledModel", status), "run", [])
        if self._recorder is not None and self._recorder.running:
            self._recorder.after_run()
            if self._native is not None:
                self._native.after_run()

    def run_each(self, samples: Mapping[str, Array], count: int) -> dict[str, Array]:
        """Run samples that lie one behind the other, each alone, and return the outputs likewise."""
        fed = [(self.inputs[name], stack) for name, stack in samples.items()]
        started = time.perf_counter()
        self._run_sample(fed, 0)  # and with it everything that shows itself in a first run only
        at_once = max(1, int(_PATIENCE_S / (time.perf_counter() - started)))
        stacked = {name: np.empty((count, *array.shape), array.dtype) for name, array in self.outputs.items()}
        kept = [(self.outputs[name], stack) for name, stack in stacked.items()]
        _keep(kept, 0)
        if self._recorder is not None or self._options.custom_ops or not has_library():  # something is done after each
            for sample in range(1, count):
                self._run_sample(fed, sample)
                _keep(kept, sample)
            return stacked
        assert self._binding is not None
        runs = self._binding.runs(fed, kept)
        for begin in range(1, count, at_once):
            end = min(begin + at_once, count)
            done, status = runs(begin, end)
            if status:
                raise self._failure(_litert.StatusError("LiteRtRunCompiledModel", status), "run", [])
            if done < end:
                raise NeedsInterpreter(SHAPE_FROM_DATA)
        return stacked

    def _run_sample(self, fed: list[tuple[Array, Array]], sample: int) -> None:
        for array, stack in fed:
            np.copyto(array, stack[sample])
        self.run()

    def resize(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Give inputs new shapes, and with them new arrays."""
        before = {name: self.inputs[name].shape for name in shapes}
        try:
            self._attempt("resize", lambda: self._set_shapes(shapes))
        except SessionError:
            self._set_shapes(before)
            raise

    def _set_shapes(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        positions = {tensor.name: position for position, tensor in enumerate(self._input_tensors)}
        for name, shape in shapes.items():
            if shape == () == self.inputs[name].shape:
                continue  # LiteRT takes no empty shape, not even the one the tensor has
            self._litert.call(
                "LiteRtCompiledModelResizeInputTensorNonStrict",
                self._compiled,
                self._signature_index,
                positions[name],
                (c_int * len(shape))(*shape),
                len(shape),
            )
        self._bind()

    def reset(self) -> None:
        """Do nothing: the compiled-model API takes no model with variable tensors."""

    def start_profile(self) -> None:
        """Forget all events and record from here on."""
        assert self._recorder is not None  # the session checks
        if self._native is not None:
            self._native.start()
        self._recorder.start()

    def stop_profile(self) -> list[ProfileEvent]:
        """Stop recording and return the events since the start."""
        assert self._recorder is not None
        events = self._recorder.stop()
        return events if self._native is None else merged(events, self._native.stop())

    def close(self) -> None:
        """Release everything; the arrays stay valid."""
        resources = self._resources.pop_all()
        if os.getpid() == self._process:  # a forked child has neither the threads nor the right to end them
            with creation_lock:
                if self._binding is not None:
                    self._binding.close()
                resources.close()

    def _attempt(self, doing: str, action: Callable[[], None]) -> tuple[str, ...]:
        """Do something that LiteRT may refuse, and return what it logged; if it refuses, raise with its reason."""
        refusal = None
        with creation_lock, litert_log().lines() as lines:
            try:
                action()
            except _litert.StatusError as error:
                refusal = error
        if refusal is not None:
            raise self._failure(refusal, doing, lines)
        return tuple(lines)

    def _failure(self, error: _litert.StatusError, doing: str, lines: list[str]) -> Exception:
        """Turn a status into the exception that explains it, with all that LiteRT said."""
        self._check_custom_ops()
        reported = self._take_errors()
        if _DYNAMIC_OUTPUT.search(reported):
            return NeedsInterpreter(SHAPE_FROM_DATA)
        reason = explain([*reported.splitlines(), *lines]) or str(error)
        if self._model is None and (self._source.verified or error.status not in _NOT_A_MODEL):
            return NeedsInterpreter(reason)  # LiteRT's own reader is stricter than that of the Interpreter
        return SessionError(f"LiteRT cannot {doing} {self._source}: {reason}")

    def _take_errors(self) -> str:
        if self._compiled is None:
            return ""
        text = c_void_p()
        if self._litert.library.LiteRtCompiledModelGetErrorMessages(self._compiled, ctypes.byref(text)):
            return ""
        try:
            return ctypes.string_at(text.value or 0).decode("utf-8", "replace") if text.value else ""
        finally:
            _litert.libc.free(text)
            self._litert.library.LiteRtCompiledModelClearErrors(self._compiled)


def _keep(kept: list[tuple[Array, Array]], sample: int) -> None:
    for array, stack in kept:
        stack[sample] = array
