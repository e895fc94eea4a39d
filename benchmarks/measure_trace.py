# SPDX-License-Identifier: Apache-2.0
"""How long it takes to write a timeline: 1,000 inferences of MobileNet V2, about 70,000 slices.

python -m benchmarks.measure_trace [--runs N]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from benchmarks._measure import write_result
from litesmith.measure import write_trace
from litesmith.measure._recording import record
from litesmith.runtime import Session, partitions, random_inputs
from litesmith.zoo import build

BUDGET_S = 10.0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=1000)
    options = parser.parse_args()
    model = build("mobilenet_v2")
    pieces = partitions(model)
    with Session(model, profiling=True) as session:
        session.run(random_inputs(session))
        recorded = record(model, session, pieces, runs=options.runs)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.pftrace"
        start = time.perf_counter()
        trace = write_trace(path, model, recorded)
        seconds = time.perf_counter() - start
        size = path.stat().st_size
    passed = seconds < BUDGET_S
    result = {"runs": trace.runs, "slices": trace.slices, "seconds": seconds, "bytes": size, "budget_s": BUDGET_S}
    write_result("measure_trace", {**result, "passed": passed})
    print(f"{trace.runs} runs, {trace.slices:,} slices, {size / 1e6:.1f} MB written in {seconds:.2f} s")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
