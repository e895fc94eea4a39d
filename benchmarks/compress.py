# SPDX-License-Identifier: Apache-2.0
"""Accuracy against sparsity, channels removed and repaired, clustered sizes, and how long all of it takes.

    python -m benchmarks.compress [--only prune|channels|cluster|time] [--model NAME] [--sparsity 0.5] [--pattern 4x1]

The bundled sample and the models of the assets that have labelled data, scored on the written file in LiteRT. MobileNet
V2, whose images are not there, is scored by agreement with its float self on photographs. No labels, no training. Parts
and models can be run one after the other: each replaces its own rows of the results.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import litesmith
from litesmith import Dataset, Model
from litesmith.measure import bench, machine_facts
from litesmith.optimize import Narrowed, channels, cluster, file_sizes, prune
from litesmith.result import encode_fields

ROOT = Path(__file__).resolve().parent
ASSETS = Path(os.environ.get("LITESMITH_ASSETS", ROOT.parent.parent / "shared" / "assets"))
CIFAR = "scale=1/255 mean=0.485,0.456,0.406 std=0.229,0.224,0.225"
IMAGENET = "mean=123.675,116.28,103.53 std=58.395,57.12,57.375"
SPARSITIES = (0.5, 0.7, 0.8, 0.9)
PATTERNS = ("unstructured", "4x1")
PRUNED = ("sample", "cifar10/resnet20", "mlperf_tiny/ic_resnet8", "mlperf_tiny/kws_dscnn", "mnist/resnet")
NARROWED = ("sample", "cifar10/resnet20", "mlperf_tiny/ic_resnet8", "mlperf_tiny/ic_resnet_large")
SHARED = ("sample", "cifar10/resnet20", "mlperf_tiny/ic_resnet8")


@dataclass(frozen=True)
class Case:
    name: str
    model: Model
    train: Dataset
    test: Dataset


@dataclass(frozen=True)
class Chosen:
    sparsities: tuple[float, ...]
    patterns: tuple[str, ...]


def cases(limit: int, samples: int) -> Iterator[Case]:
    sample = litesmith.samples
    yield Case("sample", sample.model(), sample.dataset("train").take(samples), _few(sample.dataset("test"), limit))
    if not ASSETS.is_dir():
        return
    nets = {
        "cifar10/resnet20": CIFAR,
        "mlperf_tiny/ic_resnet8": "dtype=float32",
        "mlperf_tiny/ic_resnet_large": "dtype=float32",
    }
    for name, preprocess in nets.items():
        train = Dataset.open(ASSETS / "cifar10/train20k.npz", preprocess=preprocess).take(samples)
        test = _few(Dataset.open(ASSETS / "cifar10/test.npz", preprocess=preprocess), limit)
        yield Case(name, Model.load(ASSETS / f"{name}_float.tflite"), train, test)
    tiny = ASSETS / "mlperf_tiny"
    words = _words(tiny, samples, limit)
    yield Case("mlperf_tiny/kws_dscnn", Model.load(tiny / "kws_dscnn_float.tflite"), *words)
    digits = Dataset.open(ASSETS / "mnist/test.npz", preprocess="scale=1/255").split(calibrate=0.05, test=0.95)
    model = Model.load(ASSETS / "mnist/resnet_float.tflite")
    yield Case("mnist/resnet", model, digits["calibrate"].take(samples), _few(digits["test"], limit))


def _words(folder: Path, samples: int, limit: int) -> tuple[Dataset, Dataset]:
    """Return spoken words to fit and others to score: where more than 200 are to fit, the rest of 1000 are scored."""
    files = [np.load(folder / name) for name in ("kws_calib200.npz", "kws_test800.npz")]
    x, y = (np.concatenate([file[key] for file in files]) for key in ("x", "y"))
    cut = max(min(samples, 500), 200)
    fitted, scored = Dataset.from_arrays(x[:cut], y[:cut]), Dataset.from_arrays(x[cut:], y[cut:])
    return fitted.take(min(samples, len(fitted))), _few(scored, limit)


def _few(data: Dataset, limit: int) -> Dataset:
    return data.take(min(limit, len(data)))


def score(case: Case, model: Model) -> float:
    return 100 * litesmith.evaluate(model, case.test, processes=1).value


def pruning(case: Case, chosen: Chosen) -> dict[str, Any]:
    found: dict[str, Any] = {"model": case.name, "float": score(case, case.model), "scored": len(case.test), "rows": []}
    for pattern in chosen.patterns:
        for sparsity in chosen.sparsities:
            row: dict[str, Any] = {
                "pattern": pattern,
                "sparsity": sparsity,
                "samples": len(case.train),
                "scored": len(case.test),
            }
            for method, data in (("magnitude", None), ("second-order", case.train)):
                start, cpu = time.perf_counter(), time.process_time()
                result = prune(
                    case.model,
                    sparsity=sparsity,
                    pattern=pattern,
                    data=data,
                    store="sparse",
                    reorder=pattern == "4x1" and data is not None,
                    check=False,
                )
                row[f"{method} s"] = time.perf_counter() - start
                row[f"{method} cpu s"] = time.process_time() - cpu
                row[method] = score(case, result.model)
                before, after = (sum(layer.stored_bytes[i] for layer in result.coverage.pruned) for i in (0, 1))
                row[f"{method} stored"] = after / before
            found["rows"].append(row)
            print(
                f"  {case.name:26s} {pattern:12s} {sparsity:.0%}  float {found['float']:.2f}  " + _methods(row),
                flush=True,
            )
    return found


def _methods(row: dict[str, Any]) -> str:
    scores = f"magnitude {row['magnitude']:.2f}  second-order {row['second-order']:.2f}"
    return f"{scores}  ({row['second-order cpu s']:.0f} s of CPU)"


def narrowing(case: Case, _chosen: Chosen) -> dict[str, Any]:
    repaired = channels(case.model, max_macs=0.5, data=case.train)
    plain = channels(case.model, keep=1.0, rules=_same_widths(repaired), data=case.train, repair=False)
    latencies = bench(case.model, repaired.model, seconds=4.0, memory=False).latencies
    found: dict[str, Any] = {
        "model": case.name,
        "samples": len(case.train),
        "macs": repaired.coverage.macs[1] / repaired.coverage.macs[0],
        "plain_macs": plain.coverage.macs[1] / plain.coverage.macs[0],
        "latency_ms": [latency.summary.median for latency in latencies],
        "float": score(case, case.model),
        "plain": score(case, plain.model),
        "repaired": score(case, repaired.model),
    }
    ratio = found["latency_ms"][1] / found["latency_ms"][0]
    print(
        f"  {case.name:26s} MACs {found['macs']:.3f}  latency {ratio:.2f} x  float {found['float']:.2f}  "
        f"plain {found['plain']:.2f}  repaired {found['repaired']:.2f}",
        flush=True,
    )
    return found


def _same_widths(narrowed: Narrowed) -> list[str]:
    """Return the rules with which each group gets the width that it has in another model."""
    groups = [group for group in narrowed.coverage.groups if not group.reason]
    names = [re.sub(r"([*?[])", r"[\1]", group.name) for group in groups]  # a rule is a pattern
    return [f"{g.width[1] / g.width[0]!r}:{name}" for g, name in zip(groups, names, strict=True)]


def sharing(case: Case, _chosen: Chosen) -> dict[str, Any]:
    raw = file_sizes(case.model)
    found: dict[str, Any] = {"model": case.name, "samples": len(case.train), "raw": raw.raw, "rows": []}
    found["float"] = score(case, case.model)
    for count in (32, 16, 8):
        layer = _shared(case, count, per_channel=False)
        smaller = _as_small(case, layer["sizes"]["brotli"])
        larger = _shared(case, smaller["clusters"] + 1, per_channel=True)
        layer["channels at this size"] = _between(smaller, larger, layer["sizes"]["brotli"])
        found["rows"] += [layer, smaller, larger]
        for row in (layer, smaller, larger):
            print(
                f"  {case.name:26s} {row['clusters']:3d} {'per channel' if row['per_channel'] else 'per tensor':12s} "
                f"{row['accuracy']:.2f} (float {found['float']:.2f})  brotli {row['sizes']['brotli'] / raw.raw:.3f}  "
                f"gzip {row['sizes']['gzip'] / raw.raw:.3f} of the raw file",
                flush=True,
            )
        print(f"  {case.name:26s} per channel at the size of {count} per tensor: {layer['channels at this size']:.2f}")
    return found


def _between(smaller: dict[str, Any], larger: dict[str, Any], size_bytes: int) -> float:
    """Return the accuracy at a size that lies between those of two files, in proportion."""
    low, high = smaller["sizes"]["brotli"], larger["sizes"]["brotli"]
    share = min(max((size_bytes - low) / max(high - low, 1), 0.0), 1.0)
    return float((1 - share) * smaller["accuracy"] + share * larger["accuracy"])


def _shared(case: Case, count: int, *, per_channel: bool) -> dict[str, Any]:
    result = cluster(
        case.model, clusters=count, per_channel=per_channel, all_layers=True, data=case.train, check=False
    ).model
    sizes = encode_fields(file_sizes(result))
    return {"clusters": count, "per_channel": per_channel, "accuracy": score(case, result), "sizes": sizes}


def _as_small(case: Case, size_bytes: int) -> dict[str, Any]:
    """Return the most values a channel with which the file compresses to no more than ``size_bytes``."""
    count = 2
    while count < 32:
        # Without data the values differ a little, but the number of bytes hardly does: enough to know where to look.
        quick = cluster(case.model, clusters=count + 1, per_channel=True, all_layers=True, check=False).model
        if file_sizes(quick).brotli > size_bytes:
            break
        count += 1
    row = _shared(case, count, per_channel=True)
    while row["sizes"]["brotli"] > size_bytes and row["clusters"] > 2:
        row = _shared(case, row["clusters"] - 1, per_channel=True)
    return row


TIMED = """
import json, resource, sys, time
from pathlib import Path
from litesmith import Dataset, Model
from litesmith.optimize import prune
model = Model.load(sys.argv[1])
data = None if sys.argv[2] == "magnitude" else Dataset.open(Path(sys.argv[3]), preprocess=sys.argv[4])
start, cpu = time.perf_counter(), time.process_time()
result = prune(model, sparsity=0.5, data=data, store="dense", check=False)
seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
result.model.save(sys.argv[5])
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
samples = 0 if data is None else min(len(data), 500)
print(json.dumps({"seconds": seconds, "cpu_seconds": cpu, "peak_bytes": peak, "samples": samples}))
"""


def _five_hundred(photos: Path, held: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the photographs but those that are held out, and some of them mirrored, so that there are 500."""
    raw = Dataset.open(photos, preprocess="dtype=uint8")
    chosen = np.setdiff1d(np.arange(len(raw)), held)
    images = np.stack([np.asarray(raw[i].x).reshape(224, 224, 3) for i in chosen])
    return np.concatenate([images, images[:, :, ::-1]])[:500]


