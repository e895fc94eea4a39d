# SPDX-License-Identifier: Apache-2.0
"""What zeros do for speed: what to expect of stock LiteRT, and what was measured here, with Litesmith's delegate too."""

from __future__ import annotations

from dataclasses import dataclass

from litesmith.errors import SessionError
from litesmith.model import Model
from litesmith.optimize._prune_arm import expected_on_arm

EXPECTATION_X86 = "none on x86: XNNPACK multiplies with the zeros"


@dataclass(frozen=True)
class PruneSpeed:
    """Latency before and after, medians of one interleaved run.

    Attributes:
        expectation: of stock LiteRT, in words.
        stock_ms: of the original and the pruned model on stock LiteRT (XNNPACK).
        delegate_ms: of the pruned model with Litesmith's delegate in front; None where it is not there.
        note: why it is not there.
    """

    expectation: str
    stock_ms: tuple[float, float]
    delegate_ms: float | None
    note: str

    @property
    def stock_ratio(self) -> float:
        """How many times faster the pruned model is on stock LiteRT."""
        return self.stock_ms[0] / self.stock_ms[1]

    @property
    def delegate_ratio(self) -> float | None:
        """How many times faster it is with Litesmith's delegate."""
        return None if self.delegate_ms is None else self.stock_ms[0] / self.delegate_ms


def measured_speed(before: Model, after: Model, *, threads: int = 1, seconds: float = 1.0) -> PruneSpeed:
    """Return the latencies of a model and its pruned form, on stock LiteRT and with Litesmith's delegate."""
    from litesmith.measure import bench
    from litesmith.runtime import delegate_path

    note = ""
    try:
        delegate_path()
    except SessionError as error:
        note = str(error)
    kernels = ("xnnpack",) if note else ("xnnpack", "delegate")
    result = bench(before, after, threads=threads, kernels=kernels, seconds=seconds, memory=False)
    found = [
        latency.summary.median for latency in result.latencies
    ]  # models one after the other, each with all kernels
    stock = found[0], found[len(kernels)]
    expectation = f"{EXPECTATION_X86}; on Arm {expected_on_arm(after)}"
    return PruneSpeed(expectation, stock, None if note else found[3], note)
