# SPDX-License-Identifier: Apache-2.0
"""How an image is normalized before it goes in, as the TFLite metadata of a file says."""

from __future__ import annotations

import math
from dataclasses import dataclass

from litesmith.model import InputMetadata, Model, input_metadata

_BRIGHTEST = 255.0


@dataclass(frozen=True)
class Normalization:
    """Pixels from 0 to 255 go in as ``(x − mean) / std``, one value for all channels or one for each."""

    mean: tuple[float, ...]
    std: tuple[float, ...]


def normalization_of(model: Model) -> Normalization | None:
    """Return the normalization that the metadata of a file declares for its first input, None where it declares none.

    Where only the least and the largest value of the input are told (``stats``), black and white stand for them.
    """
    said = input_metadata(model)
    if not said:
        return None
    found = Normalization(said[0].mean, said[0].std) if said[0].std else _from_statistics(said[0], model)
    if not found.std or not all(map(math.isfinite, (*found.mean, *found.std))) or 0.0 in found.std:
        return None
    channels = model.main.tensors[model.main.inputs[0]].shape[-1]
    return found if {len(found.mean), len(found.std)} <= {1, channels} else None


def _from_statistics(said: InputMetadata, model: Model) -> Normalization:
    highest, lowest = (_real(values, model) for values in (said.highest, said.lowest))
    std = tuple(_BRIGHTEST / (high - low) if high != low else 0.0 for high, low in zip(highest, lowest, strict=False))
    return Normalization(tuple(-low * step for low, step in zip(lowest, std, strict=False)), std)


def _real(values: tuple[float, ...], model: Model) -> tuple[float, ...]:
    """Return values of the input as real numbers: the metadata of a quantized file has them as the tensor holds them."""
    tensor = model.main.tensors[model.main.inputs[0]]
    if tensor.dtype == "float32" or tensor.quantization is None or not tensor.quantization.scale:
        return values
    scale, zero = tensor.quantization.scale[0], tensor.quantization.zero_point[0]
    return tuple(scale * (value - zero) for value in values)
