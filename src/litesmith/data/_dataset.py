# SPDX-License-Identifier: Apache-2.0
"""Dataset: samples for a model's inputs, with labels where there are any.

A Dataset is a view: a source, the positions that belong to it, and what to do with each sample. Subsets, splits and
bindings are other views of the same source; nothing is read before it is asked for, and nothing that was read is kept.
"""

from __future__ import annotations

import copy
import operator
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np

from litesmith.data._fit import (
    InputLike,
    InputSpec,
    first_not_finite,
    fit,
    has_batch_axis,
    match_columns,
    model_inputs,
)
from litesmith.data._labels import read_class_names, read_labels, renumber
from litesmith.data._npz import open_npz
from litesmith.data._open import SourceLike, arrays_source, open_source
from litesmith.data._preprocess import Preprocess
from litesmith.data._rows import Array, Indices
from litesmith.data._sample import Batch, Sample, plain_label
from litesmith.data._source import Source
from litesmith.data._split import divide, draw, fingerprint
from litesmith.data._transform import transform
from litesmith.errors import DataError, UsageError
from litesmith.model import Model
from litesmith.progress import task

_SHOWN_PROBLEMS = 5
_CHECKED_AT_ONCE = 64


class Dataset:
    """Samples for a model's inputs, with labels where there are any; read when asked for.

    Example:
        >>> pixels = np.arange(100 * 8 * 8, dtype=np.uint32).reshape(100, 8, 8) % 256
        >>> data = Dataset.from_arrays(pixels.astype(np.uint8), np.arange(100) % 10, preprocess="scale=1/255")
        >>> data
        Dataset(100 samples, x uint8 8×8, 10 classes, from the given arrays, scale=0.00392156862745098)
        >>> data[3].x.dtype, data[3].label
        (dtype('float32'), 3)
        >>> parts = data.split(calibrate=0.2, search=0.4, held_out=0.4)
        >>> sum(len(part) for part in parts.values())
        100
        >>> [batch.x.shape for batch in data.batches(64)]
        [(64, 8, 8), (36, 8, 8)]
    """

    def __init__(
        self,
        source: Source,
        *,
        preprocess: Preprocess | None = None,
        labels: Array | None = None,
        class_names: tuple[str, ...] | None = None,
    ) -> None:
        self._source = source
        self._indices: Indices = np.arange(len(source))
        self._preprocess = _for_columns(preprocess or Preprocess(), source)
        self._labels = source.labels if labels is None else labels
        self._given_labels = labels  # what pickling must carry; the source brings its own
        self._class_names = class_names if class_names is not None else source.class_names
        self._specs: tuple[InputSpec, ...] | None = None
        self._columns = source.inputs
        self._lineage = ""

    # ------------------------------------------------------------------ where samples come from

    @classmethod
    def open(
        cls,
        source: Dataset | SourceLike,
        *,
        preprocess: Preprocess | str | Mapping[str, Any] | None = None,
        labels: str | os.PathLike[str] | Sequence[Any] | Array | None = None,
        inputs: Sequence[str] | None = None,
        class_names: str | os.PathLike[str] | Sequence[str] | None = None,
    ) -> Dataset:
        """Open samples, recognizing what ``source`` is.

        Args:
            source: an `.npz` (arrays named after the model's inputs, or ``x``; labels in ``y``, ``label`` or
                ``labels``; names in ``class_names``), an `.npy`, a folder of images, audio or `.npy` files (one
                subfolder a class, or flat and unlabelled), a `.csv` with the columns path and label (or text), one such
                file, arrays, a function or ``module:function`` that gives samples or (sample, label), or a Dataset.
            preprocess: what to do with each sample, as a Preprocess, its text or its dict.
            labels: instead of the source's own: one for each sample, an `.npy` file, a text file with a label a line,
                or the name of an array in the `.npz`.
            inputs: the arrays of an `.npz` to use, where they are not ``x`` or all of them.
            class_names: the model's list of classes (or a text file with one a line): classes known by name get their
                number in it.
        """
        if isinstance(source, Dataset):
            if labels is not None or inputs is not None or class_names is not None:
                raise UsageError("labels, inputs and class_names belong to the call that opens the source")
            return source if preprocess is None else source.with_preprocess(preprocess)
        if inputs is not None and not str(source).lower().endswith((".npz", ".npy")):
            raise UsageError(f"inputs={','.join(inputs)} chooses arrays of an .npz file, and {source} is none")
        member = labels if isinstance(labels, str) and labels in _array_names(source) else None
        opened = open_source(source, inputs=None if inputs is None else tuple(inputs), labels=member)
        return cls._with_labels(opened, Preprocess.of(preprocess), None if member else labels, class_names)

    @classmethod
    def from_arrays(
        cls,
        x: Array | Mapping[str, Array],
        y: Sequence[Any] | Array | None = None,
        *,
        preprocess: Preprocess | str | Mapping[str, Any] | None = None,
        class_names: Sequence[str] | None = None,
    ) -> Dataset:
        """Use arrays in memory: one, or one for each input by name. The first axis counts the samples.

        >>> data = Dataset.from_arrays({"ids": np.zeros((4, 7), np.int32), "mask": np.ones((4, 7), np.int32)})
        >>> sorted(data[0].inputs)
        ['ids', 'mask']
        """
        opened = arrays_source(x)
        if len(opened) == 0:
            raise DataError("the arrays hold no samples: their first axis is 0")
        return cls._with_labels(opened, Preprocess.of(preprocess), y, class_names)

    @classmethod
    def _with_labels(cls, source: Source, preprocess: Preprocess, labels: Any, class_names: Any) -> Dataset:
        values, known = (None, source.class_names) if labels is None else read_labels(labels)
        if values is not None:
            if values.ndim == 0 or len(values) != len(source):
                count = len(values) if values.ndim else 1
                raise DataError(
                    f"{source.title}: {len(source)} samples but {count} labels; give one label for each sample"
                )
            values = values.reshape(len(values)) if values.shape[1:] == (1,) else values
        if class_names is not None:
            wanted = read_class_names(class_names)
            current = source.labels if values is None else values
            if isinstance(current, np.ndarray):
                values = renumber(current, known, wanted, source.title)
            known = wanted
        return cls(source, preprocess=preprocess, labels=values, class_names=known)

    # ------------------------------------------------------------------ what is known without reading samples

    def __len__(self) -> int:
        return len(self._indices)

    @property
    def preprocess(self) -> Preprocess:
        """What is done to each sample."""
        return self._preprocess

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """What the class numbers mean, where folders, a CSV, the `.npz` or the user named them."""
        return self._class_names

    @property
    def labels(self) -> Array | None:
        """The labels of all samples, in their order; None where there are none."""
        return None if self._labels is None else self._labels[self._indices]

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names under which a sample holds its arrays: the model's once bound, else the source's."""
        return self._columns if self._specs is None else tuple(spec.name for spec in self._specs)

    @property
    def summary(self) -> str:
        """How many samples of what, for a line of a report; the whole description is the dataset's ``repr``."""
        return f"{len(self):,} samples of {Path(self._source.title).name}"

    def __repr__(self) -> str:
        facts = [f"{len(self):,} samples", self._source.describe()]
        if self._specs is not None:
            facts.append("for " + ", ".join(f"{s.name} {s.dtype} {'×'.join(map(str, s.shape))}" for s in self._specs))
        facts.append(self._describe_labels())
        facts.append(f"from {self._source.title}")
        if self._preprocess:
            facts.append(str(self._preprocess))
        return f"Dataset({', '.join(facts)})"

    def _describe_labels(self) -> str:
        if self._class_names is not None:
            return f"{len(self._class_names)} classes" if self._labels is not None else "unlabelled"
        if self._labels is None:
            return "unlabelled"
        if isinstance(self._labels, np.ndarray) and self._labels.dtype.kind in "iu" and self._labels.ndim == 1:
            return f"{len(np.unique(self._labels))} classes"
        return "labelled"

    # ------------------------------------------------------------------ reading

    def __iter__(self) -> Iterator[Sample]:
        for indices, inputs in self._chunks(self._indices):
            yield from self._samples(indices, inputs)

    @overload
    def __getitem__(self, position: int) -> Sample: ...
    @overload
    def __getitem__(self, position: slice) -> Dataset: ...
    def __getitem__(self, position: int | slice) -> Sample | Dataset:
        """Return one sample, or with a slice the Dataset of several."""
        if isinstance(position, slice):
            return self._select(self._indices[position])
        number = operator.index(position)
        if not -len(self) <= number < len(self):
            raise IndexError(f"sample {number} of {len(self)}")
        return next(self._samples(*next(self._chunks(self._indices[[number]]))))

    def batches(self, size: int) -> Iterator[Batch]:
        """Yield the samples stacked, ``size`` at a time; the last batch may be smaller."""
        if size < 1:
            raise UsageError(f"a batch of {size} samples cannot be; give 1 or more")
        return self._batches(size)

    def _batches(self, size: int) -> Iterator[Batch]:
        waiting: list[tuple[Indices, dict[str, Array]]] = []
        count = 0
        for chunk in self._chunks(self._indices, size):
            waiting.append(chunk)
            count += len(chunk[0])
            if count == size:
                yield self._batch(waiting)
                waiting, count = [], 0
        if waiting:
            yield self._batch(waiting)

    def _chunks(self, indices: Indices, size: int | None = None) -> Iterator[tuple[Indices, dict[str, Array]]]:
        for chunk, arrays in self._source.chunks(indices, self._columns, self._preprocess, size):
            yield chunk, self._prepared(chunk, arrays)

    def _prepared(self, indices: Indices, arrays: dict[str, Array]) -> dict[str, Array]:
        """Preprocess stored samples, and fit them to the model where it is known."""
        prepared = {}
        for number, column in enumerate(self._columns):
            samples = arrays[column]
            bad = first_not_finite(samples)
            if bad is not None:
                raise DataError(f"{self._source.where(int(indices[bad]))}: {_not_finite(samples[bad], column)}")
            try:
                if self._preprocess and column in (self._preprocess.inputs or (column,)):
                    samples = transform(samples, self._preprocess)
                name = column
                if self._specs is not None:
                    name, samples = self._specs[number].name, fit(samples, self._specs[number])
            except DataError as error:
                raise DataError(f"{self._source.where(int(indices[0]))}: {error}") from error
            prepared[name] = samples
        return prepared

    def _samples(self, indices: Indices, inputs: dict[str, Array]) -> Iterator[Sample]:
        labels = None if self._labels is None else self._labels[indices]
        for row, index in enumerate(indices.tolist()):
            arrays = {name: array[row] for name, array in inputs.items()}
            yield Sample(arrays, None if labels is None else plain_label(labels[row]), self._source.key(index))

    def _batch(self, chunks: list[tuple[Indices, dict[str, Array]]]) -> Batch:
        indices = np.concatenate([indices for indices, _ in chunks])
        inputs = {}
        for name in chunks[0][1]:
            arrays = [arrays[name] for _, arrays in chunks]
            for (rows, _), array in zip(chunks, arrays, strict=True):
                if array.shape[1:] != arrays[0].shape[1:] or array.dtype.kind != arrays[0].dtype.kind:
                    raise DataError(
                        f"{self._source.where(int(rows[0]))}: {array.dtype} {array.shape[1:]} cannot be stacked with "
                        f"{arrays[0].dtype} {arrays[0].shape[1:]} of the samples before; add resize=HEIGHTxWIDTH for "
                        "images, length=N for audio, or dtype=TYPE, to the preprocessing"
                    )
            stacked = arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
            if self._specs is not None and has_batch_axis(stacked.shape[1:]):
                stacked = stacked.reshape(len(stacked), *stacked.shape[2:])
            inputs[name] = stacked
        labels = None if self._labels is None else self._labels[indices]
        return Batch(inputs, labels, tuple(self._source.key(index) for index in indices.tolist()))

    # ------------------------------------------------------------------ fitting a model

    def with_preprocess(self, preprocess: Preprocess | str | Mapping[str, Any]) -> Dataset:
        """Return the same samples with other preprocessing; the splits stay the same."""
        return self._derive(_preprocess=_for_columns(Preprocess.of(preprocess), self._source))

    def bind(self, inputs: Model | Iterable[InputLike]) -> Dataset:
        """Return these samples in the names, shapes and types of a model's inputs, one sample with a batch of 1.

        Arrays go to inputs by name; one array goes to the only input. Axes of length 1 are added or dropped; floats
        change their precision, integers their width where the values fit; floats for a quantized input are quantized.
        Anything else is an error that names the sample and the setting that helps. The first sample is read at once,
        the others are checked when they are read.

        >>> data = Dataset.from_arrays(np.zeros((4, 28, 28), np.float32))
        >>> data.bind([InputSpec("image", (1, 28, 28, 1), np.dtype("float32"))])[0].inputs["image"].shape
        (1, 28, 28, 1)
        """
        bound = self._bound(inputs)
        bound[0]
        return bound

    def _bound(self, inputs: Model | Iterable[InputLike]) -> Dataset:
        specs = model_inputs(inputs) if isinstance(inputs, Model) else tuple(InputSpec.of(spec) for spec in inputs)
        if not specs:
            raise DataError("the model has no inputs, so no samples fit it")
        columns = match_columns(specs, self._source.columns, self._source.inputs, self._source.title)
        return self._derive(_specs=specs, _columns=tuple(columns))

    def check(self, inputs: Model | Iterable[InputLike] | None = None) -> None:
        """Read every sample; raise one error that lists what is wrong, with the model's ``inputs`` if given."""
        dataset = self if inputs is None else self._bound(inputs)
        problems: list[str] = []
        with task("Checking samples", total=len(dataset)) as advance:
            for first in range(0, len(dataset), _CHECKED_AT_ONCE):
                block = dataset[first : first + _CHECKED_AT_ONCE]
                if _problem(block) is not None:
                    problems += filter(None, (_problem(block[row : row + 1]) for row in range(len(block))))
                advance(len(block))
        if problems:
            more = len(problems) - _SHOWN_PROBLEMS
            lines = problems[:_SHOWN_PROBLEMS] + ([f"… and {more} more"] if more > 0 else [])
            raise DataError(f"{len(problems)} of {len(dataset)} samples cannot be used:\n" + "\n".join(lines))

    # ------------------------------------------------------------------ choosing samples

    def subset(self, positions: Iterable[int] | Array) -> Dataset:
        """Return the samples at these positions (or where a mask is true), in that order."""
        chosen = np.asarray(positions if isinstance(positions, np.ndarray) else list(positions))
        if chosen.dtype.kind == "b":
            if chosen.shape != (len(self),):
                raise UsageError(f"the mask has shape {chosen.shape}, and there are {len(self)} samples")
            chosen = np.flatnonzero(chosen)
        if chosen.size and (chosen.dtype.kind not in "iu" or chosen.min() < -len(self) or chosen.max() >= len(self)):
            raise UsageError(f"positions {chosen.min()} … {chosen.max()} are not all among the {len(self)} samples")
        return self._select(self._indices[chosen.astype(np.int64)])

    def take(self, count: int, seed: int = 0) -> Dataset:
        """Return at most ``count`` samples drawn at random, the same ones however the data is ordered."""
        if count < 1:
            raise UsageError(f"take({count}) takes no sample; give 1 or more")
        draws = draw(self._source.identities(self._indices), seed=seed, purpose=f"take{self._lineage}")
        return self._select(self._indices[np.sort(np.argsort(draws, kind="stable")[:count])])

    def shuffled(self, seed: int = 0) -> Dataset:
        """Return the same samples in a random order."""
        if seed < 0:
            raise UsageError(f"the seed of a random order must be 0 or more, not {seed}")
        return self._select(np.random.default_rng(seed).permutation(self._indices))

    def split(self, *, seed: int = 0, **fractions: float) -> dict[str, Dataset]:
        """Return named parts, e.g. ``split(calibrate=0.2, search=0.4, held_out=0.4)``.

        Each sample's stored content decides its part: the order of the data, other samples, labels and preprocessing do
        not matter, and alike samples share a part. The sizes are therefore close to the fractions, not exact.
        """
        draws = draw(self._source.content_hashes(self._indices), seed=seed, purpose=f"split{self._lineage}")
        parts = {}
        for name, positions in divide(draws, fractions).items():
            if len(positions) == 0:
                raise DataError(
                    f"{self._source.title}: no sample falls to {name!r} when {len(self)} are split by {fractions}; "
                    "give it a bigger fraction, more samples, or another seed"
                )
            # A part that is split again must not be cut along the same numbers.
            parts[name] = self._derive(_indices=self._indices[positions], _lineage=f"{self._lineage}/{name}")
        return parts

    def fingerprint(self) -> str:
        """Return a hash that changes with any sample, label, class name or preprocessing, and not with their order."""
        names = [] if self._class_names is None else list(self._class_names)
        hashes = self._source.content_hashes(self._indices)
        return fingerprint(hashes, self.labels, str(self._preprocess), *names)

    def content_hashes(self) -> list[bytes]:
        """Return the hash of what is stored for each sample; alike samples have the same, in any Dataset.

        >>> data = Dataset.from_arrays(np.array([[1.0], [2.0], [1.0]]))
        >>> len(set(data.content_hashes()))
        2
        """
        return self._source.content_hashes(self._indices)

    # ------------------------------------------------------------------ views

    def _select(self, indices: Indices) -> Dataset:
        if len(indices) == 0:
            raise DataError(f"{self._source.title}: the selection has no samples")
        return self._derive(_indices=indices)

    def _derive(self, **changes: Any) -> Dataset:
        derived = copy.copy(self)
        derived.__dict__.update(changes)
        return derived

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_labels": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._labels = self._source.labels if self._given_labels is None else self._given_labels


def _for_columns(preprocess: Preprocess, source: Source) -> Preprocess:
    """Return the preprocessing, if the inputs it names are there."""
    unknown = [name for name in preprocess.inputs if name not in source.columns]
    if unknown:
        raise DataError(f"preprocessing inputs={unknown[0]}: {source.title} has {', '.join(source.columns)}")
    return preprocess


def _array_names(source: object) -> Iterable[str]:
    is_npz = isinstance(source, (str, os.PathLike)) and Path(source).suffix.lower() == ".npz" and Path(source).is_file()
    return open_npz(Path(source)) if is_npz else ()  # type: ignore[arg-type]


def _problem(dataset: Dataset) -> str | None:
    """Read all samples and return what is wrong with the first bad one."""
    try:
        for _ in dataset:
            pass
    except DataError as error:
        return str(error)
    return None


def _not_finite(sample: Array, column: str) -> str:
    places = np.argwhere(~np.isfinite(sample))
    first = tuple(places[0].tolist())
    return f"{column}{list(first)} is {sample[first]} ({len(places)} of {sample.size} values so); repair or remove it"
