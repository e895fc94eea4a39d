# SPDX-License-Identifier: Apache-2.0
"""What a `.tflite` is, as values: Model, Subgraph, Operator, Tensor, Buffer, and what hangs on them.

Everything here is immutable: a pass takes a Model and returns another, built with ``dataclasses.replace``. Tensors are
referred to by their index in the subgraph, as in the file; constant data hangs on the tensor itself, and two tensors
that share a ``Buffer`` object share it in the file too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from litesmith.errors import ModelError
from litesmith.model._dtypes import decode, encode
from litesmith.model._flatbuffer import Record

if TYPE_CHECKING:
    from litesmith.model._cost import Cost

ABSENT = -1
"""The tensor index of an optional input that is not there."""


class Buffer:
    """Constant bytes. Equal by content; shared by identity."""

    __slots__ = ("data",)

    def __init__(self, data: bytes | bytearray | memoryview) -> None:
        self.data = memoryview(data).cast("B").toreadonly()

    def __len__(self) -> int:
        return len(self.data)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Buffer) and (self is other or self.data == other.data)

    def __hash__(self) -> int:
        return hash((len(self.data), bytes(self.data[:64])))

    def __repr__(self) -> str:
        return f"Buffer({len(self.data):,} bytes)"

    def __reduce__(self) -> tuple[Any, ...]:
        return Buffer, (bytes(self.data),)


@dataclass(frozen=True)
class Quantization:
    """How integers stand for reals: ``scale * (integer - zero_point)``, per tensor or per index along ``axis``."""

    scale: tuple[float, ...] = ()
    zero_point: tuple[int, ...] = ()
    axis: int = 0
    minimum: tuple[float, ...] = ()
    maximum: tuple[float, ...] = ()
    details: Record | None = None  # blockwise, multi-axis or custom parameters

    @property
    def per_channel(self) -> bool:
        """Whether there is a scale for each index along ``axis``."""
        return len(self.scale) > 1


@dataclass(frozen=True)
class Tensor:
    """One tensor: a constant when it has a ``buffer``, else a value computed at run time."""

    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"
    buffer: Buffer | None = None
    quantization: Quantization | None = None
    shape_signature: tuple[int, ...] | None = None  # the shape with -1 for each dimension that may change
    is_variable: bool = False
    has_rank: bool = True
    sparsity: Record | None = None
    variant_tensors: tuple[Record, ...] = ()
    external_buffer: int = 0

    @property
    def is_constant(self) -> bool:
        """Whether the file holds the values."""
        return self.buffer is not None or self.external_buffer != 0

    @property
    def is_quantized(self) -> bool:
        """Whether the integers stand for reals."""
        quantization = self.quantization
        return quantization is not None and (bool(quantization.scale) or quantization.details is not None)

    @property
    def elements(self) -> int:
        """How many elements the shape has; unknown dimensions count as 1."""
        return math.prod(max(d, 1) if d < 0 else d for d in self.shape)

    def array(self) -> np.ndarray[Any, Any]:
        """Return the constant values, as stored (quantized integers stay integers); read-only where it is a view."""
        if self.buffer is None:
            raise ModelError(f"tensor {self.name!r} has no constant values in this file")
        if self.sparsity is not None:
            raise ModelError(f"tensor {self.name!r} is stored sparse; use litesmith.model.densify(tensor) first")
        try:
            return decode(self.buffer.data, self.dtype, self.shape)
        except ModelError as error:
            raise ModelError(f"tensor {self.name!r}: {error}") from None

    def with_array(self, values: np.ndarray[Any, Any] | Sequence[str | bytes], dtype: str | None = None) -> Tensor:
        """Return this tensor with other constant values; shape and type follow the values."""
        array = np.asarray(values, object if dtype == "string" else None)
        kind = dtype or array.dtype.name
        return replace(self, shape=array.shape, dtype=kind, buffer=Buffer(encode(array, kind)), sparsity=None)


def constant(name: str, values: np.ndarray[Any, Any] | Sequence[Any], dtype: str | None = None) -> Tensor:
    """Return a constant tensor of these values.

    Example:
        >>> constant("axes", np.array([1, 2], np.int32)).array()
        array([1, 2], dtype=int32)
    """
    return Tensor(name, ()).with_array(np.asarray(values), dtype)


@dataclass(frozen=True)
class Operator:
    """One operator: its kind, the tensors it reads and writes, and its options."""

    kind: str  # the builtin operator, "CONV_2D", or "CUSTOM"
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: Record | None = None
    custom_code: str = ""
    custom_options: bytes | None = None
    version: int = 1
    intermediates: tuple[int, ...] = ()
    mutating_variable_inputs: tuple[bool, ...] = ()
    debug_metadata_index: int = -1

    @property
    def name(self) -> str:
        """The kind, or for a custom operator the name of its code."""
        return self.custom_code if self.kind == "CUSTOM" else self.kind


@dataclass(frozen=True)
class Subgraph:
    """Tensors and the operators on them, in the order of execution."""

    name: str = "main"
    tensors: tuple[Tensor, ...] = ()
    operators: tuple[Operator, ...] = ()
    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()
    debug_metadata_index: int = -1

    def tensor(self, index: int) -> Tensor | None:
        """Return the tensor at ``index``, None for an absent optional one."""
        return None if index == ABSENT else self.tensors[index]

    def producers(self) -> dict[int, int]:
        """Return the index of the operator that writes each computed tensor."""
        return {t: i for i, op in enumerate(self.operators) for t in op.outputs}

    def consumers(self) -> dict[int, list[int]]:
        """Return the indices of the operators that read each tensor, in order, each once."""
        found: dict[int, list[int]] = {}
        for i, op in enumerate(self.operators):
            for t in dict.fromkeys(op.inputs):
                found.setdefault(t, []).append(i)
        return found


@dataclass(frozen=True)
class Signature:
    """A named entry into the model: names for the inputs and outputs of one subgraph."""

    key: str
    inputs: tuple[tuple[str, int], ...]
    outputs: tuple[tuple[str, int], ...]
    subgraph_index: int = 0


@dataclass(frozen=True)
class Metadata:
    """Named bytes that travel with the model, such as the TFLite metadata of the Task library."""

    name: str
    buffer: Buffer


@dataclass(frozen=True)
class Model:
    """A `.tflite` in memory.

    Example:
        >>> import litesmith
        >>> model = litesmith.samples.model()
        >>> model.main.operators[0].kind
        'CONV_2D'
    """

    subgraphs: tuple[Subgraph, ...]
    signatures: tuple[Signature, ...] = ()
    metadata: tuple[Metadata, ...] = ()
    description: str = ""
    associated_files: tuple[tuple[str, bytes], ...] = ()  # label lists and the like, in a zip behind the model
    metadata_buffers: tuple[Buffer, ...] = ()  # metadata without a name, as very old files have
    external_buffer_groups: tuple[Record, ...] = ()
    external_buffers: tuple[Record, ...] = ()
    appendix: Buffer | None = None  # code for an accelerator behind the tables; DISPATCH_OP counts from its start
    source: Path | None = field(default=None, compare=False)
    legacy: tuple[str, ...] = field(default=(), compare=False)  # what is outdated in the file it was read from
    unknown: tuple[str, ...] = field(default=(), compare=False)  # fields newer than Litesmith, lost when written

    @property
    def main(self) -> Subgraph:
        """The subgraph that runs when no signature is named."""
        return self.subgraphs[0]

    def with_main(self, subgraph: Subgraph) -> Model:
        """Return this model with another main subgraph."""
        return replace(self, subgraphs=(subgraph, *self.subgraphs[1:]))

    def operators(self) -> Iterator[tuple[int, int, Operator]]:
        """Yield (subgraph index, operator index, operator) for all operators."""
        for s, subgraph in enumerate(self.subgraphs):
            for o, operator in enumerate(subgraph.operators):
                yield s, o, operator

    @staticmethod
    def load(path: str | Path) -> Model:
        """Read a `.tflite` file; above 100 MB it is mapped, not copied."""
        from litesmith.model._read import load

        return load(path)

    @staticmethod
    def from_bytes(data: bytes | bytearray | memoryview) -> Model:
        """Read the bytes of a `.tflite`."""
        from litesmith.model._read import from_bytes

        return from_bytes(data)

    def save(self, path: str | Path) -> None:
        """Write a `.tflite` file; equal models give equal bytes. An old file stays until the new one is complete."""
        from litesmith.model._write import save

        save(self, path)

    def to_bytes(self) -> bytes:
        """Return the bytes of the `.tflite`."""
        from litesmith.model._write import to_bytes

        return to_bytes(self)

    def verify(self) -> None:
        """Raise a ModelError that names the operator and the tensor when the model breaks a rule of the format."""
        from litesmith.model._verify import verify

        verify(self)

    def cost(self) -> Cost:
        """Return parameters, multiply-accumulates and bytes, in total and per operator."""
        from litesmith.model._cost import cost

        return cost(self)
