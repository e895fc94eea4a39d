# SPDX-License-Identifier: Apache-2.0
"""Dataset as a value: size, order, slices, batches, labels, names, pickles."""

from __future__ import annotations

import doctest
import importlib
import pickle
import pkgutil
from pathlib import Path

import numpy as np
import pytest

import litesmith.data
from litesmith.data import Dataset, InputSpec, Preprocess
from litesmith.errors import DataError, UsageError

X = np.arange(100 * 6, dtype=np.float32).reshape(100, 2, 3)
Y = np.arange(100) % 7


@pytest.fixture
def dataset() -> Dataset:
    return Dataset.from_arrays(X, Y)


def test_length_order_and_samples(dataset: Dataset) -> None:
    samples = list(dataset)

    assert len(dataset) == len(samples) == 100
    assert np.array_equal([sample.x for sample in samples], X)
    assert [sample.label for sample in samples] == Y.tolist()
    assert type(samples[0].label) is int
    assert samples[4].key == "array[4]"
    assert np.array_equal(dataset[-1].x, X[-1])


def test_reading_again_gives_the_same_and_never_the_users_memory(dataset: Dataset) -> None:
    for sample in dataset:
        sample.x[:] = -1
    dataset[0].x[:] = -1
    next(dataset.batches(3)).x[:] = -1

    assert np.array_equal([sample.x for sample in dataset], X)


def test_positions_out_of_range(dataset: Dataset) -> None:
    for position in (100, -101):
        with pytest.raises(IndexError):
            dataset[position]
        with pytest.raises(UsageError, match="not all among the 100 samples"):
            dataset.subset([0, position])


def test_slices_subsets_and_masks_are_datasets(dataset: Dataset) -> None:
    assert dataset[10:20][3].key == "array[13]"
    assert dataset[10:20][2:5].labels is not None
    assert dataset[10:20][2:5].labels.tolist() == Y[12:15].tolist()
    assert [sample.key for sample in dataset[::-40]] == ["array[99]", "array[59]", "array[19]"]
    assert [sample.key for sample in dataset.subset([5, 2, 2, -1])] == ["array[5]", "array[2]", "array[2]", "array[99]"]
    assert dataset.subset(Y == 3).labels is not None
    assert set(dataset.subset(Y == 3).labels.tolist()) == {3}
    assert len(dataset.subset(i for i in range(4))) == 4
    for empty in (lambda: dataset[5:5], lambda: dataset.subset([]), lambda: dataset.subset(Y == 9)):
        with pytest.raises(DataError, match="no samples"):
            empty()
    with pytest.raises(UsageError, match="mask"):
        dataset.subset(np.array([True]))


@pytest.mark.parametrize("size", [1, 7, 32, 100, 1000])
def test_batches_are_the_samples_stacked(dataset: Dataset, size: int) -> None:
    batches = list(dataset.batches(size))

    assert [len(batch) for batch in batches][:-1] == [size] * (len(batches) - 1)
    assert np.array_equal(np.concatenate([batch.x for batch in batches]), X)
    assert np.array_equal(np.concatenate([batch.labels for batch in batches if batch.labels is not None]), Y)
    assert [key for batch in batches for key in batch.keys] == [sample.key for sample in dataset]


def test_batches_of_samples_read_one_by_one(tmp_path: Path) -> None:
    for number in range(7):
        np.save(tmp_path / f"{number}.npy", X[number])
    batches = list(Dataset.open(tmp_path).batches(3))

    assert [batch.x.shape for batch in batches] == [(3, 2, 3), (3, 2, 3), (1, 2, 3)]
    assert batches[0].labels is None
    assert batches[2].keys == ("6.npy",)


def test_what_cannot_be_stacked_is_named(tmp_path: Path) -> None:
    np.save(tmp_path / "0.npy", X[0])
    np.save(tmp_path / "1.npy", X[0].T)
    with pytest.raises(
        DataError, match=r"sample 1 .*1\.npy\): float32 \(3, 2\) cannot be stacked with float32 \(2, 3\)"
    ):
        list(Dataset.open(tmp_path).batches(2))
    with pytest.raises(UsageError, match="batch of 0"):
        Dataset.open(tmp_path).batches(0)


