# SPDX-License-Identifier: Apache-2.0
"""Time the delegate against XNNPACK on the same networks, interleaved, and print a table and JSON.

    python benchmarks/native/bench_delegate.py --library PATH/liblitesmith_delegate.so [--assets FOLDER] [--json FILE]

Each row compares two engines in one process, round by round. ``wall_ms`` is the median over rounds of the fastest
invocation of a round; ``cpu_ms`` the same for the calling thread's CPU time, which a busy machine disturbs less (it
is given for one thread only).
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from litesmith.model import Builder, Model, Value

ROUNDS = 15
INVOCATIONS = 5


def mobilenet_v1(zeros: float, block: int) -> Model:
    """MobileNet V1 1.0 224 with random weights, the given share of its 1x1 weights zero in blocks of ``block`` rows."""
    random = np.random.default_rng(0)
    b = Builder("mobilenet_v1", seed=0)

    def pointwise(x: Value, filters: int, activation: str) -> Value:
        shape = (filters, 1, 1, x.shape[-1])
        keep = np.repeat(random.random((filters // block, *shape[1:])) >= zeros, block, 0)
        scale = np.sqrt(2 / (shape[3] * max(1 - zeros, 0.02)))
        weight = (random.standard_normal(shape) * keep * scale).astype(np.float32)
        return b.conv2d(x, filters, activation=activation, weight=weight)

    x = b.conv2d(b.input("image", (1, 224, 224, 3)), 32, kernel=3, stride=2, activation="RELU6")
    for filters, stride in [
        (64, 1),
        (128, 2),
        (128, 1),
        (256, 2),
        (256, 1),
        (512, 2),
        *[(512, 1)] * 5,
        (1024, 2),
        (1024, 1),
    ]:
        x = pointwise(b.depthwise_conv2d(x, stride=stride, activation="RELU6"), filters, "RELU6")
    x = b.op("MEAN", x, np.array([1, 2], np.int32), keep_dims=True)
    return b.build({"logits": pointwise(x, 1000, "NONE")})


def int16_version(path: Path) -> bytes:
    """Quantize to int16 activations and int8 weights, calibrated on noise: timing does not depend on the values."""
    from ai_edge_litert.interpreter import Interpreter
    from ai_edge_quantizer import quantizer, recipe

    random = np.random.default_rng(0)
    runner = Interpreter(model_path=str(path)).get_signature_runner("serving_default")
    sample = {k: random.uniform(-1, 1, d["shape"]).astype(d["dtype"]) for k, d in runner.get_input_details().items()}
    engine = quantizer.Quantizer(str(path), recipe.static_wi8_ai16())
    return bytes(engine.quantize(engine.calibrate({"serving_default": [sample]})).quantized_model)


def runner(model: bytes, threads: int, library: Path | None, **options: Any) -> Callable[[], None]:
    from ai_edge_litert.interpreter import Interpreter, load_delegate

    delegates = [load_delegate(str(library), {"num_threads": threads, **options})] if library else []
    interpreter = Interpreter(model_content=model, num_threads=threads, experimental_delegates=delegates)
    interpreter.allocate_tensors()
    random = np.random.default_rng(0)
    for d in interpreter.get_input_details():
        interpreter.set_tensor(d["index"], random.uniform(-1, 1, d["shape"]).astype(d["dtype"]))
    interpreter.invoke()
    return interpreter.invoke  # type: ignore[no-any-return]


def measure(engines: dict[str, Callable[[], None]]) -> dict[str, dict[str, float]]:
    """Interleave rounds over all engines."""
    wall: dict[str, list[float]] = {name: [] for name in engines}
    cpu: dict[str, list[float]] = {name: [] for name in engines}
    for _ in range(ROUNDS):
        for name, invoke in engines.items():
            walls, cpus = [], []
            for _ in range(INVOCATIONS):
                w, c = time.perf_counter(), time.thread_time()
                invoke()
                cpus.append(time.thread_time() - c)
                walls.append(time.perf_counter() - w)
            wall[name].append(min(walls) * 1e3)
            cpu[name].append(min(cpus) * 1e3)
    return {n: {"wall_ms": statistics.median(wall[n]), "cpu_ms": statistics.median(cpu[n])} for n in engines}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", type=Path, required=True)
    parser.add_argument("--assets", type=Path, default=Path(__file__).resolve().parents[3] / "shared" / "assets")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    rows: dict[str, dict[str, dict[str, float]]] = {}
    float_path = args.assets / "vision" / "mobilenet_v2_float.tflite"
    if float_path.exists():
        quantized, original = int16_version(float_path), float_path.read_bytes()
        rows["MobileNet V2 int16x8 against float32 XNNPACK"] = measure(
            {
                f"{name} {t}T": runner(model, t, library)
                for t in (1, 2)
                for name, model, library in (("XNNPACK", original, None), ("delegate", quantized, args.library))
            }
        )
    for zeros, block in [(0.8, 1), (0.9, 1), (0.8, 4), (0.9, 4)]:
        model = mobilenet_v1(zeros, block).to_bytes()
        rows[f"MobileNet V1 {zeros:.0%} zeros, {block}x1"] = measure(
            {
                f"{name} {t}T": runner(model, t, library)
                for t in (1, 2)
                for name, library in (("XNNPACK", None), ("delegate", args.library))
            }
        )
    for title, row in rows.items():
        print(title)
        for name, figures in row.items():
            print(f"  {name:12} wall {figures['wall_ms']:7.2f} ms   cpu {figures['cpu_ms']:7.2f} ms")
        for t in (1, 2):
            print(f"  speed-up {t}T  {row[f'XNNPACK {t}T']['wall_ms'] / row[f'delegate {t}T']['wall_ms']:.2f} x (wall)")
    if args.json:
        facts = {"machine": platform.processor() or platform.machine(), "python": platform.python_version()}
        args.json.write_text(json.dumps({"schema": 1, "machine": facts, "rounds": ROUNDS, "results": rows}, indent=2))


if __name__ == "__main__":
    main()
