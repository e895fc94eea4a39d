# SPDX-License-Identifier: Apache-2.0
"""Build a Model from scratch, operator by operator, with shapes inferred and weights that keep activations in range."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from litesmith.errors import ModelError
from litesmith.model._flatbuffer import Record
from litesmith.model._graph import (
    ABSENT,
    Model,
    Operator,
    Quantization,
    Signature,
    Subgraph,
    Tensor,
    constant,
)
from litesmith.model._operators import options_table
from litesmith.model._shapes import infer, window_output

Array = np.ndarray[Any, Any]
_GAINS = {"RELU": math.sqrt(2), "RELU6": math.sqrt(2)}  # He et al., arXiv:1502.01852: half of the variance is cut off


@dataclass(frozen=True)
class Value:
    """A tensor of a model under construction."""

    index: int
    tensor: Tensor

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the tensor."""
        return self.tensor.shape

    @property
    def dtype(self) -> str:
        """The element type of the tensor."""
        return self.tensor.dtype

    @property
    def name(self) -> str:
        """The name of the tensor."""
        return self.tensor.name


class Builder:
    """Collects tensors and operators; ``build`` returns the Model.

    Example:
        >>> b = Builder("tiny")
        >>> x = b.input("image", (1, 8, 8, 3))
        >>> x = b.conv2d(x, 4, kernel=3, stride=2, activation="RELU6")
        >>> x = b.op("MEAN", x, np.array([1, 2], np.int32))
        >>> model = b.build({"logits": b.fully_connected(x, 10)})
        >>> [op.kind for op in model.main.operators]
        ['CONV_2D', 'MEAN', 'FULLY_CONNECTED']
    """

    def __init__(self, name: str = "main", *, seed: int = 0) -> None:
        self.name = name
        self.random = np.random.default_rng(seed)
        self._tensors: list[Tensor] = []
        self._operators: list[Operator] = []
        self._inputs: list[Value] = []
        self._names: dict[str, int] = {}

    def input(
        self, name: str, shape: Sequence[int], dtype: str = "float32", *, quantization: Quantization | None = None
    ) -> Value:
        """Add an input of the model; a dimension of -1 may change at run time and is built as 1."""
        fixed = tuple(1 if d < 0 else int(d) for d in shape)
        signature = tuple(int(d) for d in shape) if -1 in shape else None
        value = self._add(Tensor(name, fixed, dtype, quantization=quantization, shape_signature=signature))
        self._inputs.append(value)
        return value

    def constant(
        self,
        values: Array | Sequence[Any],
        name: str = "constant",
        *,
        dtype: str | None = None,
        quantization: Quantization | None = None,
    ) -> Value:
        """Add a constant."""
        return self._add(replace(constant(name, values, dtype), quantization=quantization))

    def op(
        self,
        kind: str,
        *inputs: Value | Array | None,
        name: str = "",
        outputs: Sequence[tuple[Sequence[int], str]] | None = None,
        quantization: Quantization | None = None,
        dtype: str | None = None,
        custom_code: str = "",
        custom_options: bytes | None = None,
        version: int = 1,
        **options: Any,
    ) -> Any:
        """Add any operator. Arrays become constants, None an absent optional input; options have their schema names.

        Returns:
            The output Value, or a tuple of them when the operator has several.
        """
        name = name or kind.lower()
        values = [self._as_value(i, x, name) for i, x in enumerate(inputs)]
        table = options_table(kind)
        if options and table is None:
            raise ModelError(f"{kind} has no options, but {', '.join(options)} given")
        record = Record(table, **options) if table else None
        shapes = (
            outputs if outputs is not None else infer(kind, [None if v is None else v.tensor for v in values], record)
        )
        if shapes is None:
            raise ModelError(f"the output shape of {kind} {name!r} cannot be inferred; pass outputs=[(shape, dtype)]")
        results = []
        for i, (shape, inferred) in enumerate(shapes):
            label = name if i == 0 else f"{name}:{i}"
            results.append(self._add(Tensor(label, tuple(shape), dtype or inferred, quantization=quantization)))
        self._operators.append(
            Operator(
                kind=kind,
                inputs=tuple(ABSENT if v is None else v.index for v in values),
                outputs=tuple(v.index for v in results),
                options=record,
                custom_code=custom_code,
                custom_options=custom_options,
                version=version,
            )
        )
        return results[0] if len(results) == 1 else tuple(results)

    def conv2d(
        self,
        x: Value,
        filters: int,
        *,
        kernel: int | tuple[int, int] = 1,
        stride: int | tuple[int, int] = 1,
        padding: str = "SAME",
        activation: str = "NONE",
        dilation: int | tuple[int, int] = 1,
        groups: int = 1,
        name: str = "conv",
        weight: Array | None = None,
        bias: Array | bool = True,
        gain: float | None = None,
    ) -> Value:
        """Add a CONV_2D; without ``weight`` it is drawn so that the output varies as much as the input.

        Without ``bias`` it is zeros: LiteRT runs no convolution that has none.
        """
        kernel_h, kernel_w = _pair(kernel)
        shape = (filters, kernel_h, kernel_w, x.shape[-1] // groups)
        weight = self._weight(shape, math.prod(shape[1:]), activation, gain) if weight is None else weight
        return cast(
            Value,
            self.op(
                "CONV_2D",
                x,
                self.constant(weight, f"{name}/weight"),
                self._bias(np.zeros(filters, np.float32) if bias is False else bias, filters, name),
                name=name,
                padding=padding,
                fused_activation_function=activation,
                **_window(stride, dilation),
            ),
        )

    def depthwise_conv2d(
        self,
        x: Value,
        *,
        kernel: int | tuple[int, int] = 3,
        stride: int | tuple[int, int] = 1,
        padding: str = "SAME",
        multiplier: int = 1,
        activation: str = "NONE",
        dilation: int | tuple[int, int] = 1,
        name: str = "depthwise",
        weight: Array | None = None,
        bias: Array | bool = True,
        gain: float | None = None,
    ) -> Value:
        """Add a DEPTHWISE_CONV_2D; without ``bias`` it is zeros, as in ``conv2d``."""
        channels = x.shape[-1] * multiplier
        shape = (1, *_pair(kernel), channels)
        weight = self._weight(shape, math.prod(shape[1:3]), activation, gain) if weight is None else weight
        return cast(
            Value,
            self.op(
                "DEPTHWISE_CONV_2D",
                x,
                self.constant(weight, f"{name}/weight"),
                self._bias(np.zeros(channels, np.float32) if bias is False else bias, channels, name),
                name=name,
                padding=padding,
                depth_multiplier=multiplier,
                fused_activation_function=activation,
                **_window(stride, dilation),
            ),
        )

    def fully_connected(
        self,
        x: Value,
        units: int,
        *,
        activation: str = "NONE",
        keep_num_dims: bool = False,
        name: str = "dense",
        weight: Array | None = None,
        bias: Array | bool = True,
        gain: float | None = None,
    ) -> Value:
        """Add a FULLY_CONNECTED on all but the first dimension, or with ``keep_num_dims`` on the last one."""
        features = x.shape[-1] if keep_num_dims else math.prod(x.shape[1:])
        weight = self._weight((units, features), features, activation, gain) if weight is None else weight
        return cast(
            Value,
            self.op(
                "FULLY_CONNECTED",
                x,
                self.constant(weight, f"{name}/weight"),
                self._bias(bias, units, name),
                name=name,
                fused_activation_function=activation,
                keep_num_dims=keep_num_dims,
            ),
        )

    def transpose_conv(
        self,
        x: Value,
        filters: int,
        *,
        kernel: int | tuple[int, int] = 2,
        stride: int | tuple[int, int] = 2,
        padding: str = "SAME",
        activation: str = "NONE",
        name: str = "transpose_conv",
        weight: Array | None = None,
        bias: Array | bool = True,
        gain: float | None = None,
    ) -> Value:
        """Add a TRANSPOSE_CONV, the output as large as the convolution it reverses allows."""
        (kernel_h, kernel_w), (stride_h, stride_w) = _pair(kernel), _pair(stride)
        batch, height, width, channels = x.shape
        size = [
            s * t if padding == "SAME" else (s - 1) * t + k
            for s, t, k in ((height, stride_h, kernel_h), (width, stride_w, kernel_w))
        ]
        assert window_output(size[0], kernel_h, stride_h, padding) == height
        shape = (filters, kernel_h, kernel_w, channels)
        fan_in = max(channels * kernel_h * kernel_w // (stride_h * stride_w), 1)
        weight = self._weight(shape, fan_in, activation, gain) if weight is None else weight
        return cast(
            Value,
            self.op(
                "TRANSPOSE_CONV",
                np.array([batch, *size, filters], np.int32),
                self.constant(weight, f"{name}/weight"),
                x,
                self._bias(bias, filters, name),
                name=name,
                padding=padding,
                stride_h=stride_h,
                stride_w=stride_w,
                fused_activation_function=activation,
                version=3,
            ),
        )

    def build(
        self, outputs: Mapping[str, Value], *, description: str = "", signature: str = "serving_default"
    ) -> Model:
        """Return the Model; ``outputs`` names what it returns."""
        subgraph = Subgraph(
            name=self.name,
            tensors=tuple(self._tensors),
            operators=tuple(self._operators),
            inputs=tuple(v.index for v in self._inputs),
            outputs=tuple(v.index for v in outputs.values()),
        )
        entry = Signature(
            key=signature,
            inputs=tuple((v.name, v.index) for v in self._inputs),
            outputs=tuple((name, v.index) for name, v in outputs.items()),
        )
        return Model((subgraph,), signatures=(entry,), description=description)

    def _add(self, tensor: Tensor) -> Value:
        count = self._names.get(tensor.name, 0)
        self._names[tensor.name] = count + 1
        if count:
            tensor = replace(tensor, name=f"{tensor.name}_{count}")
        self._tensors.append(tensor)
        return Value(len(self._tensors) - 1, tensor)

    def _as_value(self, position: int, x: Value | Array | None, owner: str) -> Value | None:
        return self.constant(x, f"{owner}/input{position}") if isinstance(x, np.ndarray) else x

    def _weight(self, shape: tuple[int, ...], fan_in: int, activation: str, gain: float | None) -> Array:
        scale = (_GAINS.get(activation, 1.0) if gain is None else gain) / math.sqrt(fan_in)
        weight: Array = self.random.standard_normal(shape, np.float32) * np.float32(scale)
        return weight

    def _bias(self, bias: Array | bool, size: int, owner: str) -> Value | None:
        if bias is False:
            return None
        values = self.random.standard_normal(size, np.float32) * np.float32(0.02) if bias is True else bias
        return self.constant(values, f"{owner}/bias")


def _pair(value: int | tuple[int, int]) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else value


def _window(stride: int | tuple[int, int], dilation: int | tuple[int, int]) -> dict[str, Any]:
    (stride_h, stride_w), (dilation_h, dilation_w) = _pair(stride), _pair(dilation)
    return {
        "stride_h": stride_h,
        "stride_w": stride_w,
        "dilation_h_factor": dilation_h,
        "dilation_w_factor": dilation_w,
    }
