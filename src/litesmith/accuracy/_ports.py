# SPDX-License-Identifier: Apache-2.0
"""A model's inputs and outputs in real numbers: datasets hold reals, quantized models take and give integers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from litesmith.data import InputSpec
from litesmith.model import Model, Tensor, numpy_dtype

Array = NDArray[Any]


@dataclass(frozen=True)
class Port:
    """One input or output.

    Attributes:
        name: as a Session has it.
        shape: with −1 where any length is allowed.
        dtype: of the values in the runtime.
        scale: of quantized values, else None.
        zero_point: the integer that stands for 0.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    scale: float | None = None
    zero_point: int = 0

    @classmethod
    def of(cls, name: str, tensor: Tensor) -> Port:
        """Return what is known of a tensor at the border of a model."""
        quantization = tensor.quantization
        scale = zero_point = None
        if quantization is not None and len(quantization.scale) == 1 and tensor.dtype in ("int8", "uint8", "int16"):
            scale = float(np.float32(quantization.scale[0]))
            zero_point = quantization.zero_point[0] if quantization.zero_point else 0
        shape = tensor.shape_signature or tensor.shape
        return cls(name, shape, numpy_dtype(tensor.dtype), scale or None, zero_point or 0)

    @property
    def real(self) -> InputSpec:
        """The input as a dataset of reals should fill it."""
        dtype = np.dtype(np.float32) if self.scale is not None else self.dtype
        return InputSpec(self.name, self.shape, dtype)

    @property
    def stored(self) -> InputSpec:
        """The input as the runtime takes it."""
        return InputSpec(self.name, self.shape, self.dtype, self.scale, self.zero_point)

    def quantize(self, values: Array) -> Array:
        """Return reals as the integers of this port, rounded as LiteRT's QUANTIZE does; others unchanged."""
        if self.scale is None or values.dtype == self.dtype:
            return values
        limits = np.iinfo(self.dtype)
        integers = values / np.float32(self.scale)
        np.rint(integers, out=integers)
        integers += self.zero_point
        np.clip(integers, limits.min, limits.max, out=integers)
        return np.asarray(integers.astype(self.dtype))

    def reals(self, values: Array) -> Array:
        """Return values of this port as reals."""
        if self.scale is None:
            return values
        return np.asarray((values.astype(np.float32) - self.zero_point) * np.float32(self.scale))


def ports(model: Model, signature: str | None = None) -> tuple[tuple[Port, ...], tuple[Port, ...]]:
    """Return the inputs and outputs of a signature (the first by default), or of a model that has none."""
    found = next((s for s in model.signatures if signature in (None, s.key)), None)
    if found is None:
        graph = model.main
        return _of(graph.tensors, graph.inputs, "input"), _of(graph.tensors, graph.outputs, "output")
    tensors = model.subgraphs[found.subgraph_index].tensors
    inputs, outputs = (
        tuple(Port.of(name, tensors[index]) for name, index in side) for side in (found.inputs, found.outputs)
    )
    return inputs, outputs


def _of(tensors: Sequence[Tensor], indices: Sequence[int], kind: str) -> tuple[Port, ...]:
    from litesmith.runtime._backend import unique_names

    names = unique_names([tensors[index].name for index in indices], kind)
    return tuple(Port.of(name, tensors[index]) for name, index in zip(names, indices, strict=True))
