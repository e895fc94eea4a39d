# SPDX-License-Identifier: Apache-2.0
"""What could be gained at the hottest operators: the time between what they take and what this machine could do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from litesmith.measure._roofline import Roofline
from litesmith.model import Model

HOTTEST = 5
WORTH = 0.01  # of the latency: less is not worth a line
NEAR_THE_ROOF = 0.7


@dataclass(frozen=True)
class Work:
    """What one operator needs and takes: the part of a profile that a gain is worked out from."""

    index: int
    kind: str
    median_us: float
    macs: int
    bytes_moved: int


@dataclass(frozen=True)
class Gain:
    """What one operator could save at most, and how."""

    operator: int
    kind: str
    saves_us: float
    share: float  # of the latency
    how: str


def find_gains(model: Model, work: Sequence[Work], latency_us: float, roof: Roofline) -> tuple[Gain, ...]:
    """Return for the hottest operators what could be gained, the most first; each operator once, by its best way."""
    hottest = sorted((w for w in work if w.median_us > 0), key=lambda w: -w.median_us)[:HOTTEST]
    found = []
    for w in hottest:
        options = [*_faster_kernel(model, w, roof), *_int8(model, w, roof), *_without(model, w)]
        if options:
            saves, how = max(options)
            found.append(Gain(w.index, w.kind, saves, saves / latency_us, how))
    return tuple(sorted((g for g in found if g.share >= WORTH), key=lambda g: -g.saves_us))


def activation_dtype(model: Model, index: int) -> str:
    """Return the type of what an operator reads besides its constants."""
    tensors = [model.main.tensor(t) for t in model.main.operators[index].inputs]
    return next((t.dtype for t in tensors if t is not None and not t.is_constant), "float32")


def _best_us(w: Work, moved_bytes: float, peak: float, roof: Roofline) -> float:
    return max(w.macs / peak / 1000, moved_bytes / roof.gbytes_per_s / 1000)


def _faster_kernel(model: Model, w: Work, roof: Roofline) -> list[tuple[float, str]]:
    """As good as the best kernel here, in the same numbers."""
    if not w.macs or not w.median_us:  # the profiler counts whole microseconds
        return []
    dtype = activation_dtype(model, w.index)
    best = _best_us(w, w.bytes_moved, roof.peak(dtype), roof)
    reached = best / w.median_us
    if reached >= NEAR_THE_ROOF:
        return []
    bound = "arithmetic" if roof.bound(w.macs, w.bytes_moved, dtype) == "arithmetic" else "memory"
    how = f"it runs at {100 * reached:.0f} % of what this machine can do ({bound}-bound); a better shape or kernel"
    return [(w.median_us - best, f"{how} saves at most this")]


def _int8(model: Model, w: Work, roof: Roofline) -> list[tuple[float, str]]:
    """The same share of the roof, with integers: a quarter of the bytes, and the int8 peak."""
    operator = model.main.operators[w.index]
    weight = model.main.tensor(operator.inputs[1]) if len(operator.inputs) > 1 else None
    if not w.macs or weight is None or weight.dtype != "float32" or not weight.is_constant:
        return []
    now = _best_us(w, w.bytes_moved, roof.gmacs_per_s, roof)
    then = _best_us(w, w.bytes_moved / 4, roof.int8_gmacs_per_s, roof)
    if then >= now:
        return []
    return [(w.median_us * (1 - then / now), f"int8 has {now / then:.1f} times the room here: litesmith quantize")]


def _without(model: Model, w: Work) -> list[tuple[float, str]]:
    """Work that computes nothing."""
    remedies = {
        "TRANSPOSE": "it only moves data: convert the model in the layout of LiteRT (NHWC)",
        "PAD": "it only moves data: let the convolution behind it pad",
        "PADV2": "it only moves data: let the convolution behind it pad",
        "QUANTIZE": "it only converts: give the model integer inputs (litesmith quantize --io int8)",
        "DEQUANTIZE": "it only converts: take integer outputs (litesmith quantize --io int8)",
        "CAST": "it only converts: make the type the same on both sides",
        "RESHAPE": "it only moves data",
        "CONCATENATION": "it only moves data",
    }
    remedy = remedies.get(model.main.operators[w.index].kind)
    return [(w.median_us, remedy)] if remedy else []