def timing(folder: Path) -> list[dict[str, Any]]:
    """Prune MobileNet V2 in processes of their own, to see their memory, and count how often the answers agree."""
    source, photos = ASSETS / "vision/mobilenet_v2_float.tflite", ASSETS / "vision/photos"
    if not source.exists():
        return []
    test = Dataset.open(photos, preprocess=IMAGENET)
    held = np.arange(len(test))[::4]
    few = test.subset(held)
    images = folder / "images.npy"
    np.save(images, _five_hundred(photos, held))
    rows = []
    for method in ("magnitude", "second-order"):
        output = folder / f"{method}.tflite"
        command = [sys.executable, "-c", TIMED, str(source), method, str(images), IMAGENET, str(output)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        row = {"model": "vision/mobilenet_v2", "method": method, "sparsity": 0.5, **json.loads(done.stdout)}
        row["agreement"] = 100 * litesmith.evaluate(output, few, metric="agreement", reference=source).value
        rows.append(row)
        print(
            f"  mobilenet_v2 {method}: {row['seconds']:.1f} s ({row['cpu_seconds']:.1f} s of CPU), "
            f"{row['peak_bytes'] / 1e9:.2f} GB, agreement {row['agreement']:.1f} %",
            flush=True,
        )
    return rows


def _scored(document: dict[str, Any]) -> list[str]:
    few = [case for case in document["prune"] if case.get("scored", document["limit"]) < document["limit"]]
    return [f"{case['scored']} of {case['model']}" for case in few] or ["all have as many"]


def _other_macs(row: dict[str, Any]) -> str:
    plain = row.get("plain_macs", row["macs"])
    return "" if plain == row["macs"] else f" (at {plain:.2f} of the MACs)"


def markdown(document: dict[str, Any]) -> str:
    lines = [
        "# Compression",
        "",
        f"Scored on at most {document['limit']} test samples, the same for all ({', '.join(_scored(document))});",
        "*samples*: others, unlabelled, to fit. *bytes*: of the pruned layers stored sparse, over dense. Second-order",
        "with 4x1: after `--reorder`.",
    ]
    lines += [
        "",
        "## Pruning: top-1 (%)",
        "",
        "| model | float | pattern | zeros | magnitude | samples | second-order | bytes | CPU s |",
    ]
    lines += ["| --- | --- | --- | --- | --- | --- | --- | --- | --- |"]
    for case in document["prune"]:
        for row in case["rows"]:
            lines.append(
                f"| {case['model']} | {case['float']:.2f} | {row['pattern']} | {row['sparsity']:.0%} | "
                f"{row['magnitude']:.2f} | {row['samples']} | {row['second-order']:.2f} | "
                f"{row['second-order stored']:.1%} | {row['second-order cpu s']:.0f} |"
            )
    lines += ["", "## Channels at half the multiply-accumulates; plain removal of the same channels", ""]
    lines += [
        "| model | samples | MACs | latency | float | plain removal | repaired |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in document["channels"]:
        ratio = row["latency_ms"][1] / row["latency_ms"][0]
        lines.append(
            f"| {row['model']} | {row['samples']} | {row['macs']:.2f} | {ratio:.2f} × | {row['float']:.2f} | "
            f"{row['plain']:.2f}{_other_macs(row)} | {row['repaired']:.2f} |"
        )
    lines += [
        "",
        "## Clustering of all layers, compressed over raw size",
        "",
        "For each number of values a layer, those a channel that make the file a little smaller and a little larger, and",
        "the accuracy between the two at the same size (brotli).",
        "",
    ]
    lines += [
        "| model | float | values | accuracy | a channel, same size | gzip | zstd | brotli |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for case in document["cluster"]:
        for row in case["rows"]:
            shares = [f"{row['sizes'][name] / case['raw']:.3f}" for name in ("gzip", "zstd", "brotli")]
            what = "a channel" if row["per_channel"] else "a layer"
            same = f"{row['channels at this size']:.2f}" if "channels at this size" in row else ""
            lines.append(
                f"| {case['model']} | {case['float']:.2f} | {row['clusters']} {what} | {row['accuracy']:.2f} | {same} | "
                f"{' | '.join(shares)} |"
            )
    lines += ["", "## Time and memory: MobileNet V2 to 50 % zeros", ""]
    lines += [
        "| method | samples | s | CPU s | GB | agreement with float (%) |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for row in document["time"]:
        lines.append(
            f"| {row['method']} | {row['samples']} | {row['seconds']:.1f} | {row['cpu_seconds']:.1f} | "
            f"{row['peak_bytes'] / 1e9:.2f} | {row['agreement']:.1f} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--limit", type=int, default=10_000)
    parser.add_argument("--samples", type=int, default=500)
    parser.add_argument("--only", choices=("prune", "channels", "cluster", "time"), action="append")
    parser.add_argument("--sparsity", type=float, action="append", help="only this one of pruning; again for more")
    parser.add_argument("--pattern", choices=PATTERNS, action="append", help="only this one of pruning")
    parser.add_argument("--model", default="", help="only models with this in their name")
    arguments = parser.parse_args()
    chosen = arguments.only or ["prune", "channels", "cluster", "time"]
    limits = {"limit": arguments.limit, "samples": arguments.samples}
    wanted = Chosen(tuple(arguments.sparsity or SPARSITIES), tuple(arguments.pattern or PATTERNS))
    parts = {"prune": (pruning, PRUNED), "channels": (narrowing, NARROWED), "cluster": (sharing, SHARED)}
    for part, (measure, names) in parts.items():
        if part in chosen:
            print(part)
            found = []
            for case in cases(arguments.limit, arguments.samples):
                if case.name in names and arguments.model in case.name:
                    found.append(measure(case, wanted))
                    write({part: found}, limits)
    if "time" in chosen:
        print("time")
        with tempfile.TemporaryDirectory() as folder:
            write({"time": timing(Path(folder))}, limits)


def _merged(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the new rows and those of other sparsities that were measured on the same samples."""
    there = {(row["pattern"], row["sparsity"]) for row in new}
    kept = [row for row in old if (row["pattern"], row["sparsity"]) not in there]
    same = [row for row in kept if all(row.get(key) == new[0][key] for key in ("samples", "scored"))]
    rows = [*new, *same]
    return sorted(rows, key=lambda row: (PATTERNS.index(row["pattern"]), row["sparsity"]))


def write(found: dict[str, Any], limits: dict[str, int]) -> None:
    """Put results beside those that are there: rows of the same model are replaced."""
    target = ROOT / "results" / "compress.json"
    target.parent.mkdir(exist_ok=True)
    document: dict[str, Any] = {"prune": [], "channels": [], "cluster": [], "time": []}
    if target.exists():
        document |= json.loads(target.read_text())
    for part, rows in found.items():
        for case in rows if part == "prune" else ():
            before: dict[str, Any] = next(
                (old for old in document[part] if old["model"] == case["model"]), {"rows": []}
            )
            case["rows"] = _merged(before["rows"], case["rows"])
        new = {(row["model"], row.get("method", "")) for row in rows}
        kept = [row for row in document[part] if (row["model"], row.get("method", "")) not in new]
        document[part] = sorted([*kept, *rows], key=lambda row: (row["model"], row.get("method", "")))
    document |= {"machine": encode_fields(machine_facts()), **limits}
    target.write_text(json.dumps(document, indent=2) + "\n")
    target.with_suffix(".md").write_text(markdown(document))


if __name__ == "__main__":
    main()
