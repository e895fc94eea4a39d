# SPDX-License-Identifier: Apache-2.0
"""Accuracy, latency and size of each scheme, against ai-edge-quantizer and the wheel's legacy quantizer.

    python -m benchmarks.quantization [--limit 10000] [--only resnet] [--latency]

The bundled sample and every model of the assets that has data, scored on the written file in LiteRT, with XNNPACK and
without; models without labels by agreement with their float selves on photographs. All quantizers calibrate on the same
samples. Writes results/quantization.json and .md.
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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import litesmith
from benchmarks._measure import RESULTS, write_result
from litesmith import Dataset, Model
from litesmith.accuracy import Evaluation
from litesmith.measure import bench, machine_facts
from litesmith.optimize._run import GraphRunner, feeds

ROOT = Path(__file__).resolve().parent
ASSETS = Path(os.environ.get("LITESMITH_ASSETS", ROOT.parent.parent / "shared" / "assets"))
IMAGENET = "mean=123.675,116.28,103.53 std=58.395,57.12,57.375"
CIFAR = "scale=1/255 mean=0.485,0.456,0.406 std=0.229,0.224,0.225"
MOBILENET_V1 = "mean=127.5 std=127.5"
BUILTIN_LIMIT = 300  # without XNNPACK kernels are several times slower
STOCK_INT16_LIMIT = 4  # stock LiteRT runs int16 on reference kernels; these samples show that the delegate is equal
CALIBRATION = 200
FEW = 12


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
        litesmith.samples.dataset("train").take(CALIBRATION),
        litesmith.samples.dataset("test"),
    )
    if not ASSETS.is_dir():
        return
    cifar = {"cifar10/resnet20": CIFAR, "cifar10/resnet56": CIFAR, "mlperf_tiny/ic_resnet8": "dtype=float32"}
    cifar["mlperf_tiny/ic_resnet_large"] = "dtype=float32"
    for name, preprocess in cifar.items():
        train = Dataset.open(ASSETS / "cifar10/train20k.npz", preprocess=preprocess).take(CALIBRATION)
        test = Dataset.open(ASSETS / "cifar10/test.npz", preprocess=preprocess)
        yield Case(name, ASSETS / f"{name}_float.tflite", train, test)
    tiny = ASSETS / "mlperf_tiny"
    calibration, test = Dataset.open(tiny / "kws_calib200.npz"), Dataset.open(tiny / "kws_test800.npz")
    yield Case("mlperf_tiny/kws_dscnn", tiny / "kws_dscnn_float.tflite", calibration, test)
    digits = Dataset.open(ASSETS / "mnist/test.npz", preprocess="scale=1/255")
    for name in ("lstm", "resnet"):
        parts = digits.split(calibrate=0.03, test=0.97)
        yield Case(
            f"mnist/{name}", ASSETS / f"mnist/{name}_float.tflite", parts["calibrate"].take(CALIBRATION), parts["test"]
        )
    for name, preprocess in (("mobilenet_v2", IMAGENET), ("mobilenet_v1_0.25_224", MOBILENET_V1)):
        photos = Dataset.open(ASSETS / "vision/photos", preprocess=preprocess)
        every = np.arange(len(photos))
        quarter = every % 4 == 0
        model = ASSETS / f"vision/{name}_float.tflite"
        yield Case(f"vision/{name}", model, photos.subset(every[quarter]), photos.subset(every[~quarter]), "agreement")


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
    "dynamic": ours("dynamic"),
    "float16": ours("float16"),
    "ai-edge-quantizer int8": ai_edge_quantizer,
    "legacy int8": legacy_quantizer,
}
PEERS = ("ai-edge-quantizer int8", "legacy int8")


def score(case: Case, model: Path, test: Dataset, kernels: str = "delegate", **options: Any) -> Evaluation:
    if case.metric == "agreement":
        options["reference"] = case.model
    return litesmith.evaluate(model, test, metric=case.metric, kernels=kernels, processes=2, **options)


def run(case: Case, limit: int, folder: Path) -> dict[str, Any]:
    test = case.test.take(min(limit, len(case.test)))
    few = test.take(min(BUILTIN_LIMIT, len(test)))
    files: dict[str, Path] = {}
    rows: dict[str, Any] = {}
    for name, make in MAKERS.items():
        path = folder / f"{name.replace(' ', '_')}.tflite"
        try:
            make(case).save(path)
            scored = score(case, path, test, against=files["int8"] if name in PEERS else None)
            rows[name] = {"accuracy": 100 * scored.value, "size_bytes": path.stat().st_size}
            if scored.drop is not None:  # what a peer loses against int8 by Litesmith, on the same samples
                rows[name] |= {"behind": 100 * scored.drop.drop, "p_value": scored.drop.p_value}
        except Exception as error:
            if name not in PEERS:
                raise
            rows[name] = {"failure": f"{type(error).__name__}: {error}"}  # a peer that fails is a result too
            continue
        files[name] = path
        if name in ("float", "int8"):
            rows[name]["accuracy_few"] = 100 * score(case, path, few).value
            rows[name]["accuracy_few_without_xnnpack"] = 100 * score(case, path, few, "builtin").value
    rows["int16x8"]["delegate_equals_stock"] = same_outputs(files["int16x8"], test.take(STOCK_INT16_LIMIT))
    for name, latency_ms in latencies(files).items():
        rows[name]["latency_ms"] = latency_ms
    return {"model": case.name, "metric": case.metric, "samples": len(test), "few": len(few), "files": rows}


def latencies(files: dict[str, Path]) -> dict[str, float]:
    timed = bench(*files.values(), seconds=0.7, memory=False).latencies
    return {name: latency.summary.median for name, latency in zip(files, timed, strict=True)}


def time_again(case: Case, row: dict[str, Any], folder: Path) -> None:
    """Measure the latencies of a row anew, on files from a few samples: they do not depend on the weights' values."""
    few = replace(case, calibration=case.calibration.take(FEW))
    files: dict[str, Path] = {}
    for name in [n for n, entry in row["files"].items() if "failure" not in entry]:
        files[name] = folder / f"{name.replace(' ', '_')}.tflite"
        MAKERS[name](few).save(files[name])
    for name, latency_ms in latencies(files).items():
        row["files"][name]["latency_ms"] = latency_ms


