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
    ("field", "value", "message"),
    [
        ("count", "3", "count must be a whole number, not '3'"),
        ("count", True, "count must be a whole number, not True"),
        ("count", None, "count must be a whole number, not None"),
        ("parts", [{"name": 5, "values": []}], r"parts\[0\]\.name must be text, not 5"),
        ("parts", [{"name": "a", "values": [1, "x"]}], r"parts\[0\]\.values\[1\] must be a number, not 'x'"),
        ("parts", [{"name": "a", "values": [10**400]}], "too large"),
        ("pairs", [["p"]], r"pairs\[0\] must be a list of 2, not of 1"),
        ("by_name", {"k": 0.5}, r"by_name\.k must be a whole number, not 0\.5"),
        ("maybe", 7, "maybe must be an object, not 7"),
    ],
)
def test_a_field_of_another_type_is_named(field: str, value: object, message: str) -> None:
    document = {**json.loads(EXAMPLE.to_json()), field: value}
    with pytest.raises(UsageError, match=f"damaged.*{message}"):
        Sample.from_json(json.dumps(document))


def test_a_file_is_named_also_where_it_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_bytes(b"TFL3\xd8\x00")

    with pytest.raises(UsageError, match=r"r\.json is not a Sample: it is not JSON"):
        Sample.from_json(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("not json", "not JSON"),
        ("[]", "list"),
        ('{"kind": "other", "schema": 2}', "other"),
        ('{"kind": "sample", "schema": 1}', "schema 1"),
        ('{"kind": "sample", "schema": 2}', "damaged.*count is missing"),
        ('{"kind": "sample", "schema": 2, "count": 1, "parts": 5, "pairs": [], "by_name": {}}', "parts must be a list"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_what_is_wrong_is_said(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Sample.from_json(text)
