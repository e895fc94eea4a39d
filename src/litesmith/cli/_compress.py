# SPDX-License-Identifier: Apache-2.0
"""What the verbs that make a model smaller share: reading it and the samples, writing the result, its sizes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

from litesmith.cli import _output as out
from litesmith.data import Dataset
from litesmith.model import Model
from litesmith.optimize import FileSizes, Recipe, dequantize
from litesmith.result import Result

Coverage = TypeVar("Coverage", bound=Result, covariant=True)


class Compressed(Protocol[Coverage]):
    """A new model and what was done."""

    @property
    def model(self) -> Model:
        """What is written."""

    @property
    def coverage(self) -> Coverage:
        """What is shown."""


def load(path: Path, *, undo: bool) -> Model:
    """Return a model that was verified, made float where asked for."""
    model = Model.load(path)
    model.verify()
    return dequantize(model) if undo else model


def samples(data: str | None, preprocess: str | None) -> Dataset | None:
    """Return the data, None where there are none."""
    return None if data is None else Dataset.open(data, preprocess=preprocess)


def finish(result: Compressed[Coverage], output: Path, show: Callable[[Coverage, Path], None], *, json: bool) -> None:
    """Write the model and say what was done."""
    result.model.save(output)
    if json:
        out.json(result.coverage)
    else:
        show(result.coverage, output)


def read_recipe(text: str) -> Recipe:
    """Return the recipe that a text is, or that the .toml has which it names."""
    return Recipe.from_toml(Path(text)) if text.endswith(".toml") else Recipe.parse(text)


def written_rows(path: Path | None) -> list[tuple[str, object]]:
    """Return the file that was written as a fact; a step of a recipe writes none."""
    return [] if path is None else [("written", path)]


def size_rows(sizes: tuple[FileSizes, FileSizes] | None) -> list[tuple[str, object]]:
    """Return the sizes of a file before and after as facts."""
    if sizes is None:
        return []
    pairs = [(name, getattr(sizes[0], name), getattr(sizes[1], name)) for name in ("raw", "gzip", "zstd", "brotli")]
    texts = [f"{name} {out.bytes_text(a)} → {out.bytes_text(b)} ({100 * b / a:.0f} %)" for name, a, b in pairs]
    return [("file", ", ".join(texts[:2])), ("", ", ".join(texts[2:]))]
