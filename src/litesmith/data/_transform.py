# SPDX-License-Identifier: Apache-2.0
"""Do what a Preprocess declares, to many samples at once.

Every function takes and returns arrays whose first axis counts samples. Images from files and images from arrays go
through the same code, so the same pixels give the same numbers wherever they were stored. Errors raised here say what
is wrong with the sample; the caller knows which sample it is and adds the name.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from litesmith.data._preprocess import Preprocess
from litesmith.errors import DataError

Array = NDArray[Any]

_LUMA = (19595, 38470, 7471)  # 0.299, 0.587, 0.114 in 1/65536: ITU-R BT.601, in the integers Pillow uses


def transform(samples: Array, preprocess: Preprocess) -> Array:
    """Return the samples as the model wants them.

    >>> transform(np.full((2, 4, 4, 3), 255, np.uint8), Preprocess.parse("crop=2 scale=1/255 layout=NCHW")).shape
    (2, 3, 2, 2)
    """
    p = preprocess
    if p.source_layout == "NCHW":
        samples = np.moveaxis(_images(samples, "source_layout", rank=4), 1, -1)
    if p.channels is not None:
        samples = _convert_channels(_images(samples, "channels"), p.channels)
    if p.resize is not None:
        samples = _resize(_images(samples, "resize"), p.resize, p.method)
    if p.crop is not None:
        samples = _crop(_images(samples, "crop"), p.crop)
    if p.length is not None:
        samples = _set_length(samples, p.length)
    samples = _normalize(samples, p)
    if p.layout == "NCHW":
        samples = np.moveaxis(_images(samples, "layout", rank=4), -1, 1)
    if p.dtype is not None:
        samples = _cast(samples, np.dtype(p.dtype))
    return np.ascontiguousarray(samples)


def _images(samples: Array, step: str, rank: int | None = None) -> Array:
    if samples.dtype.kind not in "fiub" or samples.ndim not in ((3, 4) if rank is None else (rank,)):
        wanted = "height × width [× channels]" if rank is None else "with an axis of channels"
        cure = "add channels=gray" if rank == 4 and samples.ndim == 3 else f"remove {step}"
        raise DataError(
            f"preprocessing {step} needs an image ({wanted}), and the sample is {samples.dtype} {samples.shape[1:]}; "
            f"{cure}, or name the inputs that are images with inputs=NAME"
        )
    return samples


def _convert_channels(images: Array, channels: str) -> Array:
    if images.ndim == 3:
        images = images[..., np.newaxis]
    count = images.shape[-1]
    if count not in (1, 3):
        raise DataError(
            f"channels={channels} needs an image of 1 or 3 channels, and the sample {images.shape[1:]} has {count}"
            + ("; if it is stored as NCHW, set source_layout=NCHW" if images.shape[1] in (1, 3) else "")
        )
    if channels == "gray":
        return images if count == 1 else _gray(images)
    images = np.broadcast_to(images, (*images.shape[:-1], 3)) if count == 1 else images
    return images[..., ::-1] if channels == "bgr" else images


def _gray(images: Array) -> Array:
    if images.dtype == np.uint8:
        weighted: Array = images.astype(np.uint32) @ np.array(_LUMA, np.uint32)
        return ((weighted + 0x8000) >> 16).astype(np.uint8)[..., np.newaxis]
    luma: Array = images @ (np.array(_LUMA) / 65536).astype(np.float32)
    return luma[..., np.newaxis]


def _resize(images: Array, size: int | tuple[int, int], method: str) -> Array:
    height, width = images.shape[1:3]
    if 0 in images.shape[1:]:
        raise DataError(f"the image has no pixels (shape {images.shape[1:]}); remove it")
    if isinstance(size, int):
        # The longer side is rounded down, as the evaluation scripts behind published ImageNet figures do.
        size = (size, int(size * width / height)) if height <= width else (int(size * height / width), size)
    if size == (height, width):
        return images
    from PIL import Image

    filters = {
        "nearest": Image.Resampling.NEAREST,
        "bilinear": Image.Resampling.BILINEAR,
        "bicubic": Image.Resampling.BICUBIC,
        "area": Image.Resampling.BOX,
        "lanczos": Image.Resampling.LANCZOS,
    }

    def resized(plane: Array) -> Array:
        return np.asarray(Image.fromarray(plane).resize((size[1], size[0]), filters[method]))

    if images.dtype != np.uint8:
        images = images.astype(np.float32)  # Pillow resamples 8-bit and float images
    elif images.ndim == 4 and images.shape[-1] == 3:
        return np.stack([resized(np.ascontiguousarray(image)) for image in images])
    planes = images[..., np.newaxis] if images.ndim == 3 else images
    stretched = [
        np.stack([resized(np.ascontiguousarray(image[..., c])) for c in range(image.shape[-1])], axis=-1)
        for image in planes
    ]
    return np.stack(stretched).reshape(len(images), *size, *images.shape[3:])


def _crop(images: Array, size: int | tuple[int, int]) -> Array:
    crop_height, crop_width = (size, size) if isinstance(size, int) else size
    height, width = images.shape[1:3]
    if height < crop_height or width < crop_width:
        raise DataError(
            f"crop={crop_height}x{crop_width} does not fit into the image, which is {height}x{width}; "
            f"add resize={max(crop_height, crop_width)} before it, or crop less"
        )
    top, left = round((height - crop_height) / 2), round((width - crop_width) / 2)
    return images[:, top : top + crop_height, left : left + crop_width]


def _set_length(samples: Array, length: int) -> Array:
    if samples.ndim not in (2, 3):
        raise DataError(
            f"length={length} needs audio (time [× channels]), and the sample has shape {samples.shape[1:]}"
        )
    missing = length - samples.shape[1]
    if missing <= 0:
        return samples[:, :length]
    return np.pad(samples, [(0, 0), (0, missing)] + [(0, 0)] * (samples.ndim - 2))


def _normalize(samples: Array, p: Preprocess) -> Array:
    if p.scale is p.offset is p.mean is p.std is None:
        return samples
    if samples.dtype.kind not in "fiub":
        raise DataError(f"scale, offset, mean and std need numbers, and the sample is {samples.dtype}")
    # ((x·scale + offset) − mean) / std = x·gain + bias: one multiplication and one addition for each value.
    scale, offset, mean, std = (
        _for_channels(name, values, default, samples)
        for name, values, default in (
            ("scale", p.scale, 1.0),
            ("offset", p.offset, 0.0),
            ("mean", p.mean, 0.0),
            ("std", p.std, 1.0),
        )
    )
    precision = np.float64 if p.dtype == "float64" else np.float32
    gain, bias = np.broadcast_arrays((scale / std).astype(precision), ((offset - mean) / std).astype(precision))
    shape = samples.shape
    if gain.size > 1 and samples.ndim > 2 and samples.size:
        # A whole row of pixels at once: over the few channels alone NumPy's inner loop is several times slower.
        gain, bias = np.tile(gain, shape[-2]), np.tile(bias, shape[-2])
        samples = samples.reshape(-1, gain.size)
    result: Array = np.multiply(samples, gain, dtype=precision)
    result += bias
    return result.reshape(shape)


def _for_channels(name: str, values: tuple[float, ...] | None, default: float, samples: Array) -> NDArray[np.float64]:
    numbers = np.array(values if values is not None else default, np.float64)
    if numbers.size > 1 and (samples.ndim < 2 or samples.shape[-1] != numbers.size):
        raise DataError(
            f"{name} has {numbers.size} values, one for each channel, and the last axis of the sample has "
            f"{samples.shape[-1]} (shape {samples.shape[1:]}); give one value, or as many as there are channels"
        )
    return numbers


def _cast(samples: Array, dtype: np.dtype[Any]) -> Array:
    if samples.dtype == dtype:
        return samples
    if samples.dtype.kind not in "fiub":
        raise DataError(f"dtype={dtype} needs numbers, and the sample is {samples.dtype}")
    if dtype.kind not in "iu":
        return samples.astype(dtype)
    return saturate(samples, dtype)


def saturate(samples: Array, dtype: np.dtype[Any]) -> Array:
    """Round to the nearest integer of ``dtype``; what is beyond its range becomes its end."""
    if samples.dtype.kind == "b":
        return samples.astype(dtype)
    limits = np.iinfo(dtype)
    if samples.dtype.kind == "f":
        # Beyond 53 bits the upper limit itself is no float64; the largest float64 below it is.
        highest = float(limits.max) if limits.bits <= 32 else float(np.nextafter(float(limits.max), 0))
        return np.clip(np.rint(samples, dtype=np.float64), limits.min, highest).astype(dtype)
    bounds = np.iinfo(samples.dtype)
    return np.clip(samples, max(limits.min, bounds.min), min(limits.max, bounds.max)).astype(dtype)
