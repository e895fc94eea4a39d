# SPDX-License-Identifier: Apache-2.0
"""Accuracy, latency and size of float, int8 and int16x8, against ai-edge-quantizer and the wheel's legacy quantizer.

    python -m benchmarks.quantization [--limit 2000]

The bundled sample and every model of the assets that has labelled data, scored on the written file in LiteRT;
MobileNet V2 by agreement with its float self on photographs. All quantizers calibrate on the same samples.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import litesmith
from litesmith import Dataset, Model
from litesmith.measure import bench, machine_facts
from litesmith.result import encode_fields

ROOT = Path(__file__).resolve().parent
ASSETS = Path(os.environ.get("LITESMITH_ASSETS", ROOT.parent.parent / "shared" / "assets"))
IMAGENET = "mean=123.675,116.28,103.53 std=58.395,57.12,57.375"
CIFAR = "scale=1/255 mean=0.485,0.456,0.406 std=0.229,0.224,0.225"
INT16_LIMIT = 100  # stock LiteRT runs int16 on reference kernels: minutes for a thousand images


@dataclass(frozen=True)
class Case:
    name: str
    model: Path
    calibration: Dataset
    test: Dataset
    metric: str = "top1"


def cases() -> Iterator[Case]:
    yield Case(
        "sample",
        litesmith.samples.path(),
        litesmith.samples.dataset("train").take(200),
        litesmith.samples.dataset("test"),
    )
    if not ASSETS.is_dir():
        return
    cifar = {"cifar10/resnet20": CIFAR, "cifar10/resnet56": CIFAR, "mlperf_tiny/ic_resnet8": "dtype=float32"}
    cifar["mlperf_tiny/ic_resnet_large"] = "dtype=float32"
    for name, preprocess in cifar.items():
        train = Dataset.open(ASSETS / "cifar10/train20k.npz", preprocess=preprocess).take(200)
        test = Dataset.open(ASSETS / "cifar10/test.npz", preprocess=preprocess)
        yield Case(name, ASSETS / f"{name}_float.tflite", train, test)
    tiny = ASSETS / "mlperf_tiny"
    calibration, test = Dataset.open(tiny / "kws_calib200.npz"), Dataset.open(tiny / "kws_test800.npz")
    yield Case("mlperf_tiny/kws_dscnn", tiny / "kws_dscnn_float.tflite", calibration, test)
    digits = Dataset.open(ASSETS / "mnist/test.npz", preprocess="scale=1/255")
    for name in ("lstm", "resnet"):
        parts = digits.split(calibrate=0.03, test=0.97)
        yield Case(f"mnist/{name}", ASSETS / f"mnist/{name}_float.tflite", parts["calibrate"].take(200), parts["test"])
    photos = Dataset.open(ASSETS / "vision/photos", preprocess=IMAGENET)
    every = np.arange(len(photos))
    quarter = every % 4 == 0
    model = ASSETS / "vision/mobilenet_v2_float.tflite"
    yield Case("vision/mobilenet_v2", model, photos.subset(every[quarter]), photos.subset(every[~quarter]), "agreement")


def ours(scheme: str) -> Callable[[Case], Model]:
    return lambda case: litesmith.quantize(Model.load(case.model), scheme=scheme, data=case.calibration).model


def ai_edge_quantizer(case: Case) -> Model:
    from ai_edge_quantizer import quantizer, recipe

    model = Model.load(case.model)
    if not model.signatures:
        raise RuntimeError("it cannot calibrate a file without a signature")
    signature = model.signatures[0]
    samples = [dict(sample.inputs) for sample in case.calibration.bind(model)]
    tool = quantizer.Quantizer(str(case.model))
    tool.load_quantization_recipe(recipe.static_wi8_ai8())
    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        ranges = tool.calibrate({signature.key: samples})
        result = Model.from_bytes(bytes(tool.quantize(ranges).quantized_model))
    if not any(t.dtype == "int8" for t in result.main.tensors):
        raise RuntimeError("it returned the float model and said nothing")
    return result


LEGACY = """
import sys, numpy as np
from ai_edge_litert import _pywrap_tensorflow_lite_calibration_wrapper as w
model = open(sys.argv[1], "rb").read()
data = np.load(sys.argv[2])["x"]
c = w.CalibrationWrapper(model, [], [])
c.Prepare()
for x in data:
    c.FeedTensor([x])
