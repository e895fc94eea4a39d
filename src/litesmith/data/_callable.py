# SPDX-License-Identifier: Apache-2.0
"""Samples from the user's own Python function.

The function is called once and what it yields is written to a nameless temporary file: the memory in use does not grow
with the data, the samples can be read in any order and as often as needed, and a generator that shuffles or augments
gives every reader the same samples.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from litesmith.data._arrays import ArraySource
from litesmith.data._rows import Array, RaggedRows, Rows, Spool
from litesmith.data._sample import Sample, plain_label
from litesmith.errors import DataError, UsageError
from litesmith.progress import task


class CallableSource(ArraySource):
    """The samples of a function. Another process calls the function again, so it must give the same samples."""

    def __init__(self, function: str | Callable[[], Iterable[Any]]) -> None:
        name = function if isinstance(function, str) else getattr(function, "__qualname__", type(function).__name__)
        resolved = import_callable(function) if isinstance(function, str) else function
        arrays, labels = _spool(resolved, name)
        super().__init__(arrays, name=name, title=f"function {name}", inputs=tuple(arrays), labels=labels)
        self._function = function

    def __reduce__(self) -> tuple[type[CallableSource], tuple[str | Callable[[], Iterable[Any]]]]:
        return CallableSource, (self._function,)


def import_callable(reference: str) -> Callable[..., Any]:
    """Return the function that ``module:function`` or ``path/file.py:function`` names; the current folder counts too.

    >>> import_callable("math:sqrt")(9)
    3.0
    """
    module_name, colon, attributes = reference.rpartition(":")
    if not colon or not module_name or not attributes:
        raise UsageError(f"{reference!r} does not name a function; write module:function or file.py:function")
    try:
        target: Any = _import_file(Path(module_name)) if module_name.endswith(".py") else _import_module(module_name)
    except Exception as error:  # importing runs the user's module, which may raise anything
        raise UsageError(f"{reference}: importing {module_name} failed: {type(error).__name__}: {error}") from error
    for attribute in attributes.split("."):
        if not hasattr(target, attribute):
            raise UsageError(f"{reference}: {module_name} has no {attributes!r}; check the spelling")
        target = getattr(target, attribute)
    if not callable(target):
        raise UsageError(f"{reference} is a {type(target).__name__}; it must be a function")
    function: Callable[..., Any] = target
    return function


def _import_module(name: str) -> ModuleType:
    here = os.getcwd()  # noqa: PTH109 - sys.path holds text
    sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(here)


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    name = f"litesmith_samples_{path.stem}"  # not the name of a module that anybody imports
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where dataclasses look for their annotations
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _spool(
    function: Callable[[], Iterable[Any]], name: str
) -> tuple[dict[str, Rows | RaggedRows], Array | Rows | RaggedRows | None]:
    spools: dict[str, Spool] = {}
    labels = _LabelColumn()
    with task(f"Calling {name}") as advance:
        for index, item in enumerate(_items(function, name)):
            try:
                inputs, label = _unpack(item)
                if index == 0:
                    spools = {column: Spool() for column in inputs}
                if inputs.keys() != spools.keys():
                    raise DataError(
                        f"its inputs are {', '.join(inputs)}, and those of the first sample {', '.join(spools)}; "
                        "every sample needs the same"
                    )
                for column, array in inputs.items():
                    spools[column].append(array)
                labels.append(label)
            except (DataError, ValueError, TypeError) as error:
                raise DataError(f"sample {index} of function {name}: {error}") from error
            advance(1)
    if not spools:
        raise DataError(f"function {name} gave no samples; it must return or yield arrays or (array, label) pairs")
    return {column: spool.rows() for column, spool in spools.items()}, labels.column()


def _items(function: Callable[[], Iterable[Any]], name: str) -> Iterator[Any]:
    count = 0
    try:
        items: Any = function()
        if hasattr(items, "__len__") and hasattr(items, "__getitem__") and not hasattr(items, "__iter__"):
            items = map(items.__getitem__, range(len(items)))
        for count, item in enumerate(items, start=1):  # noqa: B007 - count is for the message
            yield item
    except Exception as error:  # the user's function may raise anything
        raise DataError(
            f"function {name} failed at sample {count}: {type(error).__name__}: {error}; it must take no arguments and "
            "return or yield arrays or (array, label) pairs"
        ) from error


def _unpack(item: Any) -> tuple[dict[str, Array], Any]:
    label = None
    if isinstance(item, Sample):
        item, label = item.inputs, item.label
    elif isinstance(item, tuple):
        if len(item) != 2:
            raise DataError(f"it is a tuple of {len(item)}; give an array, a dict of arrays, or (sample, label)")
        item, label = item
    inputs = item if isinstance(item, Mapping) else {"x": item}
    if not inputs:
        raise DataError("it is an empty dict; give an array for each input of the model")
    return {str(name): np.asarray(array) for name, array in inputs.items()}, plain_label(label)


class _LabelColumn:
    """Labels as they come: arrays go to disk like samples, everything else is small and stays in memory."""

    def __init__(self) -> None:
        self._values: list[Any] = []
        self._arrays: Spool | None = None

    def append(self, label: Any) -> None:
        if not self._values:
            self._arrays = Spool() if isinstance(label, np.ndarray) else None
        elif (label is None) != (self._values[0] is None):
            raise DataError("some samples have a label and others have none; label all or none")
        if self._arrays is None:
            self._values.append(label)
        else:
            self._arrays.append(np.asarray(label))
            self._values.append(True)

    def column(self) -> Array | Rows | RaggedRows | None:
        if self._arrays is not None:
            return self._arrays.rows()
        if self._values[0] is None:
            return None
        if all(isinstance(label, (int, float, str)) for label in self._values):
            return np.array(self._values)
        column = np.empty(len(self._values), object)
        column[:] = self._values
        return column
