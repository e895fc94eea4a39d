# SPDX-License-Identifier: Apache-2.0
"""What `Session.run()` costs over the bare C call, `LiteRtRunCompiledModel` by ctypes with prepared arguments.

Both run the same compiled model, in interleaved blocks, so that what else the machine does meets both alike. The
cost is the difference of the two medians within a round; the result is the median over the rounds.

    python benchmarks/runtime_overhead.py [MODEL] [--json FILE]
"""

from __future__ import annotations

import argparse
import functools
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from litesmith.runtime import Session, litert_version
from litesmith.runtime._compiled import CompiledBackend
from litesmith.runtime._selfcheck import TINY_MODEL

BUDGET_US = 15.0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", nargs="?", type=Path, help="a .tflite; a model of one ADD by default")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--calls", type=int, default=500, help="calls in a block")
    parser.add_argument("--json", type=Path, help="also write the result here")
    options = parser.parse_args()

    with Session(options.model or TINY_MODEL, backend="compiled") as session:
        medians = measure(session, rounds=options.rounds, calls=options.calls)
    bare, run, fed = (np.array(medians[name]) for name in ("bare", "run", "fed"))
    result = {
        "model": str(options.model or "one ADD"),
        "bare_us": round(float(np.median(bare)), 2),
        "run_over_bare_us": round(float(np.median(run - bare)), 2),
        "run_with_feeds_over_bare_us": round(float(np.median(fed - bare)), 2),
        "budget_us": BUDGET_US,
        "rounds": options.rounds,
        "calls_per_block": options.calls,
        "python": platform.python_version(),
        "litert": litert_version(),
        "machine": platform.machine(),
    }
    text = json.dumps(result, indent=2)
    print(text)
    if options.json:
        options.json.write_text(text + "\n", encoding="utf-8")
    return 0 if result["run_over_bare_us"] <= BUDGET_US else 1


def measure(session: Session, *, rounds: int, calls: int) -> dict[str, list[float]]:
    """Return the median time in µs of each round, for the bare call, for run() and for run() with feeds."""
    backend = session._backend  # noqa: SLF001  (what lies beneath is what this is about)
    assert isinstance(backend, CompiledBackend)
    binding = backend._binding  # noqa: SLF001
    assert binding is not None
    feeds = {name: array.copy() for name, array in session.inputs.items()}
    subjects: dict[str, Callable[[], object]] = {
        "bare": functools.partial(binding.run_function, *binding.run_arguments),
        "run": session.run,
        "fed": functools.partial(session.run, feeds),
    }
    for subject in subjects.values():
        block_us(subject, calls)  # warm up
    medians: dict[str, list[float]] = {name: [] for name in subjects}
    for _ in range(rounds):
        for name, subject in subjects.items():
            medians[name].append(block_us(subject, calls))
    return medians


def block_us(call: Callable[[], object], calls: int) -> float:
    """Return the median time of a call in µs."""
    samples = []
    for _ in range(calls):
        started = time.perf_counter_ns()
        call()
        samples.append(time.perf_counter_ns() - started)
    return statistics.median(samples) / 1e3


if __name__ == "__main__":
    sys.exit(main())