def test_labels_of_every_kind() -> None:
    x = X[:4]
    assert [s.label for s in Dataset.from_arrays(x)] == [None] * 4
    assert [s.label for s in Dataset.from_arrays(x, [0.5, 1, 2, 3])] == [0.5, 1.0, 2.0, 3.0]
    assert [s.label for s in Dataset.from_arrays(x, ["a b", "c", "d", "e"])] == ["a b", "c", "d", "e"]
    assert [s.label for s in Dataset.from_arrays(x, np.array([[1], [2], [3], [4]]))] == [1, 2, 3, 4]
    assert Dataset.from_arrays(x, X[:4])[2].label.tolist() == X[2].tolist()
    boxes = [np.zeros((n, 5)) for n in range(4)]
    labelled = Dataset.from_arrays(x, boxes)
    assert [s.label.shape for s in labelled] == [(0, 5), (1, 5), (2, 5), (3, 5)]
    batch = next(labelled.batches(4))
    assert batch.labels is not None
    assert batch.labels[3].shape == (3, 5)
    assert labelled.fingerprint() == Dataset.from_arrays(x, boxes).fingerprint()


def test_labels_must_be_as_many_as_samples() -> None:
    with pytest.raises(DataError, match="100 samples but 99 labels"):
        Dataset.from_arrays(X, Y[1:])
    with pytest.raises(DataError, match="100 samples but 1 labels"):
        Dataset.from_arrays(X, np.array(3))


def test_labels_from_files(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X[:3])
    np.save(tmp_path / "y.npy", Y[:3])
    (tmp_path / "names.txt").write_text("dog\ncat\ndog\n\n")
    (tmp_path / "numbers.txt").write_text("5\n6\n7")

    assert [s.label for s in Dataset.open(tmp_path / "x.npy", labels=tmp_path / "y.npy")] == [0, 1, 2]
    assert [s.label for s in Dataset.open(tmp_path / "x.npy", labels=str(tmp_path / "numbers.txt"))] == [5, 6, 7]
    named = Dataset.open(tmp_path / "x.npy", labels=tmp_path / "names.txt")
    assert [s.label for s in named] == [1, 0, 1]
    assert named.class_names == ("cat", "dog")
    with pytest.raises(DataError, match="neither a file nor the name of an array"):
        Dataset.open(tmp_path / "x.npy", labels="missing.npy")
    with pytest.raises(DataError, match="3 samples but 2 labels"):
        Dataset.open(tmp_path / "x.npy", labels=[1, 2])


def test_class_names_renumber_labels(tmp_path: Path) -> None:
    names = ["background", "cat", "dog"]
    (tmp_path / "labels.txt").write_text("\n".join(names))
    by_name = Dataset.from_arrays(X[:3], ["dog", "cat", "dog"], class_names=names)

    assert [s.label for s in by_name] == [2, 1, 2]
    assert by_name.class_names == tuple(names)
    assert Dataset.open(X[:3], labels=["dog", "cat", "dog"], class_names=tmp_path / "labels.txt")[0].label == 2
    assert [s.label for s in Dataset.from_arrays(X[:3], [0, 1, 2], class_names=names)] == [0, 1, 2]
    with pytest.raises(DataError, match="class 'bird' not found among the 3 class names"):
        Dataset.from_arrays(X[:3], ["dog", "bird", "dog"], class_names=names)
    with pytest.raises(DataError, match="sample 2 has label 3, and there are 3 class names"):
        Dataset.from_arrays(X[:3], [0, 1, 3], class_names=names)


def test_repr_says_what_it_is(dataset: Dataset) -> None:
    assert repr(dataset) == "Dataset(100 samples, x float32 2×3, 7 classes, from the given arrays)"
    assert "unlabelled" in repr(Dataset.from_arrays(X))
    assert dataset.summary == "100 samples of the given arrays"
    assert "labelled, from" in repr(Dataset.from_arrays(X, X))
    bound = dataset.with_preprocess("scale=2").bind([InputSpec("in", (1, 2, 3), np.dtype("float32"))])
    assert "for in float32 1×2×3" in repr(bound)
    assert repr(bound).endswith("scale=2.0)")


def test_open_takes_arrays_and_datasets(dataset: Dataset) -> None:
    assert len(Dataset.open(X)) == 100
    assert Dataset.open({"a": X, "b": Y}).inputs == ("a", "b")
    assert Dataset.open(dataset) is dataset
    assert Dataset.open(dataset, preprocess="scale=2").preprocess == Preprocess(scale=(2.0,))
    with pytest.raises(UsageError, match="belong to the call"):
        Dataset.open(dataset, labels=Y)
    with pytest.raises(UsageError, match="a int is not a source"):
        Dataset.open(3)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"inputs=a chooses arrays of an \.npz"):
        Dataset.open(X, inputs=["a"])


