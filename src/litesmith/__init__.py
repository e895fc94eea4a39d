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
    from litesmith import samples, zoo
    from litesmith.accuracy import diagnose, evaluate
    from litesmith.data import Dataset
    from litesmith.errors import LitesmithError
    from litesmith.measure import (
        app,
        audit_copies,
        bench,
        compare,
        copies,
        doctor,
        profile,
        span,
        threads,
        trace,
        tracing,
    )
    from litesmith.model import Model
    from litesmith.optimize import Recipe, calibrate, dequantize, quantize
    from litesmith.result import Result
    from litesmith.runtime import Session, inspect, run
    from litesmith.samples._demo import demo

_HOMES = {
    "app": "litesmith.measure",
    "audit_copies": "litesmith.measure",
    "bench": "litesmith.measure",
    "calibrate": "litesmith.optimize",
    "compare": "litesmith.measure",
    "copies": "litesmith.measure",
    "Dataset": "litesmith.data",
    "demo": "litesmith.samples._demo",
    "dequantize": "litesmith.optimize",
    "diagnose": "litesmith.accuracy",
    "doctor": "litesmith.measure",
    "evaluate": "litesmith.accuracy",
    "inspect": "litesmith.runtime",
    "LitesmithError": "litesmith.errors",
    "Model": "litesmith.model",
    "profile": "litesmith.measure",
    "quantize": "litesmith.optimize",
    "Recipe": "litesmith.optimize",
    "Result": "litesmith.result",
    "run": "litesmith.runtime",
    "samples": "",
    "Session": "litesmith.runtime",
    "span": "litesmith.measure",
    "threads": "litesmith.measure",
    "trace": "litesmith.measure",
    "tracing": "litesmith.measure",
    "zoo": "",
}

__all__ = [
    "Dataset",
    "LitesmithError",
    "Model",
    "Recipe",
    "Result",
    "Session",
    "app",
    "audit_copies",
    "bench",
    "calibrate",
    "compare",
    "copies",
    "demo",
    "dequantize",
    "diagnose",
    "doctor",
    "evaluate",
    "inspect",
    "profile",
    "quantize",
    "run",
    "samples",
    "span",
    "threads",
    "trace",
    "tracing",
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
