# SPDX-License-Identifier: Apache-2.0
"""What quantization costs, as ratios of times measured in turn, and how small it makes the zoo.

    python -m benchmarks.quantization_cost [--rounds 3] [--sizes]

MobileNet V2 of the assets, one thread: `dynamic` against float latency; calibration, `diagnose` and a whole `quantize`
with recovery against plain inference of the same samples. Sizes: of every convolutional net of the zoo, against float,
and the least that LiteRT lets int8 take. Writes results/quantization_cost.json and .md; `--sizes` measures no times and
keeps those that are there.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._measure import RESULTS, write_result
from litesmith import Dataset, Model, calibrate, diagnose, quantize, zoo
from litesmith.measure import bench, machine_facts
from litesmith.optimize._run import GraphRunner, feeds

ROOT = Path(__file__).resolve().parent
ASSETS = Path(os.environ.get("LITESMITH_ASSETS", ROOT.parent.parent / "shared" / "assets"))
IMAGENET = "mean=123.675,116.28,103.53 std=58.395,57.12,57.375"
SAMPLES = 200
BARS = {"dynamic": 0.75, "calibrate": 2.0, "diagnose": 4.0, "quantize": 25.0, "float16": 0.505, "8 bits": 0.26}
NO_CNN = {"deepspeech", "mobilebert"}
SMALL_SCHEMES = ("int8", "dynamic", "weights8", "int16x8")


def seconds(action: Callable[[], Any]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def ratio(action: Callable[[], Any], plain: Callable[[], Any], rounds: int) -> float:
    """Return the median over rounds of the time of an action by that of plain inference before and after it."""
    found = []
    for _ in range(rounds):
        before, middle, after = seconds(plain), seconds(action), seconds(plain)
        found.append(2 * middle / (before + after))
    return statistics.median(found)


def mobilenet(rounds: int) -> dict[str, float]:
    path = ASSETS / "vision/mobilenet_v2_float.tflite"
    model = Model.load(path)
    opened = Dataset.open(ASSETS / "vision/photos", preprocess=IMAGENET).take(SAMPLES)
    fed = list(feeds(model, opened))
    arrays = np.concatenate([next(iter(feed.values())) for feed in fed])
    data = Dataset.from_arrays(arrays)  # decoded once: what is measured is not the decoding
    runner = GraphRunner(model)

    def plain() -> None:
        for feed in fed:
            runner.run(feed)

    plain()
    made: list[Model] = []
    whole = ratio(lambda: made.append(quantize(model, data=data).model), plain, max(1, rounds // 3))
    quantized = made[-1]
    dynamic = quantize(model, scheme="dynamic").model
    latencies = bench(model, dynamic, seconds=2.0 * rounds, memory=False).latencies
    return {
        "dynamic": latencies[1].summary.median / latencies[0].summary.median,
        "calibrate": ratio(lambda: calibrate(model, data), plain, rounds),
        "diagnose": ratio(lambda: diagnose(model, quantized, data, samples=SAMPLES), plain, rounds),
        "quantize": whole,
    }


def sizes() -> dict[str, dict[str, float]]:
    """Return the size of each convolutional net of the zoo by scheme, as a share of float."""
    found = {}
    for name in sorted(set(zoo.names()) - NO_CNN):
        model = zoo.build(name)
        before = len(model.to_bytes())
        found[name] = {  # the size does not depend on the ranges, so that none need be observed
            scheme: len(quantize(model, scheme=scheme, check=False).model.to_bytes()) / before
            for scheme in ("float16", *SMALL_SCHEMES)
        }
        found[name]["int8 at least"] = _least_bytes(quantize(model, check=False).model) / before
        print(name, {scheme: f"{100 * share:.1f} %" for scheme, share in found[name].items()}, flush=True)
    return found


def _least_bytes(model: Model) -> int:
    """Return the bytes of constants, scales and zero points, equal zero points once: tables and names come on top."""
    constants = {id(t.buffer): len(t.buffer) for t in model.main.tensors if t.buffer is not None}
    parameters = [t.quantization for t in model.main.tensors if t.quantization is not None]
    zero_points = {q.zero_point for q in parameters}
    return sum(constants.values()) + sum(4 * len(q.scale) for q in parameters) + sum(8 * len(z) for z in zero_points)


def page(costs: dict[str, float], shares: dict[str, dict[str, float]]) -> str:
    lines = [
        "# What quantization costs",
        "",
        f"`python -m benchmarks.quantization_cost` on {machine_facts().cpu}, 1 thread. MobileNet V2, {SAMPLES} samples.",
        "",
        "| what | by plain inference | bar |",
        "| --- | ---: | ---: |",
        *(f"| {name} | {value:.2f} | {BARS[name]:.2f} |" for name, value in costs.items()),
        "",
        "| zoo, size by float | " + " | ".join(next(iter(shares.values()))) + " |",
        "| --- |" + " ---: |" * len(next(iter(shares.values()))),
        *(
            f"| {name} | " + " | ".join(f"{100 * share:.1f} %" for share in row.values()) + " |"
            for name, row in shares.items()
        ),
        "",
        "Besides a byte for each weight, int8 takes 4 bytes for each bias, 4 for the scale of each channel and 4 for that",
        "of its bias, without which XNNPACK leaves the layer to slower kernels. LiteRT wants as many zero points as scales;",
        "equal ones are stored once. So a net of many thin layers, such as MobileNet V2, stays above 26 %.",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sizes", action="store_true", help="only the sizes; times stay as they are")
    arguments = parser.parse_args()
    kept: dict[str, Any] = {}  # with the machine that the times are of
    if arguments.sizes:
        kept = json.loads((RESULTS / "quantization_cost.json").read_text(encoding="utf-8"))
    costs = kept.get("costs") or (mobilenet(arguments.rounds) if ASSETS.is_dir() else {})
    print({name: f"{value:.2f} of at most {BARS[name]:.2f}" for name, value in costs.items()}, flush=True)
    shares = sizes()
    write_result("quantization_cost", kept | {"bars": BARS, "costs": costs, "sizes": shares})
    (RESULTS / "quantization_cost.md").write_text(page(costs, shares), encoding="utf-8")


if __name__ == "__main__":
    main()
