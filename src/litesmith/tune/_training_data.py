# SPDX-License-Identifier: Apache-2.0
"""Samples to train on: none of them may be one that candidates are scored on, by its content, however it is stored."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from litesmith.data import Dataset, Preprocess
from litesmith.errors import DataError, UsageError
from litesmith.model import Model
from litesmith.progress import task
from litesmith.train._torch import require_torch

FEWEST = 20
"""As many as ``litesmith.train`` needs to train on most of them and keep some to score by."""


def open_training(
    source: Dataset | str | Path,
    model: Model,
    data: Dataset,
    scored: Sequence[Dataset],
    *,
    label_offset: int,
) -> tuple[Dataset, int]:
    """Return the samples to train on, and how many were left out because candidates are scored on them.

    Args:
        source: samples as the user gave them.
        model: the float model.
        data: all samples of the search: what is done to them is done to samples that are no Dataset, too.
        scored: the parts that candidates are scored on.
        label_offset: added to class numbers.
    """
    require_torch("training candidates")
    given = _opened(source, data.preprocess, label_offset)
    named = given.class_names is not None and data.class_names is not None and given.labels is not None
    if named and given.class_names != data.class_names:
        raise DataError(
            f"the classes of the samples to train on are not those that are scored: {_first_difference(given, data)}; "
            "give both the same classes, or the samples to train on without labels"
        )
    chosen = _fresh(given, scored, model)
    left_out = len(given) - len(chosen)
    if len(chosen) < FEWEST:
        raise DataError(
            f"{left_out} of {len(given)} samples to train on are also scored on, which leaves {len(chosen)}; "
            f"give {FEWEST} or more that are not among the data"
        )
    # A part of its own: what is left of the data may be one end of the numbers that it was split by, and training, which
    # splits again, must not cut along the same ones.
    return given.subset(chosen).split(train=1.0)["train"], left_out


def _opened(source: Dataset | str | Path, preprocess: Preprocess, label_offset: int) -> Dataset:
    if isinstance(source, Dataset):
        if label_offset and source.labels is not None:
            raise UsageError(
                f"label_offset is {label_offset}, and the samples to train on are a Dataset with labels; give their path, "
                "or leave its labels out"
            )
        return source
    given = Dataset.open(source, preprocess=preprocess)
    labels = given.labels
    if not label_offset or labels is None or labels.dtype.kind not in "iu":
        return given
    return Dataset.open(source, preprocess=preprocess, labels=labels.astype(np.int64) + label_offset)


def _first_difference(given: Dataset, data: Dataset) -> str:
    ours, theirs = given.class_names or (), data.class_names or ()
    number = next((n for n, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), None)
    if number is None:
        return f"there are {len(ours)}, and {len(theirs)}"
    return f"class {number} is {ours[number]!r}, and {theirs[number]!r}"


def _fresh(given: Dataset, scored: Sequence[Dataset], model: Model) -> list[int]:
    """Return which samples are none of the scored ones: neither as they are stored nor as the model reads them.

    They are ordered by content: training sees them in an order that follows from theirs, and the same samples in
    another file shall make the same model.
    """
    read, stored = set[bytes](), set[bytes]()
    for part in scored:
        read.update(_read(part, model))
        stored.update(part.content_hashes())
    ours, ours_stored = list(_read(given, model)), given.content_hashes()
    fresh = [n for n, content in enumerate(ours) if content not in read and ours_stored[n] not in stored]
    return sorted(fresh, key=lambda n: ours[n])


def _read(data: Dataset, model: Model) -> Iterator[bytes]:
    """Yield the hash of each sample as the model reads it."""
    with task("Looking for samples that are scored on", total=len(data)) as advance:
        for sample in data.bind(model):
            digest = hashlib.blake2b(digest_size=16)
            for name in sorted(sample.inputs):
                array = np.ascontiguousarray(sample.inputs[name])
                digest.update(f"{name} {array.dtype} {array.shape}".encode())
                digest.update(array.tobytes())
            yield digest.digest()
            advance(1)
