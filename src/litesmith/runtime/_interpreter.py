# SPDX-License-Identifier: Apache-2.0
"""Run a model by the wheel's Interpreter: slower to feed, but it takes every model that LiteRT takes.

For models with strings, with outputs whose shape depends on the data, or with variable tensors, and for a wheel on
which the C API is not trusted. Inputs and outputs are the session's own arrays; each run copies them in and out.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import re
import time
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from litesmith.errors import SessionError
from litesmith.runtime import _litert
from litesmith.runtime._arrays import Array, aligned_zeros, stacked
from litesmith.runtime._backend import BackendName, choose_signature, unique_names
from litesmith.runtime._environment import creation_lock
from litesmith.runtime._explain import explain
from litesmith.runtime._log import PrivateStderr
from litesmith.runtime._native import delegate_path
from litesmith.runtime._options import CompileOptions
from litesmith.runtime._profile import ProfileEvent
from litesmith.runtime._source import ModelSource

_RESOLVERS: dict[str, str] = {
    "delegate": "AUTO",
    "xnnpack": "AUTO",
    "builtin": "BUILTIN_WITHOUT_DEFAULT_DELEGATES",
    "reference": "BUILTIN_REF",
}


@functools.cache
def _interpreter_log() -> PrivateStderr | None:
    """Take the log of the Interpreter's library off the terminal."""
    library = _litert.package_folder() / "libpywrap_litert_common.so"
    return PrivateStderr(ctypes.CDLL(str(library))) if library.is_file() else None


def make_interpreter(source: ModelSource, options: CompileOptions) -> Any:
    """Return the wheel's Interpreter of a model, without log lines on the terminal."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    _interpreter_log()
    where = {"model_path": str(source.path)} if source.path is not None else {"model_content": source.content}
    resolver = OpResolverType[_RESOLVERS[options.kernels]]
    delegates = [load_native(options.threads)] if options.native else None
    return Interpreter(
        **where,
        num_threads=options.threads,
        experimental_op_resolver_type=resolver,
        experimental_delegates=delegates,
    )


def load_native(threads: int) -> Any:
    """Return Litesmith's delegate as the Interpreter takes it."""
    from ai_edge_litert.interpreter import load_delegate

    return load_delegate(delegate_path(), {"num_threads": threads})


@contextlib.contextmanager
def explained(source: ModelSource, doing: str) -> Iterator[None]:
    """Turn what the Interpreter raises inside the block into a SessionError."""
    try:
        yield
    except (RuntimeError, ValueError, TypeError) as error:
        # TFLite strings its sentences together without a space.
        said = re.sub(r"(?=Node number|Encountered unresolved)", "\n", str(error)).splitlines()
        raise SessionError(f"LiteRT cannot {doing} {source}: {explain(said) or type(error).__name__}") from None


