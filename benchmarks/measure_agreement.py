# SPDX-License-Identifier: Apache-2.0
"""`bench` against the wheel's own `litert-benchmark`: the same figure, and also where that tool fails.

Both are run as programs, in turn, one of each in a round, so that what else the machine does meets both alike; the
result is the median over the rounds of the ratio of their medians.

    python -m benchmarks.measure_agreement [--rounds N]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks._measure import write_result
from litesmith.measure import Bench
from litesmith.model import Builder, Model, Quantization
from litesmith.optimize import quantize
from litesmith.zoo import build

TOLERANCE = 0.03
RUNS, WARMUP = 200, 50


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = [_agreement(name, path, options.rounds) for name, path in _comparable(Path(folder)).items()] + [
            _only_ours(name, path) for name, path in _incomparable(Path(folder)).items()
        ]
    passed = all(row["passed"] for row in rows)
    write_result(
        "measure_agreement", {"tolerance": TOLERANCE, "rounds": options.rounds, "rows": rows, "passed": passed}
    )
    print(f"{'model':24s} {'bench ms':>9s} {'litert-benchmark ms':>20s} {'ratio':>7s}")
    for row in rows:
        theirs = f"{row['theirs_ms']:20.3f} {row['ratio']:7.3f}" if "ratio" in row else f"{row['theirs']:>28s}"
        print(f"{row['model']:24s} {row['ours_ms']:9.3f} {theirs}  {'ok' if row['passed'] else 'FAILED'}")
    return 0 if passed else 1


def _comparable(folder: Path) -> dict[str, Path]:
    model = build("mobilenet_v2")
    found = {"mobilenet_v2 float": model, "mobilenet_v2 int8": quantize(model, scheme="int8").model}
    return {name: _saved(model, folder / f"{name.replace(' ', '_')}.tflite") for name, model in found.items()}


def _incomparable(folder: Path) -> dict[str, Path]:
    """Return models with inputs that the Python API of the wheel cannot take."""
    b = Builder()
    scale = Quantization(scale=(0.001,), zero_point=(0,))
    x = b.input("x", (1, 1024), "int16", quantization=scale)
    int16 = b.build({"y": b.op("MUL", x, x, quantization=scale, dtype="int16")})
    b = Builder()
    tokens = b.input("tokens", (1, 128), "int64")
    int64 = b.build({"y": b.op("CAST", tokens, dtype="float32", in_data_type="INT64")})
    return {
        "int16 input": _saved(int16, folder / "int16.tflite"),
        "int64 input": _saved(int64, folder / "int64.tflite"),
    }


def _saved(model: Model, path: Path) -> Path:
    model.save(path)
    return path


def _agreement(name: str, path: Path, rounds: int) -> dict[str, object]:
    ours, theirs = [], []
    for number in range(rounds):
        for tool in (("ours", "theirs"), ("theirs", "ours"))[number % 2]:
            if tool == "ours":
                ours.append(_ours(path))
            else:
                theirs.append(_theirs(path))
    ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
    ratio = float(np.median(ratios))
    return {
        "model": name,
        "ours_ms": float(np.median(ours)),
        "theirs_ms": float(np.median(theirs)),
        "ratio": ratio,
        "ratios": [round(r, 4) for r in ratios],
        "passed": abs(ratio - 1) <= TOLERANCE,
    }


def _only_ours(name: str, path: Path) -> dict[str, object]:
    try:
        theirs = f"{_theirs(path):.3f} ms"
    except subprocess.CalledProcessError as error:
        theirs = (error.stderr.strip().splitlines() or ["failed"])[-1]
    return {"model": name, "ours_ms": _ours(path), "theirs": theirs, "passed": True}


def _ours(path: Path) -> float:
    command = [sys.executable, "-m", "litesmith", "bench", path, "--runs", RUNS, "--no-memory", "--json"]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=True)
    return Bench.from_json(done.stdout).latencies[0].summary.median


def _theirs(path: Path) -> float:
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        command = [sys.executable, "-m", "ai_edge_litert.tools.benchmark_litert_model", f"--model={path}"]
        command += [f"--num_runs={RUNS}", f"--warmup_runs={WARMUP}", f"--result_json={file.name}"]
        subprocess.run(command, capture_output=True, text=True, check=True)
        return float(json.loads(Path(file.name).read_text())["latency"]["median_ms"])


if __name__ == "__main__":
    sys.exit(main())
