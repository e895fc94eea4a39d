# SPDX-License-Identifier: Apache-2.0
"""Weights stored smaller beside float activations: what kernels take directly, and what needs a DEQUANTIZE.

XNNPACK takes CONV_2D and FULLY_CONNECTED with int8 weights per channel and quantizes their input itself. It takes no
other operator that way: a DEPTHWISE_CONV_2D with int8 weights would leave the graph in pieces, so its weights go
through a DEQUANTIZE, which XNNPACK folds when it compiles.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from litesmith.model import ABSENT, Operator, Quantization, Record, Tensor
from litesmith.optimize._arithmetic import per_channel, quantize_weights
from litesmith.optimize._rules import HYBRID_VERSIONS, HYBRID_WEIGHTS, RULES, STORED_WEIGHTS
from litesmith.optimize._scheme import Scheme
from litesmith.optimize._weight_ranges import weight_scales

if TYPE_CHECKING:
    from litesmith.optimize._rewrite import Rewriter

Array = np.ndarray[Any, Any]
_LARGEST_FLOAT16 = 65504.0
_SHORT_ROW = 64
_DIRECT = {"CONV_2D": ("int8",), "EMBEDDING_LOOKUP": ("int8", "int4"), "FULLY_CONNECTED": ("int8", "int4")}


class StoredWeights:
    """Replaces the float constants of float operators by smaller ones."""

    def __init__(self, rewriter: Rewriter) -> None:
        self._rewriter = rewriter
        self._widened: dict[int, int] = {}  # stored constant → its float form behind a DEQUANTIZE
        self._reaches: dict[int, float] = {}  # constant → its largest magnitude

    def replaced(self, op: Operator, scheme: Scheme) -> tuple[tuple[int, ...], str]:
        """Return the inputs that get another form, and why not all of them that could; neither where there are none."""
        if scheme.weights == "float32":
            return (), ""
        if scheme.weights == "float16":
            constants = [p for p, t in enumerate(op.inputs) if self._is_float_constant(t)]
            wide = [p for p in constants if self._reach(op.inputs[p]) > _LARGEST_FLOAT16]
            return tuple(p for p in constants if p not in wide), self._too_wide(op.inputs[wide[0]]) if wide else ""
        if HYBRID_WEIGHTS.get(op.kind):
            return self._recurrent_inputs(op, scheme)
        if op.kind not in STORED_WEIGHTS:
            return (), ""
        position = STORED_WEIGHTS[op.kind][0]
        obstacle = self._obstacle(op.inputs[position], scheme)
        return (() if obstacle is not None else (position,)), obstacle or ""

    def apply(self, op: Operator, scheme: Scheme) -> tuple[Operator, str]:
        """Return the operator on stored weights, and why some of them stay float."""
        positions, reason = self.replaced(op, scheme)
        if scheme.weights == "float16":
            return self._half(op, positions), reason
        if not positions:
            return op, reason
        return self._recurrent(op, positions) if HYBRID_WEIGHTS.get(op.kind) else self._weights(op, scheme), reason

    def _obstacle(self, source: int, scheme: Scheme) -> str | None:
        """Return why weights stay float, empty where there are none in the file; None where they need not."""
        tensor = self._tensor(source) if 0 <= source < len(self._rewriter.graph.tensors) else None
        if tensor is None or not tensor.is_constant or tensor.dtype != "float32":
            return ""
        if not self._is_float_constant(source):
            return f"its weights {tensor.name!r} are stored sparse or outside the file"
        least = self._rewriter.settings.min_elements
        if tensor.elements < least:
            return f"{tensor.elements} weights are fewer than the {least} that are worth it (min_weight_elements)"
        if not scheme.hybrid and source in self._rewriter.float_users:
            return f"another operator reads {tensor.name!r} as float: a smaller copy would only be added to the file"
        return None

    def _reach(self, source: int) -> float:
        if source not in self._reaches:
            values = self._tensor(source).array()
            self._reaches[source] = float(np.abs(values[np.isfinite(values)]).max(initial=0.0))
        return self._reaches[source]

    def _too_wide(self, source: int) -> str:
        name = self._tensor(source).name
        return f"{name!r} reaches {self._reach(source):.3g}, beyond the {_LARGEST_FLOAT16:g} of float16"

    def _weights(self, op: Operator, scheme: Scheme) -> Operator:
        position, axis = STORED_WEIGHTS[op.kind]
        source = op.inputs[position]
        if scheme.block and self._fits_blocks(op, source, scheme.block):
            return self._blockwise(op, source, scheme.block)
        direct = (scheme.hybrid or op.kind == "EMBEDDING_LOOKUP") and scheme.weights in _DIRECT.get(op.kind, ())
        if direct and self._kernel_takes(op, source):
            index = self._integers(source, axis, scheme.bits, _taps(op))
            version = max(op.version, HYBRID_VERSIONS[op.kind])
            return replace(op, inputs=_with(op.inputs, position, index), version=version)
        is_table = op.kind in ("BATCH_MATMUL", "EMBEDDING_LOOKUP", "GATHER")
        bits = scheme.bits if op.kind != "GATHER" else 8
        stored = self._integers(source, len(self._tensor(source).shape) - 1 if is_table else axis, bits, _taps(op))
        return replace(op, inputs=_with(op.inputs, position, self._dequantized(stored, bits)))

    def _tensor(self, index: int) -> Tensor:
        return self._rewriter.graph.tensors[index]

    def _is_float_constant(self, index: int) -> bool:
        if not 0 <= index < len(self._rewriter.graph.tensors):
            return False
        tensor = self._tensor(index)
        return tensor.buffer is not None and tensor.dtype == "float32" and tensor.sparsity is None

    def _kernel_takes(self, op: Operator, source: int) -> bool:
        if op.kind == "CONV_2D":  # the hybrid kernel has no groups
            return self._tensor(source).shape[3] == self._rewriter.tensors[op.inputs[0]].shape[3]
        if op.kind == "EMBEDDING_LOOKUP":  # a scale for each row would outweigh short rows
            return self._tensor(source).elements >= _SHORT_ROW * self._tensor(source).shape[0]
        if op.kind == "FULLY_CONNECTED":
            return bool(op.options is None or op.options.weights_format == "DEFAULT")
        return True

    def _integers(self, source: int, axis: int | None, bits: int, taps: tuple[int, ...] = ()) -> int:
        tensor = self._tensor(source)
        override = self._rewriter.settings.overrides.get((self._rewriter.subgraph, source))
        if override is not None and not override.fits(axis or 0, bits):
            override = None
        if not self._rewriter.settings.per_channel or len(tensor.shape) < 2:
            axis = None
        if override is not None:
            scales, integers = override.scales, override.integers
        else:
            scales = weight_scales(tensor.array(), axis, bits, method=self._rewriter.settings.weight_method)
            integers = quantize_weights(tensor.array(), scales, axis or 0, bits, taps=taps)
        stored = "int4" if bits == 4 else None
        key = (bits, np.asarray(scales).tobytes())
        return self._rewriter.constant(source, integers, per_channel(scales, axis or 0), dtype=stored, key=key)

    def _dequantized(self, stored: int, bits: int) -> int:
        """Return the float32 form of a stored constant, made by one DEQUANTIZE for all its readers."""
        if stored not in self._widened:
            tensor = self._rewriter.tensors[stored]
            target = self._rewriter.add(
                replace(tensor, name=f"{tensor.name}/float32", dtype="float32", buffer=None, quantization=None)
            )
            scales = tensor.quantization.scale if tensor.quantization else ()
            version = {16: 3, 4: 6}.get(bits, 5 if len(scales) > 1 else 2)
            from litesmith.optimize._rewrite import conversion

            self._rewriter.operators.append(conversion("DEQUANTIZE", stored, target, version))
            counts = self._rewriter.conversions
            counts["DEQUANTIZE (weights)"] = counts.get("DEQUANTIZE (weights)", 0) + 1
            self._widened[stored] = target
        return self._widened[stored]

    def _half(self, op: Operator, positions: tuple[int, ...]) -> Operator:
        inputs = list(op.inputs)
        for position, source in enumerate(op.inputs):
            if position in positions:
                half = self._tensor(source).array().astype(np.float16)
                inputs[position] = self._dequantized(self._rewriter.constant(source, half, None, key="float16"), 16)
            elif self._is_float_constant(source):
                self._rewriter.widened.add(self._tensor(source).name)
        return replace(op, inputs=tuple(inputs)) if positions else op

    def _recurrent_inputs(self, op: Operator, scheme: Scheme) -> tuple[tuple[int, ...], str]:
        """Return the weights of a recurrent operator: its kernel takes all of them as integers, or none."""
        positions = [p for p in HYBRID_WEIGHTS[op.kind] if p < len(op.inputs) and op.inputs[p] != ABSENT]
        others = [op.inputs[p] for p in positions if not self._is_float_constant(op.inputs[p])]
        if len(others) == len(positions):
            return (), ""
        if not scheme.hybrid or scheme.bits != 8:
            return (
                (),
                f"LiteRT takes the weights of {op.kind} in the schemes dynamic and float16 only, not {scheme.name}",
            )
        if others:
            name = self._rewriter.tensors[others[0]].name
            return (), f"its kernel takes all weights as integers or none, and {name!r} is no float constant"
        return tuple(positions), ""

    def _recurrent(self, op: Operator, positions: tuple[int, ...]) -> Operator:
        inputs = list(op.inputs)
        for position in positions:
            inputs[position] = self._integers(op.inputs[position], None, 8)
        return replace(op, inputs=tuple(inputs), version=max(op.version, HYBRID_VERSIONS[op.kind]))

    def _fits_blocks(self, op: Operator, source: int, block: int) -> bool:
        shape = self._tensor(source).shape
        return op.kind == "FULLY_CONNECTED" and len(shape) == 2 and shape[1] % block == 0 and shape[1] >= block

    def _blockwise(self, op: Operator, source: int, block: int) -> Operator:
        tensor = self._tensor(source)
        units, features = tensor.shape
        rows = tensor.array().reshape(units * (features // block), block)
        method = self._rewriter.settings.weight_method
        half = weight_scales(rows, 0, 4, method=method).astype(np.float16)  # XNNPACK reads them as 16 bits
        half = np.maximum(half, np.float16(6e-8))
        integers = quantize_weights(rows, half.astype(np.float32), 0, 4).reshape(units, features)
        scales = Tensor(f"{tensor.name}/scales", ()).with_array(half.reshape(units, -1))
        details = Record("BlockwiseQuantization", scales=self._rewriter.add(scales), zero_points=-1, block_size=block)
        quantization = Quantization(axis=0, details=details)
        index = self._rewriter.constant(source, integers, quantization, dtype="int4", key=("block", block))
        return replace(op, inputs=_with(op.inputs, 1, index), version=max(op.version, 12))


def _with(inputs: tuple[int, ...], position: int, index: int) -> tuple[int, ...]:
    return (*inputs[:position], index, *inputs[position + 1 :])


def _taps(op: Operator) -> tuple[int, ...]:
    return RULES[op.kind].taps if op.kind in RULES else ()
