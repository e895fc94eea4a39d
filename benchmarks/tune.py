# SPDX-License-Identifier: Apache-2.0
"""The tuned file against float, ai-edge-quantizer's recommended recipe and the wheel's legacy int8, in one table.

    python -m benchmarks.tune [--only NAME] [--limit 300]

The bundled sample and every model of the assets that has labelled data; MobileNet V2 by agreement with its float self on
photographs. Each search minimizes latency and may lose half a point. All four files are then scored on the held-out
split, which no search saw, and timed in interleaved rounds. Also: what the search costs beyond its work with one worker,
and how much faster two workers score. Writes results/tune.json and results/tune.md.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks._measure import RESULTS, write_result
from benchmarks.quantization import Case, cases, legacy_quantizer
from litesmith import Model, samples
from litesmith.measure import bench
from litesmith.tune import Tuned, tune
from litesmith.tune._jobs import Observe
from litesmith.tune._question import Question
from litesmith.tune._tune import ask
from litesmith.tune._workers import LocalWorkers

CANDIDATES = ("float16", "weights8", "dynamic", "int8", "int8(minmax)", "int16x8")


def recommended(case: Case) -> Model:
    """Return what ai-edge-quantizer's README recommends for CPUs: dynamic, 8-bit weights."""
    from ai_edge_quantizer import quantizer, recipe

    tool = quantizer.Quantizer(str(case.model))
    tool.load_quantization_recipe(recipe.dynamic_wi8_afp32())
    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        result = Model.from_bytes(bytes(tool.quantize().quantized_model))
    if not any(t.dtype == "int8" for t in result.main.tensors):
        raise RuntimeError("it returned the float model and said nothing")
    return result


PEERS: dict[str, Callable[[Case], Model]] = {"ai-edge-quantizer": recommended, "legacy int8": legacy_quantizer}


def run(case: Case, limit: int, folder: Path) -> dict[str, Any]:
    started = time.perf_counter()
    options: dict[str, Any] = {"calibrate": case.calibration, "metric": case.metric, "limit": limit}
    tuned = tune(
        case.model,
        case.test,
        output=folder / "run",
        max_drop="0.5%",
        only=CANDIDATES,
        **options,
    )
    seconds = time.perf_counter() - started
    question, _ = ask(case.model, case.test, **options)
    files = {"float": case.model}
    failures: dict[str, str] = {}
    if tuned.winner is not None:
        files["tuned"] = folder / "run" / "winner.tflite"
    for name, make in PEERS.items():
        path = folder / f"{name.replace(' ', '-')}.tflite"
        try:
            make(case).save(path)
        except Exception as error:  # noqa: BLE001 (a peer that fails is a result too)
            failures[name] = f"{type(error).__name__}: {error}"[:160]
            continue
        files[name] = path
    timed = bench(*files.values(), seconds=1.0, memory=False)
    seen = {n: question.observe(p.read_bytes(), "held_out", 0, len(question.held_out)) for n, p in files.items()}
    scores = {n: question.score(s, None if n == "float" else seen["float"]) for n, s in seen.items()}
    figures = {
        name: {
            "score": scores[name].value,
            "drop": 0.0 if (drop := scores[name].drop) is None else drop.drop,
            "latency_ms": latency.summary.median,
            "size_bytes": latency.size_bytes,
        }
        for (name, _), latency in zip(files.items(), timed.latencies, strict=True)
    }
    return {
        "model": case.name,
        "metric": case.metric,
        "held_out": len(question.held_out),
        "recipe": _recipe(tuned),
        "verdict": tuned.verdict.reasons,
        "seconds": seconds,
        "files": figures,
        "failures": failures,
    }


def _recipe(tuned: Tuned) -> str:
    return "nothing fits" if tuned.winner is None else tuned.winner.name


def overhead(folder: Path) -> float:
    """Return the share of a search with one worker that is neither building, running samples nor measuring."""
    result = tune(
        samples.path(),
        samples.dataset("test"),
        calibrate=samples.dataset("train"),
        output=folder,
        only=CANDIDATES,
        workers=1,
    )
    return 1 - result.work_s / result.seconds


def scaling() -> float:
    """Return how many times faster two workers run the same samples than one."""
    question, _ = ask(samples.path(), samples.dataset("test"))
    return _score_s(question, 1) / _score_s(question, 2)


def _score_s(question: Question, count: int) -> float:
    workers = LocalWorkers(question, count)
    try:
        jobs = [Observe(question.model, "search", 0, 8) for _ in range(count)]
        for number, job in enumerate(jobs):  # the processes are up before the clock runs
            workers.submit(number, job)
        for _ in jobs:
            workers.next()
        started = time.perf_counter()
        for number in range(16):
            workers.submit(number, Observe(question.model, "search", 0, len(question.search)))
        for _ in range(16):
            workers.next()
        return time.perf_counter() - started
    finally:
        workers.close()


def markdown(rows: list[dict[str, Any]], costs: dict[str, float]) -> str:
    lines = [
        "# The tuned file against its peers",
        "",
        "`python -m benchmarks.tune`: the search minimizes latency and may lose 0.5 points. Score and drop are of the",
        "held-out split, in points; agreement counts every choice that differs from the float model's, right or wrong.",
        "",
        "| model | file | score | drop | ms | size | against tuned |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        base = row["files"].get("tuned", row["files"]["float"])["latency_ms"]
        for name, f in row["files"].items():
            label = f"tuned: {row['recipe']}" if name == "tuned" else name
            lines.append(
                f"| {row['model']} | {label} | {100 * f['score']:.2f} | {100 * f['drop']:+.2f} | {f['latency_ms']:.3f} | "
                f"{f['size_bytes'] / 1000:.0f} kB | {f['latency_ms'] / base:.2f} × |"
            )
        lines += [f"| {row['model']} | {name} | failed: {reason} | | | | |" for name, reason in row["failures"].items()]
    if costs:
        lines += ["", f"Search overhead with one worker: {100 * costs['overhead']:.1f} %."]
        lines.append(f"Two workers score {costs['two_workers']:.2f} times as fast as one.")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--limit", type=int, default=300)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    rows = []
    for case in cases():
        if arguments.only in case.name:
            with tempfile.TemporaryDirectory() as folder:
                rows.append(run(case, arguments.limit, Path(folder)))
            print(markdown(rows[-1:], {}), flush=True)
            if not arguments.only:
                keep(arguments.limit, rows, {})
    if not arguments.only:
        with tempfile.TemporaryDirectory() as folder:
            costs = {"overhead": overhead(Path(folder) / "run"), "two_workers": scaling()}
        keep(arguments.limit, rows, costs)


def keep(limit: int, rows: list[dict[str, Any]], costs: dict[str, float]) -> None:
    """Write what is there so far: a later case that fails takes nothing with it."""
    write_result("tune", {"limit": limit, "rows": rows, **costs})
    (RESULTS / "tune.md").write_text(markdown(rows, costs), encoding="utf-8")


if __name__ == "__main__":
    main()
