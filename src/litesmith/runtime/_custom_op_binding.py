# SPDX-License-Identifier: Apache-2.0
"""Put registered kernels under the custom operators of one model, in the form that LiteRT takes them.

LiteRT knows kernels by name only, and neither tells them which operator they run for nor looks at what they return
(`litert/runtime/custom_op_dispatcher.cc`); and it refuses constants that are not 64-byte aligned, as they are in no
file. So the model that LiteRT gets is a copy in which each operator with a kernel has a name of its own and none of
its constant inputs: those the kernel gets from the model here. What a kernel raises is kept until LiteRT has returned.
"""

from __future__ import annotations

import contextlib
import ctypes
import inspect
import traceback
from collections.abc import Callable, Sequence
from ctypes import CFUNCTYPE, POINTER, c_int, c_int64, c_size_t, c_void_p
from dataclasses import replace
from typing import Any

import numpy as np

from litesmith.errors import LitesmithError, ModelError, SessionError
from litesmith.model import ABSENT, BITS, Model, Operator, Subgraph, Tensor, numpy_dtype
from litesmith.model._flexbuffer import decode_flexbuffer
from litesmith.runtime import _litert
from litesmith.runtime._arrays import Array
from litesmith.runtime._custom_op import Kernel, Shape, custom_ops
from litesmith.runtime._options import CompileOptions, CustomOp
from litesmith.runtime._source import ModelSource

_INIT = CFUNCTYPE(c_int, c_void_p, c_void_p, c_size_t)
_LAYOUTS = CFUNCTYPE(c_int, c_void_p, c_size_t, POINTER(_litert.Layout), c_size_t, POINTER(_litert.Layout))
_RUN = CFUNCTYPE(c_int, c_void_p, c_size_t, POINTER(c_void_p), c_size_t, POINTER(c_void_p))
_DESTROY = CFUNCTYPE(c_int, c_void_p)
_MAX_RANK = 8
_READ, _WRITE = 0, 1  # LiteRtTensorBufferLockMode


class _KernelStruct(ctypes.Structure):
    """LiteRtCustomOpKernel."""

    _fields_ = [("init", _INIT), ("layouts", _LAYOUTS), ("run", _RUN), ("destroy", _DESTROY)]


def bind_custom_ops(source: ModelSource, options: CompileOptions) -> tuple[ModelSource, CompileOptions]:
    """Return the model and the options with the registered kernels in place; unchanged where the model needs none."""
    known = custom_ops()
    if not known:
        return source, options
    model = source.read()
    if not any(operator.kind == "CUSTOM" and operator.custom_code in known for _, _, operator in model.operators()):
        return source, options
    bound: list[CustomOp] = []
    subgraphs = tuple(_bind(index, graph, known, bound) for index, graph in enumerate(model.subgraphs))
    content = replace(model, subgraphs=subgraphs).to_bytes()
    named = ModelSource(content=content, verified=source.verified, name=str(source))
    return named, replace(options, custom_ops=(*options.custom_ops, *bound))


def kernels_of(model: Model) -> tuple[str, ...]:
    """Return the names of the model's custom operators that have a registered kernel."""
    known = custom_ops()
    return tuple(dict.fromkeys(op.custom_code for _, _, op in model.operators() if op.custom_code in known))


def kernels_that_stay(model: Model) -> tuple[str, ...]:
    """Return the names of the model's custom operators whose kernels no other process can load."""
    known = custom_ops()
    return tuple(name for name in kernels_of(model) if not known[name].origin)


def _bind(index: int, graph: Subgraph, known: dict[str, Kernel], bound: list[CustomOp]) -> Subgraph:
    operators = list(graph.operators)
    for position, operator in enumerate(operators):
        if operator.kind != "CUSTOM" or operator.custom_code not in known:
            continue
        taken = {op.name for op in bound}
        label = (
            operator.custom_code if operator.custom_code not in taken else f"{operator.custom_code}@{index}.{position}"
        )
        if label in taken:
            raise ModelError(f"custom operators are called both {operator.custom_code!r} and {label!r}; rename one")
        kernel = _BoundKernel(known[operator.custom_code], graph, position)
        bound.append(CustomOp(label, operator.version, kernel.struct, kernel.check))
        inputs = tuple(graph_index for graph_index in operator.inputs if _is_fed(graph, graph_index))
        operators[position] = replace(operator, custom_code=label, inputs=inputs)
    return replace(graph, operators=tuple(operators))


def _is_fed(graph: Subgraph, index: int) -> bool:
    return index != ABSENT and not graph.tensors[index].is_constant


