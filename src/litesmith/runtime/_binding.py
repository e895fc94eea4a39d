# SPDX-License-Identifier: Apache-2.0
"""The arrays of a compiled model, and the buffers by which LiteRT is given them.

Two things that LiteRT's compiled-model API gets wrong are found out here and left to the Interpreter
(`NeedsInterpreter`):

- An output whose shape depends on data. Either LiteRT writes it to memory that the API gives no access to, and
  returns Ok the first time all the same: so an array starts with a known pattern, and one that still has it after
  a run, and another pattern after another run, gives the case away. Or LiteRT writes it to the array, in another
  shape than the array has: so the shapes are compared after each run.
- An output that is also an input gets nothing when it has a buffer of its own. Tensors that are the same in the file
  therefore share one array.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Sequence
from ctypes import c_size_t, c_void_p
from dataclasses import dataclass

from litesmith.runtime import _litert
from litesmith.runtime._arrays import Array, aligned_zeros, dtype_of, is_untouched, mark_untouched
from litesmith.runtime._backend import NeedsInterpreter
from litesmith.runtime._run_each import Runs

SHAPE_FROM_DATA = "the shape of an output is only known during a run"
_NOT_WRITTEN = "an output was not written, maybe because its shape is only known during a run"
_FEW_BYTES = 8  # so few may have the value of the pattern by chance
_SPARE_LAYOUTS = 8  # LiteRT writes past a layout's eight dimensions if a run makes more


@dataclass(frozen=True)
class BorderTensor:
    """An input or output of a signature."""

    name: str
    index: int  # in the subgraph: the same for tensors that are the same
    element_type: int


class Binding:
    """Arrays for the present shapes of one signature. A resize needs a new one.

    Args:
        compiled: The LiteRtCompiledModel.
        signature: Index of the signature.
        inputs: Its inputs.
        outputs: Its outputs.
        views: The arrays of inputs and of outputs by name. Those whose shape has not changed stay: the user may hold
            on to them. The others are replaced, once nothing can fail any more.
        keeps_state: Tells whether the model has resource variables, which a second run would change.
    """

    def __init__(
        self,
        compiled: c_void_p,
        signature: int,
        inputs: list[BorderTensor],
        outputs: list[BorderTensor],
        views: tuple[dict[str, Array], dict[str, Array]],
        keeps_state: Callable[[], bool],
    ) -> None:
        self._litert = _litert.load()
        self._compiled, self._signature, self._keeps_state = compiled, signature, keeps_state
        self._layouts = (_litert.Layout * (len(outputs) + _SPARE_LAYOUTS))()
        shapes = (self._input_shapes(len(inputs)), self._output_shapes(len(outputs)))
        self._shared: dict[int, tuple[Array, c_void_p]] = {}
        with contextlib.ExitStack() as cleanup:
            bound = [
                [self._bind(tensor, shape, kept, cleanup) for tensor, shape in zip(tensors, shapes_, strict=True)]
                for tensors, shapes_, kept in zip((inputs, outputs), shapes, views, strict=True)
            ]
            self._resources = cleanup.pop_all()
        for tensors, pairs, kept in zip((inputs, outputs), bound, views, strict=True):
            kept.clear()
            kept.update((tensor.name, array) for tensor, (array, _) in zip(tensors, pairs, strict=True))
        self._prepare_calls(*bound)
        input_indices = {tensor.index for tensor in inputs}
        self._unproven = [views[1][tensor.name] for tensor in outputs if tensor.index not in input_indices]

    def _prepare_calls(self, inputs: list[tuple[Array, c_void_p]], outputs: list[tuple[Array, c_void_p]]) -> None:
        library, signature = self._litert.library, c_size_t(self._signature)
        arguments: list[object] = [self._compiled, signature]
        for pairs in (inputs, outputs):
            arguments += [c_size_t(len(pairs)), (c_void_p * max(len(pairs), 1))(*(handle.value for _, handle in pairs))]
        self.run_function, self.run_arguments = library.LiteRtRunCompiledModel, tuple(arguments)
        self._read_layouts = library.LiteRtGetCompiledModelOutputTensorLayouts
        self._layout_arguments = (self._compiled, signature, c_size_t(len(outputs)), self._layouts, False)
        self._expected_layouts = bytes(self._layouts)

    def _input_shapes(self, count: int) -> list[tuple[int, ...]]:
        shapes, layout = [], _litert.Layout()
        function = "LiteRtGetCompiledModelInputTensorLayout"
        for position in range(count):
            self._litert.call(function, self._compiled, self._signature, position, ctypes.byref(layout))
            shapes.append(layout.shape)
        return shapes

    def _output_shapes(self, count: int) -> list[tuple[int, ...]]:
        """Let LiteRT allocate its memory, which is when it refuses what it cannot run, and return the shapes."""
        function = "LiteRtGetCompiledModelOutputTensorLayouts"
        self._litert.call(function, self._compiled, self._signature, count, self._layouts, True)
        return [self._layouts[position].shape for position in range(count)]

    def _bind(
        self, tensor: BorderTensor, shape: tuple[int, ...], kept: dict[str, Array], cleanup: contextlib.ExitStack
    ) -> tuple[Array, c_void_p]:
        """Return the array of a tensor, and LiteRT's buffer on it."""
        if any(dimension < 0 for dimension in shape):
            raise NeedsInterpreter(SHAPE_FROM_DATA)
        if 0 in shape:
            raise NeedsInterpreter(f"{tensor.name!r} has no elements")
        if tensor.index in self._shared:
            return self._shared[tensor.index]
        dtype = dtype_of(tensor.element_type)
        assert dtype is not None  # the others are refused when the signature is read
        array = kept.get(tensor.name)
        if array is None or array.shape != shape:
            array = aligned_zeros(shape, dtype)
        ranked = _litert.RankedTensorType(tensor.element_type)
        ranked.layout.rank = len(shape)
        ranked.layout.dimensions[: len(shape)] = shape
        function, address = "LiteRtCreateTensorBufferFromHostMemory", array.ctypes.data
        handle = self._litert.handle(function, ctypes.byref(ranked), address, array.nbytes, None)
        cleanup.callback(self._litert.destroy, "TensorBuffer", handle)
        self._shared[tensor.index] = array, handle
        return array, handle

    def run(self) -> int:
        """Run once and return LiteRT's status."""
        for array in self._unproven:
            mark_untouched(array)
        status: int = self.run_function(*self.run_arguments)
        if status:
            return status
        self._read_layouts(*self._layout_arguments)
        if bytes(self._layouts) != self._expected_layouts:
            raise NeedsInterpreter(SHAPE_FROM_DATA)
        if self._unproven:
            status = self._prove([array for array in self._unproven if is_untouched(array)])
            if not status:
                self._unproven = []
        return status

    def _prove(self, doubtful: list[Array]) -> int:
        """Find out whether outputs that look untouched have the value of the pattern; return LiteRT's status."""
        if not doubtful:
            return 0
        if self._keeps_state():
            if any(array.nbytes > _FEW_BYTES for array in doubtful):
                raise NeedsInterpreter(_NOT_WRITTEN)
            return 0
        for array in doubtful:
            mark_untouched(array, again=True)
        status: int = self.run_function(*self.run_arguments)
        if not status and any(is_untouched(array, again=True) for array in doubtful):
            raise NeedsInterpreter(_NOT_WRITTEN)
        return status

    def runs(self, fed: Sequence[tuple[Array, Array]], kept: Sequence[tuple[Array, Array]]) -> Runs:
        """Return many runs in one, between pairs of an array of the model and the same of all samples."""
        layouts = self._read_layouts, self._layouts, self._expected_layouts
        return Runs((self.run_function, self.run_arguments), layouts, fed, kept)

    def close(self) -> None:
        """Destroy the buffers; the arrays stay."""
        self._resources.close()
