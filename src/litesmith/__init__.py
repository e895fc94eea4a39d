# SPDX-License-Identifier: Apache-2.0
"""Litesmith makes a trained LiteRT model small and fast on the device that runs it, and proves it by measuring.

Five words are the whole vocabulary: a *Model* is a `.tflite` in memory; a *Dataset* is samples for it; a *Recipe* turns
one Model into another; a *Session* is a Model compiled for one device; a *Result* is what was measured.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from litesmith import devices, report, samples, train, tune, zoo
    from litesmith.accuracy import diagnose, evaluate
    from litesmith.data import Dataset
    from litesmith.errors import LitesmithError
    from litesmith.measure import (
        accelerators,
        app,
        audit_copies,
        bench,
        copies,
        doctor,
        optimize_op,
        profile,
        span,
        threads,
        trace,
        tracing,
    )
    from litesmith.model import Model
    from litesmith.optimize import Recipe, calibrate, channels, cluster, dequantize, fold, prune, quantize, recipe
    from litesmith.result import Result
    from litesmith.runtime import Session, custom_op, delegate_path, inspect, replace_op, run
    from litesmith.samples._demo import demo
    from litesmith.targets import compat
    from litesmith.train import retrain
    from litesmith.tune import advise, choose, compare, gate

_HOMES = {
    "accelerators": "litesmith.measure",
    "advise": "litesmith.tune",
    "app": "litesmith.measure",
    "audit_copies": "litesmith.measure",
    "bench": "litesmith.measure",
    "calibrate": "litesmith.optimize",
    "channels": "litesmith.optimize",
    "choose": "litesmith.tune",
    "cluster": "litesmith.optimize",
    "compare": "litesmith.tune",
    "compat": "litesmith.targets",
    "copies": "litesmith.measure",
    "custom_op": "litesmith.runtime",
    "Dataset": "litesmith.data",
    "delegate_path": "litesmith.runtime",
    "demo": "litesmith.samples._demo",
    "dequantize": "litesmith.optimize",
    "devices": "",
    "diagnose": "litesmith.accuracy",
    "doctor": "litesmith.measure",
    "evaluate": "litesmith.accuracy",
    "fold": "litesmith.optimize",
    "gate": "litesmith.tune",
    "inspect": "litesmith.runtime",
    "LitesmithError": "litesmith.errors",
    "Model": "litesmith.model",
    "optimize_op": "litesmith.measure",
    "profile": "litesmith.measure",
    "prune": "litesmith.optimize",
    "quantize": "litesmith.optimize",
    "recipe": "litesmith.optimize",
    "Recipe": "litesmith.optimize",
    "replace_op": "litesmith.runtime",
    "report": "",
    "Result": "litesmith.result",
    "retrain": "litesmith.train",
    "run": "litesmith.runtime",
    "samples": "",
    "Session": "litesmith.runtime",
    "span": "litesmith.measure",
    "threads": "litesmith.measure",
    "trace": "litesmith.measure",
    "tracing": "litesmith.measure",
    "train": "",
    "tune": "",
    "zoo": "",
}

__all__ = [
    "Dataset",
    "LitesmithError",
    "Model",
    "Recipe",
    "Result",
    "Session",
    "accelerators",
    "advise",
    "app",
    "audit_copies",
    "bench",
    "calibrate",
    "channels",
    "choose",
    "cluster",
    "compare",
    "compat",
    "copies",
    "custom_op",
    "delegate_path",
    "demo",
    "dequantize",
    "devices",
    "diagnose",
    "doctor",
    "evaluate",
    "fold",
    "gate",
    "inspect",
    "optimize_op",
    "profile",
    "prune",
    "quantize",
    "recipe",
    "replace_op",
    "report",
    "retrain",
    "run",
    "samples",
    "span",
    "threads",
    "trace",
    "tracing",
    "train",
    "tune",
    "zoo",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: `import litesmith` stays light."""
    if name not in _HOMES:
        raise AttributeError(f"module 'litesmith' has no attribute {name!r}")
    home = _HOMES[name]
    value = getattr(importlib.import_module(home), name) if home else importlib.import_module(f"litesmith.{name}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
