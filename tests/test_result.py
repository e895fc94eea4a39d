# SPDX-License-Identifier: Apache-2.0
"""A result becomes JSON and comes back unchanged, or says why not."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from litesmith.errors import UsageError
from litesmith.result import Result


@dataclass(frozen=True)
class Inner:
    name: str
    values: tuple[float, ...]
    note: str | None = None


@dataclass(frozen=True)
class Sample(Result, kind="sample", schema=2):
    count: int
    parts: tuple[Inner, ...]
    pairs: tuple[tuple[str, float], ...]
    by_name: dict[str, int]
    maybe: Inner | None = None


EXAMPLE = Sample(3, (Inner("a", (1.0, math.inf)), Inner("b", (), "x")), (("p", 0.5),), {"k": 1}, Inner("m", (2.0,)))


def test_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "r.json"

    assert Sample.from_json(EXAMPLE.to_json(path)) == EXAMPLE
    assert Sample.from_json(path) == EXAMPLE
    assert json.loads(path.read_text())["schema"] == 2


def test_numpy_values_are_written_as_numbers() -> None:
    result = Sample(np.int64(3), (Inner("a", np.array([1.0, 2.0])),), (), {})  # type: ignore[arg-type]

    assert Sample.from_json(result.to_json()).parts[0].values == (1.0, 2.0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("not json", "not JSON"),
        ("[]", "list"),
        ('{"kind": "other", "schema": 2}', "other"),
        ('{"kind": "sample", "schema": 1}', "schema 1"),
        ('{"kind": "sample", "schema": 2}', "damaged"),
        ('{"kind": "sample", "schema": 2, "count": 1, "parts": 5, "pairs": [], "by_name": {}}', "damaged"),
    ],
)
def test_what_is_wrong_is_said(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Sample.from_json(text)