def same_outputs(model: Path, samples: Dataset) -> bool:
    """Say whether the delegate and the stock kernels return the same, to the bit."""
    found = []
    for kernels in ("delegate", "builtin"):
        runner = GraphRunner(Model.load(model), kernels=kernels)
        outputs = []
        for feed in feeds(Model.load(model), samples):
            runner.run(feed)
            outputs += [runner.view(t).copy() for t in Model.load(model).main.outputs]
        found.append(outputs)
    return all(np.array_equal(*pair) for pair in zip(*found, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=int, default=10_000)
    parser.add_argument("--only", default="", help="part of the name of a model; nothing is written")
    parser.add_argument("--latency", action="store_true", help="measure only the latencies of the last run again")
    arguments = parser.parse_args()
    earlier = json.loads((RESULTS / "quantization.json").read_text(encoding="utf-8")) if arguments.latency else None
    rows = []
    for case in cases():
        if arguments.only in case.name:
            with tempfile.TemporaryDirectory() as folder:
                if earlier is None:
                    rows.append(run(case, arguments.limit, Path(folder)))
                else:
                    rows.append(next(row for row in earlier["rows"] if row["model"] == case.name))
                    time_again(case, rows[-1], Path(folder))
            print(section(rows[-1]), flush=True)
    if not arguments.only:
        write_result("quantization", {"limit": arguments.limit, "rows": rows})
        (RESULTS / "quantization.md").write_text(page(rows), encoding="utf-8")


def section(row: dict[str, Any]) -> str:
    """Return one model as a table."""
    floats = row["files"]["float"]
    lines = [
        f"### {row['model']}: {row['metric']} on {row['samples']} samples",
        "",
        "| file | % | against float | latency, ms | size, kB | of float |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, entry in row["files"].items():
        if "failure" in entry:
            lines.append(f"| {name} | fails: {entry['failure'][:90]} | | | | |")
            continue
        share = 100 * entry["size_bytes"] / floats["size_bytes"]
        lines.append(
            f"| {name} | {entry['accuracy']:.2f} | {entry['accuracy'] - floats['accuracy']:+.2f} "
            f"| {entry['latency_ms']:.3f} | {entry['size_bytes'] / 1000:,.1f} | {share:.1f} % |"
        )
    one, other = (row["files"][n] for n in ("float", "int8"))
    note = (
        f"On {row['few']} of them with XNNPACK and without: float {one['accuracy_few']:.2f} and "
        f"{one['accuracy_few_without_xnnpack']:.2f}, int8 {other['accuracy_few']:.2f} and "
        f"{other['accuracy_few_without_xnnpack']:.2f}. int16x8 in Litesmith's delegate and in the stock kernels: "
        f"{'equal' if row['files']['int16x8']['delegate_equals_stock'] else 'NOT equal'} to the bit."
    )
    duels = [
        f"{name} is {abs(entry['behind']):.2f} {'behind' if entry['behind'] >= 0 else 'ahead of'} int8 of Litesmith "
        f"(p = {entry['p_value']:.2f})."
        for name, entry in row["files"].items()
        if "behind" in entry
    ]
    return "\n".join([*lines, "", " ".join([note, *duels]), ""])


def page(rows: list[dict[str, Any]]) -> str:
    machine = machine_facts()
    intro = (
        "# Quantization\n\n`python -m benchmarks.quantization` on "
        f"{machine.cpu}, 1 thread. Each quantizer calibrates on the same samples; all is scored on the written file.\n\n"
    )
    return intro + "\n".join(map(section, rows))


if __name__ == "__main__":
    main()
