# SPDX-License-Identifier: Apache-2.0
"""Which samples belong together, decided by what they are and not by where they stand.

A sample's hash, mixed with a seed, is a number in [0, 1) that only depends on the sample: shuffling the data, adding to
it or removing from it moves no other sample, and two alike samples always share their fate. Hash: BLAKE2 (RFC 7693).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from litesmith.data._sample import plain_label
from litesmith.data._source import HASH_BYTES, hash_array
from litesmith.errors import UsageError


def draw(identities: Iterable[bytes], *, seed: int, purpose: str) -> NDArray[np.float64]:
    """Return a number in [0, 1) for each identity; another seed or purpose gives unrelated numbers."""
    key = blake2b(f"{seed}/{purpose}".encode()).digest()
    draws = (int.from_bytes(blake2b(identity, digest_size=8, key=key).digest(), "big") for identity in identities)
    return np.fromiter((number >> 11 for number in draws), np.float64) / 2.0**53


def divide(draws: NDArray[np.float64], fractions: Mapping[str, float]) -> dict[str, NDArray[np.int64]]:
    """Return the positions that fall to each part; with fractions below 1 in sum, some fall to none.

    >>> {name: rows.tolist() for name, rows in divide(np.array([0.1, 0.9, 0.4]), {"a": 0.5, "b": 0.5}).items()}
    {'a': [0, 2], 'b': [1]}
    """
    if not fractions:
        raise UsageError("a split needs at least one named fraction, e.g. split(calibrate=0.2, held_out=0.8)")
    for name, fraction in fractions.items():
        if not 0 < fraction <= 1:
            raise UsageError(f"split: {name}={fraction} must be above 0 and at most 1")
    ends = list(accumulate(fractions.values()))
    if ends[-1] > 1 + 1e-9:
        raise UsageError(f"split: the fractions add up to {ends[-1]:g}; they may be 1 at most")
    if ends[-1] > 1 - 1e-9:
        ends[-1] = 1.0  # 0.2 + 0.4 + 0.4 may end just below 1
    part = np.searchsorted(np.array(ends), draws, side="right")
    return {name: np.flatnonzero(part == number) for number, name in enumerate(fractions)}


def fingerprint(hashes: Iterable[bytes], labels: Iterable[Any] | None, *context: str) -> str:
    """Return one hash of all samples with their labels, in whatever order they come, and of the context."""
    digest = blake2b(digest_size=HASH_BYTES)
    for text in context:
        digest.update(len(text).to_bytes(8, "big") + text.encode())
    if labels is not None:
        hashes = (content + _hash_label(label) for content, label in zip(hashes, labels, strict=True))
    for content in sorted(hashes):
        digest.update(content)
    return digest.hexdigest()


def _hash_label(label: Any) -> bytes:
    label = plain_label(label)
    if isinstance(label, np.ndarray) and not label.dtype.hasobject:
        return hash_array(label)
    return blake2b(repr(label).encode(), digest_size=HASH_BYTES).digest()
