# SPDX-License-Identifier: Apache-2.0
"""Where the measure benchmarks leave their results: `results/NAME.json`, with the facts of the machine."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from litesmith.measure import machine_facts
from litesmith.result import encode_fields
from litesmith.runtime import native_tier

RESULTS = Path(__file__).parent / "results"


def by_processor(name: str) -> str:
    """Return the name of results that depend on the processor: one set for each kind that they were measured on.

    A kind is the kernels, the maker, and family and model where these are told: two with the same instructions can differ
    as much as two with others (an AMD 25-17 adds 512 bits in two halves, a 26-2 in one).
    """
    cpu = machine_facts().cpu
    maker = re.match(r"[A-Za-z]*", cpu)
    kind = re.search(r"family (\d+) model (\d+)", cpu)
    parts = (name, native_tier() or "stock", maker[0].lower() if maker else "", "-".join(kind.groups()) if kind else "")
    return "_".join(part for part in parts if part)


def write_result(name: str, document: Mapping[str, object]) -> None:
    RESULTS.mkdir(exist_ok=True)
    text = json.dumps({"machine": encode_fields(machine_facts()), **document}, indent=2, ensure_ascii=False)
    (RESULTS / f"{name}.json").write_text(text + "\n", encoding="utf-8")
