# SPDX-License-Identifier: Apache-2.0
"""Samples from a function: called once, kept on disk, every mistake named."""

from __future__ import annotations

import json
import pickle
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from litesmith.data import Dataset, Sample, import_callable
from litesmith.errors import DataError, UsageError


def pairs() -> Iterator[tuple[list[float], int]]:
    for number in range(10):
        yield [float(number), 2.0], number % 3


def test_pairs_of_sample_and_label() -> None:
    dataset = Dataset.open(pairs)

    assert len(dataset) == 10
    assert dataset[4].x.tolist() == [4.0, 2.0]
    assert [sample.label for sample in dataset] == [n % 3 for n in range(10)]
    assert dataset[4].key == "pairs[4]"
    assert repr(dataset) == "Dataset(10 samples, x float64 2, 3 classes, from function pairs)"


def test_it_is_called_once() -> None:
    calls = []

    def random() -> list[Any]:
        calls.append(1)
        return [np.random.default_rng().random(5) for _ in range(20)]

    dataset = Dataset.open(random)

    assert [s.x.tolist() for s in dataset] == [s.x.tolist() for s in dataset]
    assert len(calls) == 1


def test_every_form_of_sample() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert np.array_equal([s.x for s in Dataset.open(lambda: x)], x)
    assert Dataset.open(lambda: [{"a": x, "b": 1}, {"b": 2, "a": x}])[1].inputs["b"] == 2
    assert Dataset.open(lambda: [({"a": x}, "word")])[0].label == "word"
    assert Dataset.open(lambda: iter([Sample({"q": x}, 5, "key")]))[0].label == 5
    assert Dataset.open(lambda: [(x, np.float32(0.5))])[0].label == 0.5
    assert Dataset.open(lambda: [np.array("text")])[0].x == "text"
    assert Dataset.open(lambda: [(x, {"boxes": [1]})])[0].label == {"boxes": [1]}


def test_an_object_with_length_and_items_is_enough() -> None:
    class Images:
        def __call__(self) -> Images:
            return self

        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> tuple[Any, int]:
            return np.full(3, index), index

    assert [s.label for s in Dataset.open(Images())] == [0, 1, 2, 3]


def test_samples_of_several_shapes() -> None:
    shapes = [(4, 6, 3), (5, 5, 3), (4, 4, 3)]
    dataset = Dataset.open(lambda: [np.ones(shape, np.uint8) for shape in shapes])

    assert [s.x.shape for s in dataset] == shapes
    assert "x of several shapes" in repr(dataset)
    with pytest.raises(DataError, match=r"sample 1 of function .*cannot be stacked"):
        list(dataset.batches(3))
    resized = dataset.with_preprocess("resize=4x4")
    assert next(resized.batches(3)).x.shape == (3, 4, 4, 3)
    assert len(dataset.fingerprint()) == 32


def test_labels_that_are_arrays() -> None:
    masks = [np.full((3, 3), n, np.uint8) for n in range(4)]
    dataset = Dataset.open(lambda: [(np.zeros(2), mask) for mask in masks])
    assert np.array_equal([s.label for s in dataset], masks)
    assert dataset.labels is not None
    assert dataset.labels.shape == (4, 3, 3)
    boxes = Dataset.open(lambda: [(np.zeros(2), np.ones((n, 5))) for n in range(4)])
    assert [s.label.shape for s in boxes] == [(n, 5) for n in range(4)]


def test_memory_does_not_grow_with_the_samples() -> None:
    def many() -> Iterator[Any]:
        for number in range(400):
            yield np.full(250_000, number % 256, np.uint8), np.zeros(1000)

    tracemalloc.start()
    try:
        dataset = Dataset.open(many)
        total = sum(int(sample.x[0]) for sample in dataset)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert total == sum(n % 256 for n in range(400))
    assert peak < 20e6  # of 100 MB


def test_pickling_calls_the_function_again() -> None:
    dataset = pickle.loads(pickle.dumps(Dataset.open(f"{__file__}:pairs")[2:5]))

    assert [s.label for s in dataset] == [2, 0, 1]


