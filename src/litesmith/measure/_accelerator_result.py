# SPDX-License-Identifier: Apache-2.0
"""What is known of accelerators after they were tried: where the model ran, how fast, and what came out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from litesmith.accuracy import MetricScore
from litesmith.errors import UsageError
from litesmith.machine import MachineFacts
from litesmith.measure._memory import MemoryUse
from litesmith.measure._placement import Placement
from litesmith.measure._statistics import Ratio, Summary, summarize
from litesmith.result import Result

WRONG = 0.05  # a difference to the reference kernels of that share of the largest value is no rounding


@dataclass(frozen=True)
class Difference:
    """How far outputs are from those of the reference kernels: at most, and at most as a share of the largest value."""

    largest: float
    relative: float


@dataclass(frozen=True)
class Agreement:
    """What comes out on real samples.

    Attributes:
        samples: how many.
        same_answer: how often the class is that of the reference kernels; None where the output is no vector of scores.
        score: by the metric; None where there is neither a metric nor a class number as label.
    """

    samples: int
    same_answer: float | None
    score: MetricScore | None


@dataclass(frozen=True)
class AcceleratorRun:
    """What was seen of one accelerator; times in milliseconds. ``problem`` says why there is nothing to see."""

    name: str
    title: str
    problem: str = ""
    remedy: str = ""
    placement: Placement | None = None
    load_ms: float = 0.0
    compile_ms: float = 0.0
    first_ms: float = 0.0
    samples_ms: tuple[float, ...] = ()
    memory: MemoryUse | None = None
    difference: Difference | None = None
    agreement: Agreement | None = None
    against_baseline: Ratio | None = None  # of latencies, this / XNNPACK
    verdict: str = ""

    @property
    def summary(self) -> Summary:
        """The quantiles of the latency."""
        return summarize(self.samples_ms)

    @property
    def ran(self) -> bool:
        """Whether operators of the model really ran there."""
        return self.placement is not None and self.placement.ran

    @property
    def is_wrong(self) -> bool:
        """Whether its outputs are too far from the reference kernels' for rounding to explain it."""
        return self.difference is not None and self.difference.relative > WRONG

    @property
    def ready_ms(self) -> float:
        """Time until the first run can start."""
        return self.load_ms + self.compile_ms


@dataclass(frozen=True)
class Accelerators(Result, kind="accelerators", schema=1):
    """What ``accelerators`` measured: those that ran the model, and those that did not with the reason."""

    model: str
    threads: int
    inputs: str
    runs: tuple[AcceleratorRun, ...]
    absent: tuple[AcceleratorRun, ...]
    best: str  # the fastest that really ran the model, with right numbers; of equals, XNNPACK
    machine: MachineFacts
    command: tuple[str, ...]
    complete: bool = True  # False when it was interrupted: the samples are what was taken until then

    def run(self, name: str) -> AcceleratorRun:
        """Return what was seen of one accelerator."""
        found = next((r for r in (*self.runs, *self.absent) if r.name == name), None)
        if found is None:
            raise UsageError(f"{name!r} was not tried; there are: {', '.join(r.name for r in self.runs)}")
        return found

    def plot(self) -> Any:
        """Return a Plotly figure: the distribution of the latency on each accelerator."""
        import plotly.graph_objects as go

        figure = go.Figure(layout={"xaxis_title": "latency (ms)", "showlegend": False, "template": "plotly_white"})
        figure.update_xaxes(type="log")
        for run in reversed(self.runs):
            note = "" if run.ran else " (did not run there)"
            figure.add_box(x=list(run.samples_ms), name=f"{run.title}{note}", boxpoints="outliers")
        return figure
