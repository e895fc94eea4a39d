# SPDX-License-Identifier: Apache-2.0
"""What `evaluate` costs beside the bare runtime, in interleaved rounds.

    python -m benchmarks.evaluate_overhead [--rounds N]

A loop that only feeds, runs and takes the argmax, against the harness on the same samples: wall time, and CPU time of the
whole process, which other work on the machine disturbs less. Writes results/evaluate_overhead.json and .md.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._measure import RESULTS, write_result
from litesmith.accuracy._named import metric_named
from litesmith.accuracy._predict import Candidate, Job, _observe_range, _Worker
from litesmith.data import Dataset
from litesmith.measure import machine_facts
from litesmith.runtime import Session

ASSETS = Path(os.environ.get("LITESMITH_ASSETS", Path(__file__).resolve().parents[2] / "shared" / "assets"))
CIFAR = "scale=1/255 mean=.485,.456,.406 std=.229,.224,.225"
IMAGENET = "mean=123.675,116.28,103.53 std=58.395,57.12,57.375"
CASES = (
    ("mnist/resnet_float.tflite", "mnist/test.npz", "scale=1/255", 2000),
    ("mlperf_tiny/kws_dscnn_float.tflite", "mlperf_tiny/kws_test800.npz", None, 800),
    ("mlperf_tiny/kws_dscnn_int8.tflite", "mlperf_tiny/kws_test800.npz", None, 800),
    ("mlperf_tiny/ic_resnet8_float.tflite", "cifar10/test.npz", "dtype=float32", 1000),
    ("cifar10/resnet20_float.tflite", "cifar10/test.npz", CIFAR, 400),
    ("vision/mobilenet_v2_float.tflite", "vision/photos", IMAGENET, 60),
)


def clocked(action: Any, samples: int) -> tuple[float, float]:
    """Return wall and CPU time a sample in µs."""
    wall, cpu = time.perf_counter(), time.process_time()
    action()
    return (time.perf_counter() - wall) / samples * 1e6, (time.process_time() - cpu) / samples * 1e6


def compared(bare: Any, harness: Any, samples: int, rounds: int) -> dict[str, float]:
    bare(), harness()
    times = np.array([[clocked(bare, samples), clocked(harness, samples)] for _ in range(rounds)])
    ratios = times[:, 1] / times[:, 0]
    best = times.min(axis=0)
    return {
        "bare_us": float(best[0, 0]),
        "harness_us": float(best[1, 0]),
        "wall_ratio_median": float(np.median(ratios[:, 0])),
        "cpu_ratio_median": float(np.median(ratios[:, 1])),
        "wall_ratio_of_minima": float(best[1, 0] / best[0, 0]),
    }


def evaluate_case(model: Path, data: Path, preprocess: str | None, samples: int, rounds: int) -> dict[str, Any]:
    dataset = Dataset.open(data, preprocess=preprocess)[:samples]
    if dataset.labels is None:
        arrays = np.stack([sample.x for sample in dataset])
        dataset = Dataset.from_arrays(arrays, np.zeros(len(arrays), np.int64))
    samples = len(dataset)
    metric = metric_named("top1", labels=dataset.labels, class_names=None)
    worker = _Worker(Job(Candidate.of(model), dataset, metric))
    session = Session(model)
    (view,), (result,) = session.inputs.values(), session.outputs.values()
    batch = next(worker.dataset.batches(samples))
    inputs = worker.runner.prepare(batch.inputs)
    block = next(iter(inputs.values())).reshape(samples, *view.shape)

    def bare() -> None:
        for sample in block:
            view[...] = sample
            session.run()
            result.argmax()

    found = compared(bare, lambda: _observe_range(worker, 0, samples, lambda _n: None), samples, rounds)
    return {"model": model.name, "samples": samples, **found}


def page(results: list[dict[str, Any]]) -> str:
    lines = [
        "# What `evaluate` adds to the bare runtime",
        "",
        f"`python -m benchmarks.evaluate_overhead` on {machine_facts().cpu}, 1 thread.",
        "",
        "| model | samples | bare, µs | harness, µs | CPU ratio | wall ratio |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    lines += [
        f"| {r['model']} | {r['samples']} | {r['bare_us']:.1f} | {r['harness_us']:.1f} | {r['cpu_ratio_median']:.3f} "
        f"| {r['wall_ratio_median']:.3f} |"
        for r in results
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    if not ASSETS.is_dir():
        raise SystemExit(f"there are no assets at {ASSETS}; set LITESMITH_ASSETS")
    results = [evaluate_case(ASSETS / m, ASSETS / d, p, n, options.rounds) for m, d, p, n in CASES]
    write_result("evaluate_overhead", {"rounds": options.rounds, "cases": results})
    (RESULTS / "evaluate_overhead.md").write_text(page(results), encoding="utf-8")
    print(page(results))


if __name__ == "__main__":
    main()