class InterpreterBackend:
    """A model in the wheel's Interpreter."""

    name: BackendName = "interpreter"

    def __init__(self, source: ModelSource, signature: str | None, options: CompileOptions) -> None:
        self._source = source
        self.fully_accelerated: bool | None = None
        self.log: tuple[str, ...] = ()
        with creation_lock, explained(source, "compile"):
            import ai_edge_litert.interpreter  # noqa: F401  (its time is not the model's)

            started = time.perf_counter()
            self._interpreter = make_interpreter(source, options)
            _alive.add(self)
            loaded = time.perf_counter()
            self.signatures: tuple[str, ...] = tuple(self._interpreter.get_signature_list())
            self.signature = choose_signature(signature, self.signatures)
            self._choose()
            self._wrapper.AllocateTensors(self._subgraph)
            self.load_ms, self.compile_ms = (loaded - started) * 1e3, (time.perf_counter() - loaded) * 1e3
            self.inputs: dict[str, Array] = {n: _zeros(self._details(i)) for n, i in self._input_indices.items()}
            self.outputs: dict[str, Array] = {n: _zeros(self._details(i)) for n, i in self._output_indices.items()}

    def _choose(self) -> None:
        """Find the subgraph of the signature, and the tensors behind its names."""
        wrapper = self._interpreter._interpreter  # noqa: SLF001  (only the wrapper reaches other subgraphs)
        if self.signature:
            full = self._interpreter._get_full_signature_list()[self.signature]  # noqa: SLF001
            self._subgraph: int = wrapper.GetSubgraphIndexFromSignature(self.signature)
            inputs, outputs = self._borders(wrapper)
            self._input_indices: dict[str, int] = _in_order(full["inputs"], inputs)
            self._output_indices: dict[str, int] = _in_order(full["outputs"], outputs)
        else:
            self._subgraph = 0
            self._input_indices = _by_name(self._interpreter.get_input_details(), "input")
            self._output_indices = _by_name(self._interpreter.get_output_details(), "output")
        self._wrapper = wrapper

    def _borders(self, wrapper: Any) -> tuple[list[int], list[int]]:
        """Return the inputs and outputs of the subgraph, in the order of the file."""
        if self._subgraph == 0:
            return list(wrapper.InputIndices()), list(wrapper.OutputIndices())
        subgraph = self._source.read().subgraphs[self._subgraph]
        return list(subgraph.inputs), list(subgraph.outputs)

    def _details(self, index: int) -> dict[str, Any]:
        details: dict[str, Any] = self._interpreter._get_tensor_details(index, self._subgraph)  # noqa: SLF001
        return details

    def run(self) -> None:
        """Run once from `inputs` to `outputs`."""
        with explained(self._source, "run"):
            self._run()

    def run_each(self, samples: Mapping[str, Array], count: int) -> dict[str, Array]:
        """Run samples that lie one behind the other, each alone; outputs of several shapes become an array of arrays."""
        collected: list[dict[str, Array]] = []
        for sample in range(count):
            self.reset()
            for name, stack in samples.items():
                np.copyto(self.inputs[name], stack[sample])
            self.run()
            collected.append({name: array.copy() for name, array in self.outputs.items()})
        return {name: stacked([outputs[name] for outputs in collected]) for name in self.outputs}

    def _run(self) -> None:
        for name, index in self._input_indices.items():
            self._wrapper.SetTensor(index, self.inputs[name], self._subgraph)
        self._wrapper.Invoke(self._subgraph)
        for name, index in self._output_indices.items():
            result = self._result(index)
            view = self.outputs[name]
            if view.shape != result.shape or view.dtype != result.dtype:
                view = self.outputs[name] = aligned_zeros(result.shape, result.dtype)
            view[...] = result

    def _result(self, index: int) -> Array:
        try:
            result = np.asarray(self._wrapper.GetTensor(index, self._subgraph))
        except ValueError:
            details = self._details(index)
            if 0 not in details["shape"]:
                raise
            return _zeros(details)  # the Interpreter refuses to return a tensor without elements
        return result.astype(object) if result.dtype.kind == "S" else result  # bytes of any length

    def resize(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Give inputs new shapes, and with them new arrays."""
        before = {name: self.inputs[name].shape for name in shapes}
        try:
            self._set_shapes(shapes)
        except SessionError:
            self._set_shapes(before)
            raise
        for views, indices in ((self.inputs, self._input_indices), (self.outputs, self._output_indices)):
            for name, index in indices.items():
                details = self._details(index)
                if views[name].shape != tuple(details["shape"]):
                    views[name] = _zeros(details)

    def _set_shapes(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        with explained(self._source, "resize"):
            for name, shape in shapes.items():
                dimensions = np.array(shape, np.int32)
                self._wrapper.ResizeInputTensor(self._input_indices[name], dimensions, False, self._subgraph)
            self._wrapper.AllocateTensors(self._subgraph)

    def adopt(self, inputs: dict[str, Array], outputs: dict[str, Array]) -> None:
        """Go on in the arrays of another back end, which the user may hold on to."""
        changed = {name: array.shape for name, array in inputs.items() if array.shape != self.inputs[name].shape}
        if changed:
            self.resize(changed)
        self.inputs, self.outputs = inputs, outputs

    def reset(self) -> None:
        """Set variable tensors back to zero."""
        self._interpreter.reset_all_variables()

    def start_profile(self) -> None:
        """Refuse: the Interpreter of the wheel has no profiler."""
        raise NotImplementedError  # the session refuses before

    def stop_profile(self) -> list[ProfileEvent]:
        """Refuse: the Interpreter of the wheel has no profiler."""
        raise NotImplementedError

    def close(self) -> None:
        """Release everything; the arrays stay valid."""
        with creation_lock:
            self._interpreter = self._wrapper = None


def _in_order(named: Mapping[str, int], order: list[int]) -> dict[str, int]:
    """Sort what the Interpreter sorts by name: the order of a model's inputs means something."""
    return dict(sorted(named.items(), key=lambda item: order.index(item[1])))


def _by_name(details: list[dict[str, Any]], kind: str) -> dict[str, int]:
    names = unique_names([str(tensor["name"]) for tensor in details], kind)
    return {name: int(tensor["index"]) for name, tensor in zip(names, details, strict=True)}


def _zeros(details: dict[str, Any]) -> Array:
    dtype = np.dtype(object) if details["dtype"] is np.bytes_ else np.dtype(details["dtype"])
    return aligned_zeros(tuple(int(dimension) for dimension in details["shape"]), dtype)


_alive: weakref.WeakSet[InterpreterBackend] = weakref.WeakSet()


def _leak_in_child() -> None:
    """Never let a forked child end an Interpreter: it would wait for threads that only the parent has."""
    for backend in list(_alive):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(backend._interpreter))  # noqa: SLF001


os.register_at_fork(after_in_child=_leak_in_child)