def test_references(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_samples.py").write_text(
        "import numpy\n"
        "def samples():\n    return [numpy.ones(3)] * 4\n"
        "class Group:\n    @staticmethod\n    def samples():\n        return [(numpy.zeros(3), 1)]\n"
        "number = 3\n"
    )
    monkeypatch.chdir(tmp_path)

    assert len(Dataset.open("own_samples:samples")) == 4
    assert Dataset.open("own_samples:Group.samples")[0].label == 1
    assert len(Dataset.open(f"{tmp_path}/own_samples.py:samples")) == 4
    assert Dataset.open("own_samples:samples")[0].key == "own_samples:samples[0]"
    for reference, words in [
        ("own_samples:nothing", "has no 'nothing'"),
        ("own_samples:number", "is a int; it must be a function"),
        ("no_such_module:f", "importing no_such_module failed: ModuleNotFoundError"),
        ("missing.py:f", r"there is no file missing\.py"),
        (":f", "does not name a function"),
        ("own_samples:", "does not name a function"),
    ]:
        with pytest.raises(UsageError, match=words):
            Dataset.open(reference)
    assert import_callable("os.path:join")("a", "b") == "a/b"


def test_a_broken_module_is_named(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("1 / 0")
    with pytest.raises(UsageError, match="ZeroDivisionError: division by zero"):
        Dataset.open(f"{tmp_path}/broken.py:f")


def test_mistakes_of_the_function_are_named() -> None:
    def fails() -> Iterator[Any]:
        yield np.zeros(3)
        yield np.zeros(3)
        raise KeyError("lost")

    def open_samples(*samples: Any) -> Dataset:
        return Dataset.open(lambda: samples)

    with pytest.raises(DataError, match=r"function .*fails failed at sample 2: KeyError: 'lost'"):
        Dataset.open(fails)
    with pytest.raises(DataError, match="gave no samples"):
        open_samples()
    with pytest.raises(DataError, match="failed at sample 0: TypeError"):
        Dataset.open(lambda: None)  # type: ignore[arg-type, return-value]
    with pytest.raises(DataError, match=r"failed at sample 0: TypeError.*take no arguments"):
        Dataset.open(lambda count: [count])  # type: ignore[arg-type]
    with pytest.raises(DataError, match=r"sample 1 of function .*its inputs are b, and those of the first sample a"):
        open_samples({"a": 1}, {"b": 2})
    with pytest.raises(DataError, match=r"sample 0 of function .*a tuple of 3"):
        open_samples((1, 2, 3))
    with pytest.raises(DataError, match=r"sample 0 of function .*empty dict"):
        open_samples({})
    with pytest.raises(DataError, match=r"sample 0 of function .*Python objects"):
        open_samples(object())
    with pytest.raises(DataError, match=r"sample 1 of function .*label all or none"):
        open_samples((np.zeros(2), 1), np.zeros(2))
    with pytest.raises(DataError, match=r"sample 1 of function .*label all or none"):
        open_samples((np.zeros(2), np.zeros(2)), np.zeros(2))
    with pytest.raises(DataError, match=r"sample 1 of function .* is nan"):
        list(open_samples(np.zeros(2), np.array([0, np.nan])))


def test_a_function_that_never_ends_stops_before_the_disk_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    def endless() -> Iterator[Any]:
        while True:
            yield np.zeros(1 << 10)

    monkeypatch.setattr("litesmith.data._rows._CHECK_BYTES", 1 << 62)  # more than any disk has left
    with pytest.raises(DataError, match=r"fill the disk of .*itertools\.islice"):
        Dataset.open(endless)


def test_a_file_may_have_dataclasses_with_late_annotations(tmp_path: Path) -> None:
    path = tmp_path / "json.py"  # the name of a module of Python's stays that module
    path.write_text(
        "from __future__ import annotations\n"
        "from dataclasses import KW_ONLY, dataclass\n"
        "@dataclass\n"
        "class Pair:\n"
        "    _: KW_ONLY\n"
        "    value: float\n"
        "def samples():\n"
        "    return [[Pair(value=2.0).value]]\n"
    )
    assert Dataset.open(f"{path}:samples")[0].x.tolist() == [2.0]
    assert sys.modules.get("json") is json
