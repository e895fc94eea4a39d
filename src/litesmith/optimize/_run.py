# SPDX-License-Identifier: Apache-2.0
"""Run one subgraph and look at its tensors by index: what calibration and accuracy recovery need of the runtime."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from litesmith.data import Dataset, Sample
from litesmith.errors import DataError, SessionError, UsageError
from litesmith.model import Model

Array = np.ndarray[Any, Any]
Feed = dict[int, Array]
"""Values for the inputs of a subgraph, by tensor index."""
Data = Dataset | Iterable[Any]
"""A Dataset, or samples: an array for the only input, a dict by input name, or a tuple in the order of the inputs."""
MOST_KEPT = 1000
"""How many samples of an iterator, which can be read only once, are kept for several passes."""


class GraphRunner:
    """A model in LiteRT's Interpreter, fed and read by tensor index; arrays it returns are views until the next run."""

    def __init__(self, model: Model, *, subgraph: int = 0, kernels: Any = "delegate", threads: int = 1) -> None:
        from litesmith.runtime._custom_op_runner import indexed_session
        from litesmith.runtime._interpreter import make_interpreter
        from litesmith.runtime._native import has_int16, with_native
        from litesmith.runtime._options import CompileOptions
        from litesmith.runtime._source import ModelSource

        self._session = indexed_session(model, subgraph=subgraph, kernels=kernels, threads=threads)
        if self._session is not None:  # the Interpreter cannot be given kernels for custom operators
            return
        self._subgraph = subgraph
        self._variables = any(t.is_variable for t in model.subgraphs[subgraph].tensors)
        source = ModelSource.of(model, verify=False)
        options = CompileOptions(threads=threads, kernels=kernels)
        if any(map(has_int16, model.subgraphs)):  # stock kernels would give the same, thirty times slower
            options = with_native(options, source)
        try:
            self._owner = make_interpreter(source, options)
            self._wrapper = self._owner._interpreter  # noqa: SLF001 (only it reaches tensors of any subgraph)
            self._wrapper.AllocateTensors(subgraph)
        except (RuntimeError, ValueError) as error:
            raise SessionError(f"LiteRT cannot compile the model: {error}") from None
        self._shapes = {i: model.subgraphs[subgraph].tensors[i].shape for i in model.subgraphs[subgraph].inputs}

    def run(self, feed: Mapping[int, Array]) -> None:
        """Run once; an input of another shape than before is resized first."""
        if self._session is not None:
            self._session.run(feed)
            return
        try:
            changed = {i: a.shape for i, a in feed.items() if tuple(a.shape) != tuple(self._shapes[i])}
            for index, shape in changed.items():
                self._wrapper.ResizeInputTensor(index, np.array(shape, np.int32), False, self._subgraph)
                self._shapes[index] = shape
            if changed:
                self._wrapper.AllocateTensors(self._subgraph)
            if self._variables:  # each sample is a sequence of its own
                self._owner.reset_all_variables()
            for index, array in feed.items():
                self._wrapper.SetTensor(index, np.asarray(array, order="C"), self._subgraph)
            self._wrapper.Invoke(self._subgraph)
        except (RuntimeError, ValueError) as error:
            raise SessionError(f"LiteRT cannot run the model: {error}") from None

    def view(self, index: int) -> Array:
        """Return the values of a tensor that is an output of the subgraph; none where LiteRT has not computed it."""
        if self._session is not None:
            return self._session.view(index)
        try:
            return np.asarray(self._wrapper.tensor(self._owner, index, self._subgraph))
        except ValueError:  # it has no memory: empty, or not on the way that this run took
            return np.zeros(0, np.float32)


def repeatable(data: Data, samples: int | None = None) -> Dataset | Sequence[Any] | Array:
    """Return at most ``samples`` of the data, to be passed over any number of times.

    They come from all over the data, which may be sorted; of an iterator, the first ones, at most ``MOST_KEPT``.
    """
    if samples is not None and samples < 1:
        raise UsageError(f"{samples} samples are none; give 1 or more")
    if not isinstance(data, (Dataset, Sequence, np.ndarray)):
        return list(itertools.islice(data, samples or MOST_KEPT))
    if samples is None or len(data) <= samples:
        return data
    chosen = np.unique(np.linspace(0, len(data) - 1, samples).round().astype(int)).tolist()
    return data.subset(chosen) if isinstance(data, Dataset) else [data[i] for i in chosen]


def feeds(model: Model, data: Data, *, signature: int = 0) -> Iterator[Feed]:
    """Yield what each sample feeds into the subgraph of a signature, or the main one where there is none."""
    names = input_names(model, signature=signature)
    samples: Iterable[Any] = data.bind(model) if isinstance(data, Dataset) else data
    for sample in samples:
        yield _feed(model, names, sample.inputs if isinstance(sample, Sample) else sample, signature)


def input_names(model: Model, *, signature: int = 0) -> dict[str, int]:
    """Return the tensor index of each input by name: of the signature, or the tensors' own where there is none."""
    if model.signatures:
        return dict(model.signatures[signature].inputs)
    return {model.main.tensors[i].name: i for i in model.main.inputs}


def _feed(model: Model, names: Mapping[str, int], sample: Any, signature: int) -> Feed:
    if isinstance(sample, Mapping):
        missing = [name for name in names if name not in sample]
        if missing:
            raise DataError(f"a sample has no array for the input {missing[0]!r}; it has {', '.join(map(str, sample))}")
        return {index: _fitted(model, index, sample[name], signature) for name, index in names.items()}
    arrays: Sequence[Any] = sample if isinstance(sample, (tuple, list)) else (sample,)
    if len(arrays) != len(names):
        raise DataError(f"a sample has {len(arrays)} arrays, but the model has {len(names)} inputs: {', '.join(names)}")
    return {i: _fitted(model, i, array, signature) for i, array in zip(names.values(), arrays, strict=True)}


def _fitted(model: Model, index: int, array: Any, signature: int) -> Array:
    subgraph = model.signatures[signature].subgraph_index if model.signatures else 0
    tensor = model.subgraphs[subgraph].tensors[index]
    values = np.asarray(array)
    if tensor.dtype != "string" and values.dtype != np.dtype(tensor.dtype):
        values = values.astype(tensor.dtype)
    shape = tensor.shape_signature or tensor.shape
    if values.ndim == len(shape) - 1:
        values = values[None]
    if values.ndim != len(shape) or any(want not in (-1, got) for want, got in zip(shape, values.shape, strict=True)):
        raise DataError(
            f"a sample of shape {list(values.shape)} does not fit the input {tensor.name!r} of {list(shape)}"
        )
    return values
