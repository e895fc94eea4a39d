# SPDX-License-Identifier: Apache-2.0
"""Two results: is the difference real. The effect with its interval, and "not significant" where it is not."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from litesmith.errors import UsageError
from litesmith.measure._bench import Bench, Latency, bench
from litesmith.measure._statistics import CONFIDENCE, chance, compare_medians
from litesmith.model import Model
from litesmith.result import Result

QUANTITIES = ("latency", "size", "memory")
_BOUND = re.compile(r"\s*(\w+)\s*(>|<)\s*([+-]?\d+(?:\.\d+)?)\s*%\s*")


@dataclass(frozen=True)
class Change:
    """How one quantity changed from A to B: the ratio B / A, its 95 % interval, and whether it is beyond doubt."""

    quantity: str
    unit: str
    before: float
    after: float
    ratio: float
    low: float
    high: float
    p_value: float | None = None  # of the test; None for what is counted, not sampled

    @property
    def significant(self) -> bool:
        """Whether the interval of the ratio leaves out 1, and the test agrees."""
        sure = self.p_value is None or self.p_value < 1 - CONFIDENCE
        return sure and not self.low <= 1 <= self.high


@dataclass(frozen=True)
class Comparison(Result, kind="comparison", schema=1):
    """What ``compare`` found."""

    before: str
    after: str
    changes: tuple[Change, ...]
    interleaved: bool
    warnings: tuple[str, ...]
    broken: tuple[str, ...]  # the bounds of ``fail_if`` that do not hold
    complete: bool = True  # False when the measurement was interrupted
    checked: tuple[str, ...] = ()  # what was found where a bound is no ratio of the two, in words

    def change(self, quantity: str) -> Change:
        """Return the change of one quantity."""
        return next(c for c in self.changes if c.quantity == quantity)

    def plot(self) -> Any:
        """Return a Plotly figure: the ratio of each quantity with its interval, and the line of no change."""
        import plotly.graph_objects as go

        figure = go.Figure(layout={"xaxis_title": f"{self.after} / {self.before}", "template": "plotly_white"})
        figure.add_scatter(
            x=[c.ratio for c in self.changes],
            y=[c.quantity for c in self.changes],
            error_x={
                "type": "data",
                "array": [c.high - c.ratio for c in self.changes],
                "arrayminus": [c.ratio - c.low for c in self.changes],
            },
            mode="markers",
        )
        figure.add_vline(x=1, line_dash="dot")
        return figure


def compare(
    before: Bench | Model | str | Path,
    after: Bench | Model | str | Path,
    *,
    threads: int = 1,
    kernels: str = "delegate",
    seconds: float = 3.0,
    fail_if: str | tuple[str, ...] = (),
    allow_other_machine: bool = False,
) -> Comparison:
    """Compare two results of ``bench``, or two models measured now, interleaved.

    Args:
        before: A result, the `.json` of one, a Model, the path of a `.tflite`, or a `litesmith.lock` for its winner.
        after: The same kind of thing.
        threads: Threads, for models.
        kernels: As in ``bench``, for models.
        seconds: Time for each model.
        fail_if: Bounds such as "latency>+3%" or "size>0%"; those that do not hold are in ``broken``. A latency
            breaks a bound only when its whole interval lies beyond it.
        allow_other_machine: Compare results of different machines all the same.

    Example:
        >>> import litesmith
        >>> model = litesmith.samples.model()
        >>> litesmith.compare(model, model, seconds=0.2).change("size").ratio
        1.0
    """
    bounds = [parse_bound(text) for text in ([fail_if] if isinstance(fail_if, str) else fail_if)]
    first, second = _result(before), _result(after)
    if (first is None) != (second is None):
        raise UsageError("compare takes two results or two models, not one of each; measure the model with bench first")
    warnings: list[str] = []
    if first is None or second is None:
        measured = bench(_model(before), _model(after), threads=threads, kernels=kernels, seconds=seconds)
        a, b = measured.latencies
        complete = measured.complete
    else:
        a, b = _only(first, before), _only(second, after)
        warnings = _differences(first, second, allow_other_machine=allow_other_machine)
        complete = first.complete and second.complete
    changes = _changes(a, b, interleaved=first is None)
    return Comparison(
        before=a.configuration.label,
        after=b.configuration.label,
        changes=changes,
        interleaved=first is None,
        warnings=tuple(warnings),
        broken=tuple(text for q, sign, share, text in bounds if _breaks(changes, q, sign, share)),
        complete=complete,
    )


def parse_bound(text: str) -> tuple[str, str, float, str]:
    """Return (quantity, sign, ratio, text) of a bound such as "latency>+3%"."""
    match = _BOUND.fullmatch(text)
    if not match or match[1] not in QUANTITIES:
        raise UsageError(f"{text!r} is not a bound; write one like 'latency>+3%', of {', '.join(QUANTITIES)}")
    return match[1], match[2], 1 + float(match[3]) / 100, text


def _breaks(changes: tuple[Change, ...], quantity: str, sign: str, share: float) -> bool:
    change = next((c for c in changes if c.quantity == quantity), None)
    if change is None:
        raise UsageError(f"the results do not tell {quantity}, so a bound on it cannot be checked")
    return change.low > share if sign == ">" else change.high < share


def _result(source: Bench | Model | str | Path) -> Bench | None:
    if isinstance(source, Bench):
        return source
    if isinstance(source, (str, Path)) and Path(source).suffix == ".json":
        path = Path(source)
        try:
            return Bench.from_json(path)
        except OSError as error:
            raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    return None


def _model(source: Bench | Model | str | Path) -> Model | str | Path:
    assert not isinstance(source, Bench)
    if isinstance(source, (str, Path)) and Path(source).suffix == ".lock":
        return Path(source).parent / "winner.tflite"
    return source


def _only(result: Bench, source: object) -> Latency:
    if len(result.latencies) != 1:
        raise UsageError(f"{source} holds {len(result.latencies)} measurements; compare takes results of one each")
    return result.latencies[0]


def _differences(first: Bench, second: Bench, *, allow_other_machine: bool) -> list[str]:
    if first.machine.identity != second.machine.identity:
        text = f"the results are of different machines: {first.machine.cpu} and {second.machine.cpu}"
        if not allow_other_machine:
            raise UsageError(
                f"{text}; their difference is not the model's (to see it all the same: --allow-other-machine)"
            )
        return [text]
    found = ["the results were taken at different times: drift of the machine is in the difference; measure both now"]
    if first.machine.versions != second.machine.versions:
        found.append(f"the versions differ: {first.machine.versions} and {second.machine.versions}")
    return found


def _changes(a: Latency, b: Latency, *, interleaved: bool) -> tuple[Change, ...]:
    size = b.size_bytes / a.size_bytes
    found = [
        _latency(a, b, interleaved=interleaved),
        Change("size", "bytes", a.size_bytes, b.size_bytes, size, size, size),
    ]
    if a.memory and b.memory and a.memory.model_bytes > 0:
        memory = b.memory.model_bytes / a.memory.model_bytes
        found.append(Change("memory", "bytes", a.memory.model_bytes, b.memory.model_bytes, memory, memory, memory))
    return tuple(found)


def _latency(a: Latency, b: Latency, *, interleaved: bool) -> Change:
    first, second = np.array(a.samples_ms), np.array(b.samples_ms)
    ratio = compare_medians(first, second, paired=interleaved)
    p_value = chance(first, second, paired=interleaved)
    return Change("latency", "ms", a.summary.median, b.summary.median, ratio.value, ratio.low, ratio.high, p_value)