class _BoundKernel:
    """The kernel of one operator: views for its tensors, and what went wrong."""

    def __init__(self, kernel: Kernel, graph: Subgraph, position: int) -> None:
        operator = graph.operators[position]
        self._kernel = kernel
        self._where = f"the custom operator {kernel.name!r} (operator {position})"
        self._tensors = [graph.tensor(index) for index in (*operator.inputs, *operator.outputs)]
        self._count = len(operator.inputs)
        self._fed = [i for i, index in enumerate(operator.inputs) if _is_fed(graph, index)]
        for tensor in self._tensors:
            self._check_type(tensor)
        self._views: list[Array | None] = [_constant(t) if t and t.is_constant else None for t in self._tensors]
        self._shapes: list[Shape] = [t.shape if t else () for t in self._tensors]
        self._dtypes = [numpy_dtype(t.dtype) if t else np.dtype(np.uint8) for t in self._tensors]
        self._addresses: list[int | None] = [None] * len(self._tensors)
        self._order = [(i, _READ) for i in self._fed] + [(i, _WRITE) for i in range(self._count, len(self._tensors))]
        self._got = c_void_p()
        self._got_pointer = ctypes.byref(self._got)
        self._failure: BaseException | None = None
        self._options = operator.custom_options or b""
        self._call = self._native_call() if kernel.native else self._python_call(operator)
        library = _litert.load().library
        self._lock, self._unlock = library.LiteRtLockTensorBuffer, library.LiteRtUnlockTensorBuffer
        # A failure must leave LiteRT as a status; an exception would only be printed.
        self.struct = _KernelStruct(
            _INIT(lambda *_: 0), _LAYOUTS(self._layouts), _RUN(self._run), _DESTROY(lambda _: 0)
        )

    def check(self) -> None:
        """Raise what went wrong since the last check."""
        failure, self._failure = self._failure, None
        if failure is None:
            return
        if isinstance(failure, LitesmithError) or not isinstance(failure, Exception):
            raise failure
        frames = failure.__traceback__
        while frames is not None and frames.tb_next is not None and frames.tb_frame.f_code.co_filename == __file__:
            frames = frames.tb_next  # the user's code begins where ours ends
        told = "".join(traceback.format_exception(type(failure), failure, frames)).rstrip()
        raise SessionError(f"the kernel of {self._where} failed:\n{told}") from failure

    def _layouts(self, _data: object, _count: int, inputs: Any, _outputs: int, outputs: Any) -> int:
        """Tell LiteRT the shapes of the outputs, for these of the inputs."""
        try:
            for position, index in enumerate(self._fed):
                self._shapes[index] = inputs[position].shape
            results = self._output_shapes()
        except BaseException as error:  # noqa: BLE001  (it goes on where LiteRT has returned)
            self._failure = self._failure or error
            results = [tensor.shape for tensor in self._tensors[self._count :] if tensor]
        for position, shape in enumerate(results):
            layout = _litert.Layout(rank=len(shape))
            layout.dimensions[: len(shape)] = shape
            outputs[position] = layout
            self._shapes[self._count + position] = shape
        for index, tensor in enumerate(self._tensors):
            if tensor is not None and not tensor.is_constant:
                self._views[index] = self._addresses[index] = None  # of another shape, maybe, and at another place
        return 0

    def _output_shapes(self) -> list[Shape]:
        tensors = self._tensors[self._count :]
        if self._kernel.shapes is None:
            for index in self._fed:
                tensor = self._tensors[index]
                if tensor is not None and self._shapes[index] != tensor.shape:
                    raise SessionError(
                        f"{self._where} has an input of shape {self._shapes[index]}, not {tensor.shape} as in the file; "
                        f"register its kernel with shapes=, a function that returns the outputs' shapes"
                    )
            return [tensor.shape for tensor in tensors if tensor]
        given = [shape if t else None for shape, t in zip(self._shapes, self._tensors[: self._count], strict=False)]
        found = self._kernel.shapes(*given)
        several = found if len(tensors) != 1 or isinstance(found, list) else [found]
        try:
            shapes = [tuple(int(dimension) for dimension in shape) for shape in several]
        except TypeError:
            raise SessionError(f"the shape function of {self._where} returned {found!r}, which are no shapes") from None
        if len(shapes) != len(tensors) or any(len(s) > _MAX_RANK or any(d < 1 for d in s) for s in shapes):
            raise SessionError(
                f"the shape function of {self._where} returned {found!r}; it has {len(tensors)} output(s), each of at "
                f"most {_MAX_RANK} positive dimensions"
            )
        return shapes

    def _run(self, _data: object, n_inputs: int, inputs: Any, n_outputs: int, outputs: Any) -> int:
        # Each line here is paid at each run: about seven microseconds in all.
        if self._failure is not None:
            return 3
        lock, addresses, got, place = self._lock, self._addresses, self._got, self._got_pointer
        buffers = inputs[:n_inputs] + outputs[:n_outputs]
        locked = 0
        try:
            for buffer, (index, mode) in zip(buffers, self._order, strict=True):
                if lock(buffer, place, mode):
                    raise SessionError(f"LiteRT gives no access to tensor {index} of {self._where}")
                locked += 1
                if got.value != addresses[index]:
                    addresses[index] = got.value
                    self._views[index] = self._view(index, got.value or 0)
            self._call()
        except BaseException as error:  # noqa: BLE001  (it goes on where LiteRT has returned)
            self._failure = error
            return 3
        finally:
            for buffer in buffers[:locked]:
                self._unlock(buffer)
        return 0

    def _view(self, index: int, address: int) -> Array:
        shape, dtype = self._shapes[index], self._dtypes[index]
        size_bytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        memory: Any = (ctypes.c_uint8 * size_bytes).from_address(address)
        view: Array = np.ndarray(shape, dtype, memory)
        view.flags.writeable = index >= self._count
        return view

    def _python_call(self, operator: Operator) -> Callable[[], None]:
        keywords: dict[str, Any] = {}
        takes_out = True
        with contextlib.suppress(ValueError, TypeError):  # some C functions do not tell; then they are like ufuncs
            parameters = inspect.signature(self._kernel.function).parameters
            takes_out = "out" in parameters
            if "options" in parameters:
                keywords["options"] = _options(operator)
        function, count = self._kernel.function, self._count

        def call() -> None:
            outputs = self._views[count:]
            if takes_out:
                result = function(
                    *self._views[:count], out=outputs[0] if len(outputs) == 1 else tuple(outputs), **keywords
                )
                if result is None or result is outputs[0]:
                    return
            else:
                result = function(*self._views[:count], **keywords)
            self._store(result, outputs)

        return call

    def _store(self, result: Any, outputs: Sequence[Array | None]) -> None:
        """Copy what a kernel returned, if it fits."""
        several = (result,) if len(outputs) == 1 and not isinstance(result, tuple) else result
        if result is None or len(several) != len(outputs):
            got = "nothing" if result is None else f"{len(several)} arrays"
            raise SessionError(
                f"the kernel of {self._where} returned {got}, but there are {len(outputs)} output(s); return them, or "
                "take a parameter out and write there"
            )
        for position, (value, view) in enumerate(zip(several, outputs, strict=True)):
            array = np.asarray(value)
            assert view is not None
            if array.shape != view.shape or array.dtype != view.dtype:
                raise SessionError(
                    f"the kernel of {self._where} returned {array.dtype.name} of shape {array.shape} for output "
                    f"{position}, which is {view.dtype.name} of shape {view.shape} in the model"
                )
            if array is not view:
                np.copyto(view, array)

    def _native_call(self) -> Callable[[], None]:
        function, options = self._kernel.function, ctypes.create_string_buffer(self._options, len(self._options))
        shape_memory = [(c_int64 * (_MAX_RANK + 1))() for _ in self._tensors]
        shapes = (c_void_p * len(shape_memory))(*(ctypes.addressof(memory) for memory in shape_memory))
        inputs = (c_void_p * max(self._count, 1))()
        outputs = (c_void_p * (len(self._tensors) - self._count))()
        seen: list[object] = [None] * len(self._tensors)
        self._memory: tuple[Any, ...] = (inputs, outputs, shapes, options)  # which must outlive their addresses
        arguments = (*(ctypes.addressof(memory) for memory in self._memory), len(self._options))

        def call() -> None:
            for index, view in enumerate(self._views):
                if view is not seen[index] and view is not None:
                    seen[index] = view
                    pointers, place = (inputs, index) if index < self._count else (outputs, index - self._count)
                    pointers[place] = view.ctypes.data
                    shape_memory[index][: view.ndim + 1] = [view.ndim, *view.shape]
            status = function(*arguments)
            if status:
                raise SessionError(f"the kernel of {self._where} returned {status}, not 0")

        return call

    def _check_type(self, tensor: Tensor | None) -> None:
        if tensor is not None and (BITS[tensor.dtype] < 8 or tensor.external_buffer):
            what = tensor.dtype if not tensor.external_buffer else "kept in another file"
            raise SessionError(f"{self._where} has a tensor {tensor.name!r} that is {what}: no kernel can get it")


def _constant(tensor: Tensor) -> Array:
    array = tensor.array()
    if array.dtype != array.dtype.newbyteorder("=") or not array.flags.aligned:
        array = np.array(array)
    array.flags.writeable = False
    return array


def _options(operator: Operator) -> Any:
    """Return the options of a custom operator: what the FlexBuffer holds, else the bytes."""
    content = operator.custom_options or b""
    try:
        return decode_flexbuffer(content) if content else {}
    except ModelError:
        return content