real, activation, bias = (np.dtype(t).num for t in ("float32", "int8", "int32"))
open(sys.argv[3], "wb").write(c.QuantizeModel(real, real, True, activation, bias, False, False))
"""


def legacy_quantizer(case: Case) -> Model:
    """Run the wheel's old quantizer in a process of its own: it is private, and known to crash."""
    with tempfile.TemporaryDirectory() as folder:
        data, output = Path(folder) / "x.npz", Path(folder) / "q.tflite"
        inputs = [next(iter(s.inputs.values())) for s in case.calibration.bind(Model.load(case.model))]
        np.savez(data, x=np.stack(inputs))
        command = [sys.executable, "-c", LEGACY, str(case.model), str(data), str(output)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode or not output.exists():
            reason = done.stderr.strip().splitlines()
            raise RuntimeError(reason[-1][:120] if reason else f"exit code {done.returncode}")
        return Model.load(output)


MAKERS: dict[str, Callable[[Case], Model]] = {
    "float": lambda case: Model.load(case.model),
    "int8": ours("int8"),
    "int16x8": ours("int16x8"),
    "ai-edge-quantizer int8": ai_edge_quantizer,
    "legacy int8": legacy_quantizer,
}


def score(case: Case, model: Path, test: Dataset, kernels: str = "delegate") -> float:
    options: dict[str, Any] = {"metric": case.metric, "kernels": kernels, "processes": 2}
    if case.metric == "agreement":
        options["reference"] = case.model
    return 100 * litesmith.evaluate(model, test, **options).value


def run(case: Case, limit: int, folder: Path) -> dict[str, Any]:
    test = case.test.take(min(limit, len(case.test)))
    few = test.take(min(INT16_LIMIT, len(test)))
    files: dict[str, Path] = {}
    row: dict[str, Any] = {
        "model": case.name,
        "metric": case.metric,
        "samples": len(test),
        "float_on_few": None,
        "files": {},
    }
    for name, make in MAKERS.items():
        entry: dict[str, Any] = {}
        try:
            files[name] = folder / f"{name.replace(' ', '_')}.tflite"
            make(case).save(files[name])
            entry["accuracy"] = score(case, files[name], few if name == "int16x8" else test)
            if name == "int8":
                entry["accuracy_without_xnnpack"] = score(case, files[name], few, "builtin")
                entry["accuracy_on_few"] = score(case, files[name], few)
            if name == "float":
                row["float_on_few"] = score(case, files[name], few)
            entry["size_bytes"] = files[name].stat().st_size
        except Exception as error:  # a peer that fails is a result too
            if not name.startswith(("ai-edge", "legacy")):
                raise
            entry["failure"] = f"{type(error).__name__}: {error}"
            files.pop(name, None)
        row["files"][name] = entry
    measured = bench(*(p for n, p in files.items() if n != "int16x8"), seconds=1.0, memory=False)
    slow = bench(files["int16x8"], runs=10, seconds=1.0, memory=False)
    for latency in (*measured.latencies, *slow.latencies):
        name = next(n for n, p in files.items() if str(p) == latency.configuration.model)
        row["files"][name]["latency_ms"] = latency.summary.median
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--limit", type=int, default=2000)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    rows = []
    for case in cases():
        if arguments.only in case.name:
            with tempfile.TemporaryDirectory() as folder:
                rows.append(run(case, arguments.limit, Path(folder)))
            show(rows[-1])
    target = ROOT / "results" / "quantization.json"
    if not arguments.only:
        target.parent.mkdir(exist_ok=True)
        document = {"machine": encode_fields(machine_facts()), "limit": arguments.limit, "rows": rows}
        target.write_text(json.dumps(document, indent=2) + "\n")


def show(row: dict[str, Any]) -> None:
    few = f"int16x8 on {INT16_LIMIT}, where float has {row['float_on_few']:.2f}"
    print(f"{row['model']}: {row['metric']} on {row['samples']}; {few}")
    for name, entry in row["files"].items():
        if "failure" in entry:
            print(f"  {name:24s} {entry['failure'][:100]}")
            continue
        figures = f"{entry['accuracy']:6.2f} %  {entry['latency_ms']:9.3f} ms  {entry['size_bytes']:>10,} B"
        if name == "int8":
            figures += (
                f"  ({entry['accuracy_on_few']:.2f} on few, {entry['accuracy_without_xnnpack']:.2f} without XNNPACK)"
            )
        print(f"  {name:24s} {figures}", flush=True)


if __name__ == "__main__":
    main()
