# SPDX-License-Identifier: Apache-2.0
"""A search made up for its page, with names that no page may take for markup; and a real browser."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from litesmith.accuracy import Drop
from litesmith.measure import machine_facts
from litesmith.optimize import Coverage, OperatorCoverage, PassReport
from litesmith.tune import Budget, OnAccelerator, Score, Timing, Trial, Tuned, TunedLayer, Verdict, advise

EVIL = '<script>document.title="owned"</script>"><img src=x onerror=alert(1)>'


def drop(value: float) -> Drop:
    return Drop("float", 0.92, 0.91, 0.93, value, value - 0.004, value + 0.004, 0.3, False, "McNemar", 5, 3)


def trial(number: int, recipe: str, score: float, latency_ms: float, size_bytes: int, **more: Any) -> Trial:
    lost = None if number == 0 else drop(0.92 - score)
    timing = Timing(1, latency_ms, 0.98 * latency_ms, 1.02 * latency_ms, 4.0)
    return Trial(
        number,
        "baseline" if number == 0 else "schemes",
        recipe,
        **{"status": "done", "timing": timing, "file": f"{number:064x}", **more},
        size_bytes=size_bytes,
        score=Score(score, score - 0.01, score + 0.01, 1000, lost),
    )


def coverage() -> Coverage:
    """A coverage made up, with names that are none of ours in every text."""
    return Coverage(
        scheme="int8",
        ranges="percentile",
        operators=(
            OperatorCoverage(0, 0, "CONV_2D", EVIL, 1, "int8", "int8", ""),
            OperatorCoverage(0, 1, "ADD", "sum", 2, "int8", "int8", ""),
            OperatorCoverage(0, 2, "ATAN2", EVIL, 4, "int8", "float", f"no kernel {EVIL}"),
        ),
        conversions={"QUANTIZE": 1, "DEQUANTIZE": 2},
        unused_rules=(EVIL,),
        widened=(EVIL,),
        predicted_partitions=2,
        actual_partitions=3,
        size_bytes=(14_000_000, 3_600_000),
        bytes_by_type={"int8": 3_500_000, "int32": 90_000, "float32": 10_000},
        notes=(EVIL,),
        recovery=(PassReport("equalize", True, 12, 20.0, 31.5), PassReport("bias", False, 3, 31.5, 31.0, EVIL)),
    )


@pytest.fixture(scope="session")
def tuned() -> Tuned:
    held_out = Score(0.915, 0.905, 0.925, 2000, drop(0.005))
    trials = (
        trial(0, "", 0.92, 4.0, 14_000_000),
        trial(1, "float16", 0.92, 4.1, 7_000_000),
        trial(2, "dynamic", 0.918, 3.0, 3_700_000),
        trial(3, "int8", 0.916, 1.5, 3_600_000, held_out=held_out),
        trial(4, "int8(minmax)", 0.86, 1.5, 3_600_000, status="stopped", reason=f"hopeless {EVIL}", timing=None),
        trial(5, "int8 + float:#3", 0.919, 1.7, 3_650_000),
        trial(6, "weights4", 0.90, 5.0, 2_000_000),
    )
    layers = (
        TunedLayer(0, "QUANTIZE", "x", "int8", "XNNPACK", 0, 2.0, None, None),
        TunedLayer(1, "CONV_2D", EVIL, "int8", "XNNPACK", 1200, 100.0, 0.7, 31.0),
        TunedLayer(2, "ADD", "sum", "int8", "XNNPACK", 0, 5.0, 0.0, float("inf")),
    )
    float_layers = (
        TunedLayer(0, "CONV_2D", EVIL, "float32", "XNNPACK", 4800, 300.0, None, None),
        TunedLayer(1, "ADD", "sum", "float32", "XNNPACK", 0, 9.0, None, None),
    )
    return Tuned(
        model=f"{EVIL}.tflite",
        description=EVIL,
        folder="run",
        data="Dataset(3,000 samples)",
        metric="top1",
        is_fraction=True,
        higher_is_better=True,
        budget=Budget(max_drop=0.01, max_latency_ms=3.5, max_size_bytes=8_000_000),
        drop_bound=0.01,
        trials=trials,
        front=(0, 2, 3, 5, 6),
        verdict=Verdict(3, True, (f"reason {EVIL}",)),
        left_out=(("prune", EVIL),),
        notes=(EVIL,),
        seconds=61.0,
        work_s=100.0,
        workers=2,
        machine=machine_facts(),
        layers=layers,
        advice=advise(data="labelled"),
        accelerators=(
            OnAccelerator(3, "xnnpack", 1.5, True, True, EVIL),
            OnAccelerator(3, "gpu", None, False, False, "no"),
        ),
        float_layers=float_layers,
        coverage=coverage(),
    )


@pytest.fixture(scope="session")
def screenshots() -> Path:
    """Where pictures of pages are kept, for a look."""
    folder = Path(__file__).parents[2] / "build" / "screenshots"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium, driven by Playwright; skips where one of them is not there."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("chromium is not installed; on Debian: apt install chromium")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield opened
        opened.close()