def test_arrays_that_hold_no_samples() -> None:
    with pytest.raises(DataError, match="first axis is 0"):
        Dataset.from_arrays(X[:0])
    with pytest.raises(DataError, match="no samples"):
        Dataset.open(X[:0])
    with pytest.raises(DataError, match="no arrays"):
        Dataset.from_arrays({})
    with pytest.raises(DataError, match=r"array 'x' is float32 \(\)"):
        Dataset.from_arrays(X[0, 0, 0])
    with pytest.raises(DataError, match="array 'x' is object"):
        Dataset.from_arrays(np.array([None, 3]))
    with pytest.raises(DataError, match="'a' has 100, 'b' has 99"):
        Dataset.from_arrays({"a": X, "b": X[1:]})


def test_x_is_for_one_input() -> None:
    with pytest.raises(UsageError, match=r"there are 2: use \.inputs\[name\] with a, b"):
        _ = Dataset.from_arrays({"a": X, "b": X})[0].x


def test_pickles_carry_the_view_and_not_the_file(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "d.npz", x=X, y=Y, masks=X)
    dataset = Dataset.open(tmp_path / "d.npz", preprocess="scale=2").split(a=0.5, b=0.5)["a"]
    list(dataset)
    pickled = pickle.dumps(dataset)
    copy = pickle.loads(pickled)

    assert len(pickled) < 6000
    assert copy.fingerprint() == dataset.fingerprint()
    assert [s.key for s in copy] == [s.key for s in dataset]
    assert np.array_equal([s.x for s in copy], [s.x for s in dataset])
    assert [len(part) for part in copy.split(c=0.5, d=0.5).values()] == [
        len(part) for part in dataset.split(c=0.5, d=0.5).values()
    ]
    masked = pickle.loads(pickle.dumps(Dataset.open(tmp_path / "d.npz", labels="masks")))
    assert np.array_equal(masked[5].label, X[5])
    given = pickle.loads(pickle.dumps(Dataset.open(tmp_path / "d.npz", labels=Y + 1)))
    assert given[0].label == Y[0] + 1


def test_every_example_in_the_docstrings_runs() -> None:
    for module in pkgutil.iter_modules(litesmith.data.__path__, "litesmith.data."):
        results = doctest.testmod(importlib.import_module(module.name))
        assert results.failed == 0, module.name


def test_the_public_names_are_sorted() -> None:
    assert litesmith.data.__all__ == sorted(litesmith.data.__all__)
    assert all(hasattr(litesmith.data, name) for name in litesmith.data.__all__)


def test_other_preprocessing_is_checked_too() -> None:
    data = Dataset.from_arrays({"ids": np.zeros((4, 2)), "mask": np.ones((4, 2))})
    for change in (data.with_preprocess, lambda text: Dataset.open(data, preprocess=text)):
        with pytest.raises(DataError, match="preprocessing inputs=maks: the given arrays has ids, mask"):
            change("scale=2 inputs=maks")


@pytest.mark.parametrize(
    ("labels", "message"),
    [([0, -1], "sample 1 has label -1, and there are 2 class names"), ([2, 0], "sample 0 has label 2")],
)
def test_labels_beyond_the_names_of_the_file(labels: list[int], message: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros((2, 1)), y=np.array(labels), class_names=np.array(["cat", "dog"]))
    with pytest.raises(DataError, match=message):
        Dataset.open(tmp_path / "a.npz", class_names=["dog", "cat"])


def test_a_class_name_that_stands_twice() -> None:
    x, names = np.zeros((2, 1)), ["crane", "dog", "crane"]
    assert Dataset.from_arrays(x, ["dog", "dog"], class_names=names).labels.tolist() == [1, 1]  # type: ignore[union-attr]
    assert Dataset.from_arrays(x, [2, 0], class_names=names).labels.tolist() == [2, 0]  # type: ignore[union-attr]
    with pytest.raises(DataError, match="class 'crane' stands twice among the class names given, as 0 and 2"):
        Dataset.from_arrays(x, ["dog", "crane"], class_names=names)


@pytest.mark.parametrize(
    ("lines", "labels", "names"),
    [
        (["1_0", "2"], [0, 1], ("1_0", "2")),
        (["123456789012345678901", "2"], [0, 1], ("123456789012345678901", "2")),
        (["-1", "2"], [-1, 2], None),
        (["0.5", "2"], [0.5, 2], None),
    ],
)
def test_labels_of_a_text_file(lines: list[str], labels: list[float], names: object, tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("\n".join(lines))
    data = Dataset.open(np.zeros((2, 1)), labels=tmp_path / "labels.txt")
    assert data.labels is not None
    assert (data.labels.tolist(), data.class_names) == (labels, names)
