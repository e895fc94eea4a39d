# SPDX-License-Identifier: Apache-2.0
"""Does a profile account for the time: every architecture of the zoo, float and int8.

The parts must add up to the latency of the profiled run within 3 %, and at least 95 % of the time inside the graph
must carry an operator of the file.

    python -m benchmarks.measure_profile [--runs N]
"""

from __future__ import annotations

import argparse
import sys

from benchmarks._measure import write_result
from litesmith.measure import profile
from litesmith.model import Model
from litesmith.optimize import quantize
from litesmith.zoo import build, names

SUM_TOLERANCE, LEAST_COVERED = 0.03, 0.95


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=10)
    options = parser.parse_args()
    rows = []
    print(f"{'model':32s} {'ms':>9s} {'parts/latency':>14s} {'has an operator':>16s} {'operators/unprofiled':>21s}")
    for name in names():
        model = build(name)
        for scheme in ("float", "int8"):
            row = _row(f"{name} {scheme}", _in_scheme(model, scheme), options.runs)
            rows.append(row)
            print(
                f"{row['model']:32s} {row['latency_ms']:9.3f} {row['parts']:14.3f} {100 * row['covered']:14.1f} %"
                f" {row['operators']:21.3f}  {'ok' if row['passed'] else 'FAILED'}",
                flush=True,
            )
    passed = all(row["passed"] for row in rows)
    write_result("measure_profile", {"runs": options.runs, "rows": rows, "passed": passed})
    return 0 if passed else 1


def _in_scheme(model: Model, scheme: str) -> Model:
    return model if scheme == "float" else quantize(model, scheme=scheme).model


def _row(name: str, model: Model, runs: int) -> dict[str, object]:
    result = profile(model, runs=runs)
    parts = result.parts_us / result.latency_us
    return {
        "model": name,
        "latency_ms": result.latency_us / 1000,
        "parts": parts,
        "covered": result.covered,
        "operators": result.operators_us / result.unprofiled_us,
        "passed": abs(parts - 1) <= SUM_TOLERANCE and result.covered >= LEAST_COVERED,
    }


if __name__ == "__main__":
    sys.exit(main())
