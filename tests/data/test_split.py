# SPDX-License-Identifier: Apache-2.0
"""Splits, draws and fingerprints depend on what the samples are, and on nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from litesmith.data import Dataset
from litesmith.errors import DataError, UsageError

PARTS = {"calibrate": 0.2, "search": 0.4, "held_out": 0.4}


def rows(values: list[int]) -> NDArray[np.int32]:
    return np.array(values, np.int32).reshape(-1, 1).repeat(3, axis=1)


def members(dataset: Dataset, **options: Any) -> dict[str, set[int]]:
    parts = dataset.split(**{**PARTS, **options})
    return {name: {int(sample.x[0]) for sample in part} for name, part in parts.items()}


LARGE = list(range(200))


@settings(max_examples=30, deadline=None)
@given(st.permutations(LARGE), st.integers(0, 5))
def test_order_does_not_matter(order: list[int], seed: int) -> None:
    dataset, shuffled = Dataset.from_arrays(rows(LARGE)), Dataset.from_arrays(rows(order))

    assert members(dataset, seed=seed) == members(shuffled, seed=seed)
    assert {int(s.x[0]) for s in dataset.take(17, seed)} == {int(s.x[0]) for s in shuffled.take(17, seed)}
    assert dataset.fingerprint() == shuffled.fingerprint()


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1000, 10_000), max_size=50, unique=True), st.sets(st.sampled_from(LARGE), max_size=50))
def test_adding_and_removing_moves_no_other_sample(added: list[int], removed: set[int]) -> None:
    before = members(Dataset.from_arrays(rows(LARGE)))
    after = members(Dataset.from_arrays(rows([*added, *(v for v in LARGE if v not in removed)])))

    for name in PARTS:
        assert {v for v in after[name] if v < 1000} == before[name] - removed


def test_alike_samples_share_a_part_whatever_their_label() -> None:
    dataset = Dataset.from_arrays(rows(LARGE + LARGE), np.arange(400))
    parts = dataset.split(**PARTS)

    for part in parts.values():
        values, counts = np.unique([sample.x[0] for sample in part], return_counts=True)
        assert len(values) > 0
        assert set(counts) == {2}


def test_parts_are_disjoint_complete_and_close_to_their_fractions() -> None:
    dataset = Dataset.from_arrays(rows(list(range(5000))))
    parts = members(dataset)

    assert sum(map(len, parts.values())) == 5000
    assert set.union(*parts.values()) == set(range(5000))
    for name, fraction in PARTS.items():
        # five standard deviations of a binomial count
        assert abs(len(parts[name]) - 5000 * fraction) < 5 * (5000 * fraction * (1 - fraction)) ** 0.5


def test_fractions_below_one_leave_samples_out() -> None:
    parts = Dataset.from_arrays(rows(list(range(1000)))).split(a=0.1, b=0.2)

    assert 50 < len(parts["a"]) < 150
    assert 130 < len(parts["b"]) < 270


def test_the_seed_changes_the_split_and_preprocessing_does_not() -> None:
    dataset = Dataset.from_arrays(rows(LARGE), np.array(LARGE))
    plain = [part.labels.tolist() for part in dataset.split(**PARTS).values() if part.labels is not None]
    scaled = dataset.with_preprocess("scale=2").split(**PARTS).values()

    assert plain == [part.labels.tolist() for part in scaled if part.labels is not None]
    assert members(dataset) != members(dataset, seed=1)


def test_a_part_can_be_split_again() -> None:
    half = Dataset.from_arrays(rows(list(range(1000)))).split(a=0.5, b=0.5)["a"]
    quarters = half.split(a=0.5, b=0.5)

    assert abs(len(quarters["a"]) - len(quarters["b"])) < 120
    assert len(quarters["a"]) + len(quarters["b"]) == len(half)


def test_impossible_splits_are_refused() -> None:
    dataset = Dataset.from_arrays(rows(LARGE))
    with pytest.raises(UsageError, match=r"add up to 1\.2"):
        dataset.split(a=0.6, b=0.6)
    with pytest.raises(UsageError, match=r"a=-0\.1"):
        dataset.split(a=-0.1, b=0.6)
    with pytest.raises(UsageError, match="at least one"):
        dataset.split()
    with pytest.raises(DataError, match="no sample falls to 'b' when 2 are split"):
        dataset[:2].split(a=0.999999, b=0.000001)


def test_take_draws_without_replacement_and_gives_all_when_there_are_fewer() -> None:
    dataset = Dataset.from_arrays(rows(LARGE))
    taken = [int(sample.x[0]) for sample in dataset.take(50, seed=3)]

    assert len(set(taken)) == 50
    assert taken == sorted(taken)  # in the order of the data
    assert set(taken) != {int(sample.x[0]) for sample in dataset.take(50, seed=4)}
    assert len(dataset.take(1000)) == 200
    with pytest.raises(UsageError, match=r"take\(0\)"):
        dataset.take(0)


def test_shuffled_keeps_the_samples() -> None:
    dataset = Dataset.from_arrays(rows(LARGE), np.array(LARGE))
    shuffled = dataset.shuffled(1)

    assert shuffled.labels is not None
    assert shuffled.labels.tolist() != LARGE
    assert sorted(shuffled.labels.tolist()) == LARGE
    assert shuffled.fingerprint() == dataset.fingerprint()
    assert all(sample.label == sample.x[0] for sample in shuffled)
    with pytest.raises(UsageError, match="0 or more, not -5"):
        dataset.shuffled(-5)


def test_the_fingerprint_changes_with_everything_that_matters() -> None:
    x, y = rows(LARGE), np.array(LARGE) % 3
    changed_x, changed_y = x.copy(), y.copy()
    changed_x[7, 1] += 1
    changed_y[7] += 1
    prints = [
        Dataset.from_arrays(x, y),
        Dataset.from_arrays(x),
        Dataset.from_arrays(changed_x, y),
        Dataset.from_arrays(x, changed_y),
        Dataset.from_arrays(x, np.roll(y, 1)),
        Dataset.from_arrays(x[1:], y[1:]),
        Dataset.from_arrays(np.concatenate([x, x[:1]]), np.concatenate([y, y[:1]])),
        Dataset.from_arrays(x.astype(np.int64), y),
        Dataset.from_arrays(x.reshape(-1, 3, 1), y),
        Dataset.from_arrays(x, y, preprocess="scale=2"),
        Dataset.from_arrays(x, y, class_names=["a", "b", "c"]),
        Dataset.from_arrays(x, y, class_names=["a", "c", "b"]),
        Dataset.from_arrays({"a": x, "b": x}, y),
    ]

    assert len({dataset.fingerprint() for dataset in prints}) == len(prints)
    assert all(len(dataset.fingerprint()) == 32 for dataset in prints)


def test_the_fingerprint_does_not_change_with_what_does_not_matter() -> None:
    x, y = rows(LARGE), np.array(LARGE) % 3
    expected = Dataset.from_arrays(x, y).fingerprint()

    assert Dataset.from_arrays(np.asfortranarray(x), y.astype(np.uint8)).fingerprint() == expected
    assert Dataset.from_arrays(x.astype(">i4"), y.reshape(-1, 1)).fingerprint() == expected
