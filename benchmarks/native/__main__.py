# SPDX-License-Identifier: Apache-2.0
"""Litesmith's delegate against XNNPACK and LiteRT's stock kernels: `python -m benchmarks native`, about five minutes.

`python -m benchmarks.native TEXT…` measures only the rows with one of these texts in their name and keeps the others.

Each row is one interleaved run of all its engines in one process; a figure is the median of its samples, and `best`
the fastest, which other programs disturb least. Written to `results/native_TIER_MAKER_KIND.json` and `.md`: one for each
kind of processor that it was run on.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from ai_edge_litert.interpreter import Interpreter, load_delegate

import litesmith
from benchmarks._measure import RESULTS, by_processor, write_result
from benchmarks.native._models import float_model, pruned, quantized
from litesmith.measure import machine_facts
from litesmith.measure._timing import Timed, measure
from litesmith.model import Model
from litesmith.runtime import Session, native_tier, random_inputs

SECONDS = 2.5  # of each engine
BEST_TIER = "avx512vnni"

# What each network should reach: on an AVX-512 VNNI machine, and with the AVX2 kernels.
INT16 = {
    "mobilenet_v1": {"stock": 45, "float": 0.60, "int8": 1.6},
    "mobilenet_v2": {"stock": 45, "float": 0.68, "int8": 1.45},
    "resnet_50": {"stock": 40, "float": 0.65},
}
INT16_AVX2_FLOAT = 1.15
SPARSE = {
    ("mobilenet_v1", 0.8, 1): 2.2,
    ("mobilenet_v1", 0.9, 1): 3.7,
    ("mobilenet_v1", 0.8, 4): 3.5,
    ("mobilenet_v1", 0.9, 4): 5.2,
    ("mobilenet_v2", 0.8, 1): 2.1,
    ("mobilenet_v2", 0.9, 1): 2.8,
    ("mobilenet_v2", 0.9, 4): None,
}
SPARSE_AVX2_90 = 3.0
AVX2 = "delegate, avx2 kernels"
TWO_THREADS = {"int16": 1.75, "sparse": 1.6}


@dataclass(frozen=True)
class Bar:
    """One thing to reach: a ratio, and what it should be."""

    network: str
    what: str
    value: float
    best: float  # the same ratio by the fastest runs
    goal: float
    at_most: bool
    tier: str  # the kernels the goal is for

    @property
    def verdict(self) -> str:
        if self.tier == BEST_TIER != native_tier():
            return f"needs {self.tier}"
        return "reached" if (self.value <= self.goal) == self.at_most else "missed"


@contextlib.contextmanager
def engine(model: Model, threads: int, delegate: str) -> Iterator[Timed]:
    """One way to run a model; "avx2" is the delegate with these kernels, whatever better ones there are."""
    if delegate == "avx2":
        forced = load_delegate(litesmith.delegate_path(), {"isa": "avx2"})
        interpreter = Interpreter(model_content=model.to_bytes(), num_threads=threads, experimental_delegates=[forced])
        interpreter.allocate_tensors()
        for detail in interpreter.get_input_details():
            values = np.random.default_rng(0).normal(size=detail["shape"]).astype(detail["dtype"])
            interpreter.set_tensor(detail["index"], values)
        interpreter.invoke()
        yield Timed("", interpreter.invoke)
        return
    with Session(model, threads=threads, delegate=delegate, verify=False) as session:  # type: ignore[arg-type]
        session.run(random_inputs(session))
        yield Timed("", session.run)


def timed(engines: dict[str, tuple[Model, int, str]]) -> dict[str, dict[str, float]]:
    with contextlib.ExitStack() as stack:
        subjects = {name: stack.enter_context(engine(*how)) for name, how in engines.items()}
        measure(list(subjects.values()), runs=None, seconds=SECONDS)
        return {
            name: {"median_ms": float(np.median(s.samples_ms)), "best_ms": min(s.samples_ms), "runs": len(s.samples_ms)}
            for name, s in subjects.items()
        }


def int16_row(name: str) -> tuple[dict[str, dict[str, float]], list[Bar]]:
    original = float_model(name)
    int16, int8 = quantized(original, "int16x8"), quantized(original, "int8")
    row = timed(
        {
            "float XNNPACK": (original, 1, "off"),
            "int8 XNNPACK": (int8, 1, "off"),
            "int16x8 delegate": (int16, 1, "auto"),
            AVX2: (int16, 1, "avx2"),
            "float XNNPACK, 2 threads": (original, 2, "off"),
            "int16x8 delegate, 2 threads": (int16, 2, "auto"),
        }
    )
    row["int16x8 stock"] = stock(int16)
    goals, ours, title = INT16[name], "int16x8 delegate", f"{name} int16x8"
    bars = [bar(title, "× faster than stock", row, "int16x8 stock", ours, goals["stock"], False, BEST_TIER)]
    bars.append(bar(title, "× float XNNPACK", row, ours, "float XNNPACK", goals["float"], True, BEST_TIER))
    if "int8" in goals:
        bars.append(bar(title, "× int8 XNNPACK", row, ours, "int8 XNNPACK", goals["int8"], True, BEST_TIER))
    bars.append(bar(title, "× float XNNPACK, avx2 kernels", row, AVX2, "float XNNPACK", INT16_AVX2_FLOAT, True, "avx2"))
    two = f"{ours}, 2 threads"
    bars.append(bar(title, "2 threads over 1", row, ours, two, TWO_THREADS["int16"], False, native_tier()))
    return row, bars


def stock(model: Model) -> dict[str, float]:
    """Time the reference kernels: seconds a run, so two of them."""
    with Session(model, delegate="off", verify=False) as session:
        feeds = random_inputs(session)
        spent = []
        for _ in range(3):
            start = time.perf_counter()
            session.run(feeds)
            spent.append((time.perf_counter() - start) * 1000)
    return {"median_ms": float(np.median(spent[1:])), "best_ms": min(spent), "runs": len(spent) - 1}


def sparse_row(name: str, zeros: float, block: int) -> tuple[dict[str, dict[str, float]], list[Bar]]:
    model = pruned(float_model(name), zeros, block)
    row = timed(
        {
            "XNNPACK": (model, 1, "off"),
            "delegate": (model, 1, "auto"),
            AVX2: (model, 1, "avx2"),
            "XNNPACK, 2 threads": (model, 2, "off"),
            "delegate, 2 threads": (model, 2, "auto"),
        }
    )
    title = f"{name}, {zeros:.0%} zeros, {'4x1 blocks' if block == 4 else 'unstructured'}"
    bars, goal = [], SPARSE[name, zeros, block]
    if goal is not None:
        bars.append(bar(title, "× faster than XNNPACK", row, "XNNPACK", "delegate", goal, False, BEST_TIER))
    if zeros == 0.9:
        what = "× faster than XNNPACK, avx2 kernels"
        bars.append(bar(title, what, row, "XNNPACK", AVX2, SPARSE_AVX2_90, False, "avx2"))
    if zeros == 0.8:
        two, goal = "delegate, 2 threads", TWO_THREADS["sparse"]
        bars.append(bar(title, "2 threads over 1", row, "delegate", two, goal, False, native_tier()))
    return row, bars


def bar(
    title: str,
    what: str,
    row: dict[str, dict[str, float]],
    over: str,
    under: str,
    goal: float,
    at_most: bool,
    tier: str,
) -> Bar:
    value, best = (row[over][figure] / row[under][figure] for figure in ("median_ms", "best_ms"))
    return Bar(title, what, round(value, 3), round(best, 3), goal, at_most, tier)


def table(rows: dict[str, dict[str, dict[str, float]]], bars: list[Bar]) -> str:
    lines = [
        "# Litesmith's delegate",
        "",
        f"{machine_facts().cpu}, kernels: {native_tier()}. Milliseconds: median (best).",
        "",
    ]
    if native_tier() != BEST_TIER:
        lines += [
            f"This machine has no {BEST_TIER}: native_{BEST_TIER}_*.md have the goals for it.",
            "",
        ]
    lines += ["| network | engine | median (best) ms |", "| --- | --- | --- |"]
    for title, row in rows.items():
        lines += [f"| {title} | {e} | {f['median_ms']:.2f} ({f['best_ms']:.2f}) |" for e, f in row.items()]
    lines += ["", "| network | what | median (best) | goal | |", "| --- | --- | --- | --- | --- |"]
    for b in bars:
        sign = "≤" if b.at_most else "≥"
        lines.append(f"| {b.network} | {b.what} | {b.value:.2f} ({b.best:.2f}) | {sign} {b.goal} | {b.verdict} |")
    return "\n".join(lines) + "\n"


def earlier() -> tuple[dict[str, dict[str, dict[str, float]]], list[Bar]]:
    """Read the rows and goals of the last run."""
    path = RESULTS / f"{by_processor('native')}.json"
    if not path.exists():
        return {}, []
    document = json.loads(path.read_text(encoding="utf-8"))
    return document["times"], [Bar(**{k: v for k, v in b.items() if k != "verdict"}) for b in document["goals"]]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", nargs="*", metavar="TEXT", help="measure only rows with one of these in their name")
    wanted = parser.parse_args(arguments).texts
    if not native_tier():
        print("Litesmith was installed without its delegate", file=sys.stderr)
        return 2
    rows: dict[str, dict[str, dict[str, float]]] = {}
    bars: list[Bar] = []
    jobs = [(f"{n} int16x8", int16_row, (n,)) for n in INT16]
    names = {1: "unstructured", 4: "4x1 blocks"}
    jobs += [(f"{n}, {z:.0%} zeros, {names[b]}", sparse_row, (n, z, b)) for n, z, b in SPARSE]  # type: ignore[misc]
    old_rows, old_bars = earlier() if wanted else ({}, [])
    for title, work, subject in jobs:
        if wanted and not any(text in title for text in wanted):
            rows |= {title: old_rows[title]} if title in old_rows else {}
            bars += [b for b in old_bars if b.network == title]
            continue
        rows[title], found = work(*subject)
        bars += found
        print(f"{title}: " + ", ".join(f"{e} {f['best_ms']:.2f}" for e, f in rows[title].items()), flush=True)
    verdicts = [{**asdict(b), "verdict": b.verdict} for b in bars]
    write_result(by_processor("native"), {"tier": native_tier(), "seconds": SECONDS, "times": rows, "goals": verdicts})
    text = table(rows, bars)
    (RESULTS / f"{by_processor('native')}.md").write_text(text, encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
