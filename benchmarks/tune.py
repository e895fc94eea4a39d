# SPDX-License-Identifier: Apache-2.0
"""The tuned file against float, ai-edge-quantizer's recommended recipe and the wheel's legacy int8, in one table.

    python -m benchmarks.tune [--only cases|overhead|workers|choose] [--model NAME] [--limit 2000]

The bundled sample and every model of the assets that has labelled data; MobileNet V2 by agreement with its float self on
photographs. Each search minimizes latency, may lose half a point, and has three minutes. All four files are then scored on
the held-out split, which no search saw, and timed in interleaved rounds, all but the tuned one without Litesmith's
delegate. Also: what the search costs beyond its work with one worker, how much faster two workers score, and how long
`choose` takes for all image classifiers of the zoo. Writes results/tune_TIER_MAKER_KIND.json and .md, one for each
kind of processor; what is not measured anew stays.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._measure import RESULTS, by_processor, write_result
from benchmarks.quantization import Case, cases, legacy_quantizer
from litesmith import Model, samples
from litesmith.measure import Latency, bench, machine_facts
from litesmith.measure._statistics import compare_medians
from litesmith.runtime import native_tier
from litesmith.tune import Tuned, choose, tune
from litesmith.tune._candidates import RECOVERY
from litesmith.tune._jobs import Observe
from litesmith.tune._question import Question
from litesmith.tune._tune import ask
from litesmith.tune._workers import LocalWorkers

MAX_DROP = 0.005
TIME = "3m"  # of each search, besides the latencies at its end
SECONDS = 4.0  # for the latency of each file: neighbours of a virtual machine come and go


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
        max_drop=f"{100 * MAX_DROP:g}%",
        recipes=RECOVERY,
        time_limit=TIME,
        seconds=SECONDS / 4,
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
    best = fastest(files)
    seen = {n: question.observe(p.read_bytes(), "held_out", 0, len(question.held_out)) for n, p in files.items()}
    scores = {n: question.score(s, None if n == "float" else seen["float"]) for n, s in seen.items()}
    figures = {
        name: {
            "score": scores[name].value,
            "drop": 0.0 if (drop := scores[name].drop) is None else drop.drop,
            "latency_ms": latency.summary.median,
            "interval_ms": (latency.summary.low, latency.summary.high),
            "threads": latency.configuration.threads,
            "size_bytes": latency.size_bytes,
            "against_tuned": against(best[list(files).index("tuned" if "tuned" in files else "float")], latency),
        }
        for name, latency in zip(files, best, strict=True)
    }
    if tuned.winner is not None and not tuned.winner.recipe:  # one file, measured twice
        figures["tuned"] = figures["float"] = {**figures["float"], "against_tuned": (1.0, 1.0, 1.0)}
    return {
        "model": case.name,
        "metric": case.metric,
        "limit": limit,
        "time": TIME,
        "held_out": len(question.held_out),
        "recipe": _recipe(tuned),
        "verdict": tuned.verdict.reasons,
        "seconds": seconds,
        "files": figures,
        "failures": failures,
    }


def against(tuned: Latency, other: Latency) -> tuple[float, float, float]:
    """Return how many times as long a file takes as the tuned one, and the interval, from interleaved rounds."""
    found = compare_medians(np.array(tuned.samples_ms), np.array(other.samples_ms), paired=True)
    return found.value, found.low, found.high


def fastest(files: dict[str, Path]) -> list[Latency]:
    """Return the latency of each file with the number of threads that suits it, as the tuned one is measured.

    The others run as LiteRT runs them alone: Litesmith's kernels would speed up some of them, too.
    """
    counts, kernels = tuple(sorted({1, os.cpu_count() or 1})), ("delegate", "xnnpack")
    timed = bench(*files.values(), threads=counts, kernels=kernels, seconds=SECONDS, memory=False).latencies
    each = len(counts) * len(kernels)
    found = []
    for name, start in zip(files, range(0, len(timed), each), strict=True):
        wanted = "delegate" if name == "tuned" else "xnnpack"
        own = [t for t in timed[start : start + each] if t.configuration.kernels == wanted]
        found.append(min(own, key=lambda t: t.summary.median))
    return found


def _recipe(tuned: Tuned) -> str:
    return "nothing fits" if tuned.winner is None else tuned.winner.name


def overhead(folder: Path) -> float:
    """Return the share of a search with one worker that is neither building, running samples nor measuring."""
    result = tune(
        samples.path(),
        samples.dataset("test"),
        calibrate=samples.dataset("train"),
        output=folder,
        workers=1,
    )
    return 1 - result.work_s / result.seconds


def scaling(rounds: int = 7) -> float:
    """Return how many times faster two workers run the same samples than one, in interleaved rounds."""
    question, _ = ask(samples.path(), samples.dataset("test"))
    crews = [LocalWorkers(question, count) for count in (1, 2)]
    try:
        for crew in crews:  # the processes are up before the clock runs
            _score_s(crew, question)
        times = [[_score_s(crew, question) for crew in crews] for _ in range(rounds)]
    finally:
        for crew in crews:
            crew.close()
    return float(np.median([one / two for one, two in times]))


def _score_s(crew: LocalWorkers, question: Question, jobs: int = 16) -> float:
    started = time.perf_counter()
    for number in range(jobs):
        crew.submit(number, Observe(question.model, "search", 0, len(question.search)))
    for _ in range(jobs):
        crew.next()
    return time.perf_counter() - started


def choosing() -> dict[str, float]:
    """Return how many variants of the zoo are measured, and in what time."""
    started = time.perf_counter()
    return {"variants": len(choose(refresh=True).variants), "seconds": time.perf_counter() - started}


def markdown(document: dict[str, Any]) -> str:
    lines = [
        "# The tuned file against its peers",
        "",
        "`python -m benchmarks.tune`: the search minimizes latency, may lose 0.5 points and has three minutes. Score",
        "and drop are of the held-out split, in points; agreement counts every choice that differs from the float model's,",
        "right or wrong. Latencies are medians, ratios those of medians in the same rounds, both with their 95 %",
        "intervals: where 1 is within, none of the two is faster for sure.",
        f"{machine_facts().cpu}, Litesmith's kernels: {native_tier()}.",
        "",
        "| model | file | score | drop | ms | threads | size | against tuned |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in document["rows"]:
        lines += _lines(row)
    lines.append("")
    older = [row["model"] for row in document["rows"] if row.get("time") != TIME]
    if older:
        lines += [
            f"From an earlier search, of number formats only and on fewer samples: {', '.join(older)}.",
            "",
        ]
    for row in document["rows"]:
        if row.get("before"):
            times = ", ".join(f"{ratio:.2f}" for ratio in runs(row))
            lines += [
                f"{row['model']} was measured {len(runs(row))} times: the fastest peer took {times} × as long.",
                "",
            ]
    if "overhead" in document:
        lines.append(f"Search overhead with one worker: {100 * document['overhead']:.1f} %.")
    if "workers" in document:
        lines.append(f"Two workers score {document['workers']:.2f} times as fast as one.")
    if "choose" in document:
        found = document["choose"]
        lines.append(f"`choose` builds and measures {found['variants']} image classifiers in {found['seconds']:.0f} s.")
    return "\n".join(lines) + "\n"


def _lines(row: dict[str, Any]) -> list[str]:
    lines = []
    for name, f in row["files"].items():
        label = f"tuned: {row['recipe']}" if name == "tuned" else name
        low, high = f["interval_ms"]
        ratio, least, most = f["against_tuned"]
        spread = "" if least == most else f" ({least:.2f}–{most:.2f})"
        lines.append(
            f"| {row['model']} | {label} | {100 * f['score']:.2f} | {100 * f['drop']:+.2f} | {f['latency_ms']:.3f} "
            f"({low:.3f}–{high:.3f}) | {f['threads']} | {f['size_bytes'] / 1000:.0f} kB | {ratio:.2f} ×{spread} |"
        )
    return [
        *lines,
        *(f"| {row['model']} | {name} | failed: {why} | | | | | |" for name, why in row["failures"].items()),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("cases", "overhead", "workers", "choose"), action="append")
    parser.add_argument("--model", default="", help="cases whose name has this in it")
    parser.add_argument("--limit", type=int, default=2000)
    arguments = parser.parse_args()
    chosen = arguments.only or ["cases", "overhead", "workers", "choose"]
    for case in cases() if "cases" in chosen else ():
        if arguments.model in case.name:
            with tempfile.TemporaryDirectory() as folder:
                row = run(case, arguments.limit, Path(folder))
            print("\n".join(_lines(row)), flush=True)
            others = [r for r in earlier()["rows"] if r["model"] != case.name]
            row["before"] = [ratio for r in earlier()["rows"] if _is_alike(r, row) for ratio in runs(r)]
            keep(rows=sorted([*others, row], key=lambda r: (r["model"] != "sample", r["model"])))
    if "overhead" in chosen:
        with tempfile.TemporaryDirectory() as folder:
            keep(overhead=overhead(Path(folder) / "run"))
    if "workers" in chosen:
        keep(workers=scaling())
    if "choose" in chosen:
        keep(choose=choosing())


def _is_alike(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Say whether two rows are runs of the same search."""
    return all(one.get(key) == other[key] for key in ("model", "limit", "time"))


def runs(row: dict[str, Any]) -> list[float]:
    """Return, for each run of a model, how the fastest peer within the bound compares with the tuned file."""
    peers = [f for name, f in row["files"].items() if name != "tuned" and f["drop"] <= MAX_DROP]
    return [*row.get("before", ()), min(f["against_tuned"][0] for f in peers)]


def earlier() -> dict[str, Any]:
    file = RESULTS / f"{by_processor('tune')}.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {"rows": []}


def keep(**found: Any) -> None:
    """Write what is there so far: a later part that fails takes nothing with it."""
    document = {k: v for k, v in earlier().items() if k != "machine"} | found
    write_result(by_processor("tune"), document)
    (RESULTS / f"{by_processor('tune')}.md").write_text(markdown(document), encoding="utf-8")


if __name__ == "__main__":
    main()
