# SPDX-License-Identifier: Apache-2.0
"""Do samples fit the inputs of a model, and if not, what would make them fit?"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from litesmith.data._rows import Array
from litesmith.data._transform import saturate
from litesmith.errors import DataError
from litesmith.model import BITS, Model, Tensor, numpy_dtype


class InputLike(Protocol):
    """Anything that describes a model's input."""

    @property
    def name(self) -> str: ...
    @property
    def shape(self) -> Sequence[int]: ...
    @property
    def dtype(self) -> Any: ...


@dataclass(frozen=True)
class InputSpec:
    """One input of a model.

    Attributes:
        name: by which samples of several arrays are matched.
        shape: with −1 where any length is allowed.
        dtype: of the values the model takes.
        scale: for quantized inputs; floats are then quantized with it, integers of ``dtype`` are quantized already.
        zero_point: the integer that stands for 0.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    scale: float | None = None
    zero_point: int = 0

    @classmethod
    def of(cls, like: InputLike) -> InputSpec:
        """Return the InputSpec of anything that has a name, shape and dtype."""
        if isinstance(like, InputSpec):
            return like
        if isinstance(like, Tensor):
            return _tensor_input(like.name, like)
        return cls(like.name, tuple(int(length) for length in like.shape), _numpy_type(like.dtype))


def model_inputs(model: Model) -> tuple[InputSpec, ...]:
    """Return the inputs of a model, under the names of its first signature where it has one."""
    if model.signatures:
        signature = model.signatures[0]
        subgraph = model.subgraphs[signature.subgraph_index]
        return tuple(_tensor_input(name, subgraph.tensors[index]) for name, index in signature.inputs)
    return tuple(InputSpec.of(model.main.tensors[index]) for index in model.main.inputs)


def _tensor_input(name: str, tensor: Tensor) -> InputSpec:
    scale, zero_point = (tensor.quantization.scale, tensor.quantization.zero_point) if tensor.quantization else ((), ())
    return InputSpec(
        name,
        tensor.shape_signature or tensor.shape,
        _numpy_type(tensor.dtype),
        scale[0] if len(scale) == 1 else None,
        zero_point[0] if len(zero_point) == 1 else 0,
    )


def _numpy_type(dtype: Any) -> np.dtype[Any]:
    known = numpy_dtype(dtype) if isinstance(dtype, str) and dtype in BITS else np.dtype(dtype)
    native: np.dtype[Any] = known.newbyteorder("=")
    return native


def match_columns(specs: Sequence[InputSpec], columns: Sequence[str], inputs: Sequence[str], title: str) -> list[str]:
    """Return which column of the samples feeds each input: by name, or the only one where there is one of each."""
    by_name = {_bare(column): column for column in columns} | {column: column for column in columns}
    found = [by_name.get(spec.name, by_name.get(_bare(spec.name))) for spec in specs]
    if len(specs) == len(inputs) == 1 and found == [None]:
        return list(inputs)
    missing = [spec.name for spec, column in zip(specs, found, strict=True) if column is None]
    if missing:
        raise DataError(
            f"{title} has no samples for the input {missing[0]!r} (there is {', '.join(columns)}): give one array for "
            f"each input of the model, named {', '.join(spec.name for spec in specs)}"
        )
    return [column for column in found if column is not None]


def fit(samples: Array, spec: InputSpec) -> Array:
    """Return the samples (first axis counts them) in the shape and type of the input; raise with a hint otherwise.

    Axes of length 1 are added or dropped, the batch axis among them; nothing else about the shape is guessed.

    >>> fit(np.zeros((5, 28, 28)), InputSpec("x", (1, 28, 28, 1), np.dtype("float32"))).shape
    (5, 1, 28, 28, 1)
    """
    shape = _fitting_shape(samples.shape[1:], spec.shape)
    if shape is None:
        expected, got = spec.shape, samples.shape[1:]
        raise DataError(
            f"wrong shape for input {spec.name!r}: the model takes {expected}, and the sample is {got}"
            f"{_shape_hint(expected, got)}"
        )
    return _as_type(samples, spec).reshape(len(samples), *shape)


def has_batch_axis(shape: Sequence[int]) -> bool:
    """Say whether a fitted sample of this shape, with the batch axis first, can be joined with others along it."""
    return len(shape) > 0 and shape[0] == 1


def first_not_finite(samples: Array) -> int | None:
    """Return the position of the first sample with a NaN or infinity in it, if any."""
    if samples.dtype.kind not in "fc":
        return None
    finite = np.isfinite(samples)
    if finite.all():
        return None
    return int(np.flatnonzero(~finite.reshape(len(samples), -1).all(axis=1))[0])


def _bare(name: str) -> str:
    """Strip what converters add around an input's name."""
    return name.removeprefix("serving_default_").removesuffix(":0")


