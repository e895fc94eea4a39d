# SPDX-License-Identifier: Apache-2.0
"""What measuring costs: the harness of `bench` over a bare loop, and the profiler over none.

All variants run in turn in short blocks, so that what else the machine does meets all alike; a figure is the median
over the rounds of the difference of the block medians.

    python -m benchmarks.measure_overhead [--rounds N]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

import numpy as np

from benchmarks._measure import write_result
from litesmith.measure._timing import Timed, _time_ms
from litesmith.model import Model
from litesmith.optimize import quantize
from litesmith.runtime import Session, random_inputs
from litesmith.zoo import build

HARNESS_US, HARNESS_SHARE = 20.0, 0.01
PROFILER_SHARE = 0.10


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=40)
    options = parser.parse_args()
    float_model = build("mobilenet_v2")
    models = {"mobilenet_v2 float": float_model, "mobilenet_v2 int8": quantize(float_model, scheme="int8").model}
    rows = [_measure(name, model, options.rounds) for name, model in models.items()]
    passed = all(row["passed"] for row in rows)
    write_result("measure_overhead", {"rounds": options.rounds, "rows": rows, "passed": passed})
    print(f"{'model':24s} {'latency ms':>10s} {'harness µs':>11s} {'profiler':>9s}")
    for row in rows:
        print(
            f"{row['model']:24s} {row['latency_ms']:10.3f} {row['harness_us']:11.2f} {100 * row['profiler']:8.1f}%"
            f"  {'ok' if row['passed'] else 'FAILED'}"
        )
    return 0 if passed else 1


def _measure(name: str, model: Model, rounds: int) -> dict[str, object]:
    with Session(model) as session, Session(model, profiling=True) as profiled:
        for one in (session, profiled):
            one.run(random_inputs(one))
        harness = Timed(name, session.run)
        blocks: dict[str, list[float]] = {"bare": [], "harness": [], "profiled": []}
        calls = max(3, round(0.1 / (_block(session.run, 3) / 1000)))
        for _ in range(rounds):
            # What is left out of the clock of `bench` is in here: the time of the whole block, not of its samples.
            blocks["bare"].append(_block(session.run, calls))
            blocks["harness"].append(_block(lambda: _time_ms(harness), calls))
            profiled.start_profile()
            blocks["profiled"].append(_block(profiled.run, calls))
            profiled.stop_profile()
    bare, harness_ms, profiled_ms = (np.array(blocks[key]) for key in ("bare", "harness", "profiled"))
    latency = float(np.median(bare))
    harness_us = 1000 * float(np.median(harness_ms - bare))
    profiler = float(np.median(profiled_ms / bare)) - 1
    small = harness_us <= HARNESS_US or harness_us / 1000 / latency <= HARNESS_SHARE
    return {
        "model": name,
        "latency_ms": latency,
        "harness_us": harness_us,
        "profiler": profiler,
        "passed": small and profiler <= PROFILER_SHARE,
    }


def _block(call: Callable[[], object], calls: int) -> float:
    """Return the median time of a call in ms."""
    samples = []
    for _ in range(calls):
        start = time.perf_counter_ns()
        call()
        samples.append(time.perf_counter_ns() - start)
    return float(np.median(samples)) / 1e6


if __name__ == "__main__":
    sys.exit(main())
