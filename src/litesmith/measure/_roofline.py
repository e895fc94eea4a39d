# SPDX-License-Identifier: Apache-2.0
"""What this machine can do at best: multiply-accumulates and bytes in a second, measured, not read from a datasheet.

An operator with few multiply-accumulates per byte is bound by memory, one with many by arithmetic; the roof over it is
the lower of the two (Williams et al. 2009, doi:10.1145/1498765.1498785). The arithmetic peaks are those of LiteRT's own
matrix product on a large problem, in float32 and in int8, so that 100 % means "as good as the best kernel here". The
memory is the main one: an operator whose tensors stay in the caches may be above 100 %.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from litesmith.model import Builder, Model, Quantization
from litesmith.runtime import Session, random_inputs

_COPY_BYTES = 64_000_000
_REPEATS = 7
_SIDE, _CHANNELS = 32, 512


@dataclass(frozen=True)
class Roofline:
    """The peaks of this machine with a number of threads."""

    threads: int
    gmacs_per_s: float  # in float32
    gbytes_per_s: float
    int8_gmacs_per_s: float

    def peak(self, dtype: str) -> float:
        """Return the arithmetic peak for activations of a type."""
        return self.int8_gmacs_per_s if dtype in ("int8", "uint8") else self.gmacs_per_s

    def attainable_gmacs(self, macs: int, moved_bytes: int, dtype: str = "float32") -> float:
        """Return the highest rate an operator with these needs can reach."""
        intensity = macs / moved_bytes if moved_bytes else float("inf")
        return min(self.peak(dtype), intensity * self.gbytes_per_s)

    def bound(self, macs: int, moved_bytes: int, dtype: str = "float32") -> str:
        """Return what limits such an operator: "arithmetic" or "memory"."""
        return "arithmetic" if self.attainable_gmacs(macs, moved_bytes, dtype) == self.peak(dtype) else "memory"


@functools.cache
def roofline(threads: int = 1) -> Roofline:
    """Measure the peaks, once in a process for each number of threads; takes about half a second."""
    return Roofline(threads, _rate(_float_product(), threads), _bandwidth(), _rate(_int8_product(), threads))


def _float_product() -> Model:
    builder = Builder("peak")
    x = builder.input("x", (1, _SIDE, _SIDE, _CHANNELS))
    return builder.build({"y": builder.conv2d(x, _CHANNELS)})


def _int8_product() -> Model:
    builder = Builder("int8 peak")
    activation = Quantization(scale=(0.1,), zero_point=(0,))
    channels = Quantization(scale=(0.01,) * _CHANNELS, zero_point=(0,) * _CHANNELS)
    sums = Quantization(scale=(0.001,) * _CHANNELS, zero_point=(0,) * _CHANNELS)
    weight = np.random.default_rng(0).integers(-127, 128, (_CHANNELS, 1, 1, _CHANNELS)).astype(np.int8)
    x = builder.input("x", (1, _SIDE, _SIDE, _CHANNELS), "int8", quantization=activation)
    y = builder.op(
        "CONV_2D",
        x,
        builder.constant(weight, "weight", quantization=channels),
        builder.constant(np.zeros(_CHANNELS, np.int32), "bias", quantization=sums),
        quantization=activation,
        dtype="int8",
        version=3,
        stride_w=1,
        stride_h=1,
    )
    return builder.build({"y": y})


def _rate(model: Model, threads: int) -> float:
    with Session(model, threads=threads, verify=False) as session:
        session.run(random_inputs(session))
        return model.cost().macs / _best_seconds(session.run) / 1e9


def _bandwidth() -> float:
    source = np.ones(_COPY_BYTES // 8)
    target = np.empty_like(source)
    return 2 * _COPY_BYTES / _best_seconds(lambda: np.copyto(target, source)) / 1e9


def _best_seconds(call: Callable[[], object]) -> float:
    best = float("inf")
    for _ in range(_REPEATS):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best