def _matches(got: Sequence[int], expected: Sequence[int]) -> bool:
    return len(got) == len(expected) and all(e in (-1, g) for g, e in zip(got, expected, strict=True))


def _fitting_shape(got: tuple[int, ...], expected: tuple[int, ...]) -> tuple[int, ...] | None:
    if _matches(got, expected):
        return got
    if expected and expected[0] in (1, -1) and _matches(got, expected[1:]):
        return (1, *got)
    fixed = (1, *expected[1:]) if expected and expected[0] == -1 else expected
    if -1 not in fixed and _without_ones(fixed) == _without_ones(got):
        return fixed
    return None


def _without_ones(shape: Iterable[int]) -> list[int]:
    return [length for length in shape if length != 1]


def _shape_hint(expected: tuple[int, ...], got: tuple[int, ...]) -> str:
    want, have = (shape[1:] if len(shape) == 4 else shape for shape in (expected, got))
    one = got[1:] if len(got) == len(expected) else got
    if len(expected) > 1 and expected[0] > 1 and _matches(one, expected[1:]):
        return f"; the model is fixed to batches of {expected[0]}: set its batch to 1"
    if len(want) == 3 and len(have) in (2, 3):
        return _image_hint(want, have)
    want, have = expected[1:], got
    if len(want) == len(have) == 1:
        return f"; for audio, set length={want[0]}"
    if -1 not in expected and math.prod(expected) == math.prod(got):
        return f"; it has as many values: store it reshaped to {expected}"
    return "; check that this data belongs to this model"


def _image_hint(want: tuple[int, ...], have: tuple[int, ...]) -> str:
    if len(have) == 3 and _matches((*have[1:], have[0]), want):
        return f"; the sample is NCHW {have}: set source_layout=NCHW"
    if len(have) == 3 and _matches((have[2], *have[:2]), want):
        return "; the model takes NCHW: set layout=NCHW"
    channels_first = want[0] in (1, 3) and want[2] not in (1, 3)
    (height, width), channels = (want[1:], want[0]) if channels_first else (want[:2], want[2])
    have_channels = have[2] if len(have) == 3 else 1
    settings = []
    if have_channels != channels and channels in (1, 3):
        settings.append("channels=gray" if channels == 1 else "channels=rgb")
    if not _matches(have[:2], (height, width)) and -1 not in (height, width):
        settings.append(f"resize={height}x{width}")
    if channels_first:
        settings.append("layout=NCHW")
    return (
        f"; add {' '.join(settings)} to the preprocessing"
        if settings
        else "; check that this data belongs to this model"
    )


def _as_type(samples: Array, spec: InputSpec) -> Array:
    have, want = samples.dtype, spec.dtype
    if have == want or (have.kind in "SUO" and want.kind in "SUO"):
        return samples
    if have.kind == "f" and spec.scale is not None and want.kind in "iu":
        return saturate(np.rint(samples / np.float64(spec.scale)) + spec.zero_point, want)
    if have.kind == want.kind == "f":
        return _narrowed(samples, spec)
    if have.kind in "iu" and want.kind in "iu" and spec.scale is None and _in_range(samples, want):
        return samples.astype(want)
    raise DataError(
        f"wrong dtype for input {spec.name!r}: the model takes {want}, and the sample is {have}"
        f"{_type_hint(samples, spec)}"
    )


def _narrowed(samples: Array, spec: InputSpec) -> Array:
    with np.errstate(over="ignore"):
        narrowed = samples.astype(spec.dtype)
    if first_not_finite(narrowed) is not None:
        raise DataError(
            f"input {spec.name!r}: values up to {np.abs(samples).max():g} do not fit into {spec.dtype}; scale them"
        )
    return narrowed


def _in_range(samples: Array, dtype: np.dtype[Any]) -> bool:
    limits = np.iinfo(dtype)
    return samples.size == 0 or (int(samples.min()) >= limits.min and int(samples.max()) <= limits.max)


def _type_hint(samples: Array, spec: InputSpec) -> str:
    have, want = samples.dtype, spec.dtype
    if spec.scale is not None:
        return f"; give floats (declare scale=… or mean=… std=…), which are then quantized, or quantized {want}"
    if have == np.uint8 and want.kind == "f":
        return (
            f"; these are raw 0…255 values: declare what the model was trained on, mean=… std=… or scale=1/255, or "
            f"dtype={want} if it takes raw values"
        )
    if have.kind in "iub" and want.kind == "f":
        return f"; add dtype={want}, or scale/mean/std, to the preprocessing"
    if have.kind in "iu" and want.kind in "iu":
        return f", with values {samples.min()} … {samples.max()} that do not fit; correct them"
    if have.kind == "f" and want.kind in "iu":
        return f"; store integers, or add dtype={want} to the preprocessing to round"
    return f"; store the samples as {want}"
