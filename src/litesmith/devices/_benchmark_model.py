# SPDX-License-Identifier: Apache-2.0
"""What LiteRT's own `benchmark_model` prints, as numbers.

It prints no single runs, only their count, mean, least, most and deviation (tflite/tools/benchmark/benchmark_model.cc and
tflite/core/util/stats_calculator.h of LiteRT): what it does not say is not made up here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from litesmith.errors import DeviceError

_NUMBER = r"(-?[\d.]+(?:e[+-]?\d+)?)"
_RUNS = re.compile(
    rf"count=(\d+)(?: first={_NUMBER})?(?: curr={_NUMBER})? min={_NUMBER} max={_NUMBER} avg={_NUMBER} std={_NUMBER}"
)
_TOTAL = re.compile(
    rf"Inference timings in us: Init: {_NUMBER}, First inference: {_NUMBER}, Warmup \(avg\): {_NUMBER}, "
    rf"Inference \(avg\): {_NUMBER}"
)
_MEMORY = re.compile(rf"[Mm]emory footprint[^:]*\(MB\): init={_NUMBER} overall={_NUMBER}")
_PEAK = re.compile(rf"Overall peak memory footprint \(MB\) via periodic monitoring: {_NUMBER}")
_SECTION = re.compile(r"^=+ (.+?) =+$")


@dataclass(frozen=True)
class RunStatistics:
    """Times of runs in milliseconds, as the tool sums them up."""

    count: int
    mean_ms: float
    min_ms: float
    max_ms: float
    deviation_ms: float


@dataclass(frozen=True)
class ToolOperator:
    """One operator of the tool's own profile."""

    kind: str
    name: str
    mean_ms: float
    share: float


@dataclass(frozen=True)
class ToolOutput:
    """What one run of the tool said; memory in bytes, None where it did not say."""

    init_ms: float
    first_ms: float
    warmup: RunStatistics
    inference: RunStatistics
    memory_bytes: int | None
    peak_bytes: int | None
    operators: tuple[ToolOperator, ...]


def parse(text: str) -> ToolOutput:
    """Read the output of `benchmark_model`.

    Raises:
        DeviceError: It holds no timings; the message has the line that says why, where there is one.
    """
    total, runs = _TOTAL.search(text), _RUNS.findall(text)
    if total is None or len(runs) < 2:
        raise DeviceError(f"benchmark_model measured nothing: {_complaint(text)}")
    memory, peak = _MEMORY.search(text), _PEAK.search(text)
    return ToolOutput(
        init_ms=float(total[1]) / 1000,
        first_ms=float(total[2]) / 1000,
        warmup=_statistics(runs[0]),
        inference=_statistics(runs[1]),
        memory_bytes=round(float(memory[2]) * 2**20) if memory else None,
        peak_bytes=round(float(peak[1]) * 2**20) if peak else None,
        operators=_operators(text),
    )


def _statistics(found: tuple[str, ...]) -> RunStatistics:
    count, _, _, least, most, mean, deviation = found
    times = (float(mean), float(least), float(most), float(deviation))
    return RunStatistics(int(count), *(value / 1000 for value in times))


def _operators(text: str) -> tuple[ToolOperator, ...]:
    """Return the last table in run order: that of the runs, after that of the initialization."""
    tables: list[list[ToolOperator]] = [[]]
    reading = False
    for line in text.splitlines():
        section = _SECTION.match(line.strip())
        if section is not None:
            reading = section[1] == "Run Order"
            if reading:
                tables.append([])
        elif reading and (operator := _operator(line)) is not None:
            tables[-1].append(operator)
    return tuple(tables[-1])


def _operator(line: str) -> ToolOperator | None:
    """Read a row: kind, times with the mean last, two shares, memory, calls, name; older tools have one time more."""
    cells = [cell.strip() for cell in line.split("\t") if cell.strip()]
    shares = [index for index, cell in enumerate(cells) if cell.endswith("%")]
    if len(shares) != 2 or shares[0] < 2:
        return None
    name = cells[-1].partition("]")[0].removeprefix("[")
    return ToolOperator(cells[0], name, float(cells[shares[0] - 1]), float(cells[shares[0]].rstrip("%")) / 100)


def _complaint(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [
        line for line in lines if re.search(r"error|fail|not found|denied|unsupported|No such", line, re.IGNORECASE)
    ]
    return (telling or lines or ["it printed nothing"])[-1]
