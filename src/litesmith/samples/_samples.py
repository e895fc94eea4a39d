# SPDX-License-Identifier: Apache-2.0
"""Where the bundled files are, and what is known about them. ``tools/make_samples.py`` makes them."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from litesmith.data import Dataset
from litesmith.errors import UsageError
from litesmith.model import Model

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_FOLDER = Path(__file__).resolve().parent
_FILES = ("fashion.tflite", "fashion-test.npz", "fashion-train.npz", "samples.toml")


@dataclass(frozen=True)
class Facts:
    """What the float model reaches on one split in LiteRT, and where the data comes from.

    Attributes:
        samples: how many images the split has.
        correct: how many of them the model gets right.
        preprocess: what the model wants done to the stored pixels.
        class_names: what the class numbers mean.
        licence: of the data.
        source: of the data.
    """

    samples: int
    correct: int
    preprocess: str
    class_names: tuple[str, ...]
    licence: str
    source: str

    @property
    def accuracy(self) -> float:
        """The share that the model gets right."""
        return self.correct / self.samples


def path(name: str = "fashion.tflite") -> Path:
    """Return the path of a bundled file, for tools that take one.

    Example:
        >>> path("fashion-test.npz").name
        'fashion-test.npz'
    """
    if name not in _FILES:
        raise UsageError(f"there is no sample {name!r}; there are {', '.join(_FILES)}")
    return _FOLDER / name


def model() -> Model:
    """Return the bundled model: a float MobileNet V2 in small that tells ten kinds of clothes apart.

    Example:
        >>> [tensor for tensor, _ in model().signatures[0].outputs]
        ['logits']
    """
    return Model.load(path("fashion.tflite"))


def dataset(split: str = "test") -> Dataset:
    """Return bundled images with their classes, preprocessed as the model wants them.

    Args:
        split: ``test`` holds images that the model has never seen; ``train`` holds a part of those it was trained on,
            for calibration and training.

    Example:
        >>> len(dataset("test")), dataset("test")[0].x.shape
        (4000, (28, 28))
    """
    known = facts(split)
    return Dataset.open(path(f"fashion-{split}.npz"), preprocess=known.preprocess)


def facts(split: str = "test") -> Facts:
    """Return what is known about the model on one split.

    Example:
        >>> facts().samples
        4000
    """
    document = _document()
    bundled = [name for name, values in document["splits"].items() if "file" in values]
    if split not in bundled:
        raise UsageError(f"the sample has no split {split!r}; there are {', '.join(bundled)}")
    return Facts(
        samples=document["splits"][split]["samples"],
        correct=document["splits"][split]["correct"],
        preprocess=document["preprocess"],
        class_names=tuple(document["class_names"]),
        licence=document["dataset_licence"],
        source=document["dataset_source"],
    )


@cache
def _document() -> dict[str, Any]:
    return tomllib.loads(path("samples.toml").read_text(encoding="utf-8"))
