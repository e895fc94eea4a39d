# SPDX-License-Identifier: Apache-2.0
"""Between what the inputs of a model lie where no sample shows it: as it was said, as the file says, or as assumed.

Of an image TFLite metadata has the mean and the deviation that pixels of 0 to 255 are normalized with, of other inputs
their least and largest value.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from litesmith.errors import UsageError
from litesmith.model import InputMetadata, Model, input_metadata
from litesmith.optimize._calibrate import entry_points
from litesmith.optimize._run import input_names

Array = np.ndarray[Any, Any]
Bounds = tuple[float, float]
InputRange = Bounds | Mapping[str, Bounds]
"""Of the only input, or of several by name."""
_PIXELS = np.array([0.0, 255.0])
ASSUMED_DEVIATIONS = 6.0
"""How many standard deviations of an input of which nothing is known count as its range."""


def input_ranges(model: Model, given: InputRange | None) -> tuple[dict[str, Bounds], list[str]]:
    """Return what is known of the float inputs, by name of the tensor, and in words where it comes from."""
    wanted = _by_tensor(model, given)
    told = _told_by_metadata(model)
    found: dict[str, Bounds] = {}
    notes = []
    for name in _float_inputs(model).values():
        bounds, source = (
            (wanted[name], "as was said") if name in wanted else (told.get(name), "as the file's metadata say")
        )
        if bounds is not None:
            found[name] = bounds
            notes.append(f"the input {name!r} is taken to lie between {bounds[0]:g} and {bounds[1]:g}, {source}")
        else:
            reach = f"{ASSUMED_DEVIATIONS:g}"
            notes.append(
                f"the input {name!r} is assumed to be normalized, mean 0 and deviation 1, and to lie between -{reach} and "
                f"{reach}: a wider one, such as pixels of 0 to 255, would be cut off. Say its range (--input-range "
                "LOW,HIGH), or give data"
            )
    return found, notes


def _float_inputs(model: Model) -> dict[str, str]:
    """Return the names of the tensors of float inputs, by the names that a user may give: those of signatures first."""
    found: dict[str, str] = {}
    for signature, subgraph in entry_points(model):
        tensors = model.subgraphs[subgraph].tensors
        for name, index in input_names(model, signature=signature).items():
            if tensors[index].dtype == "float32":
                found.setdefault(name, tensors[index].name)
    return found


def _by_tensor(model: Model, given: InputRange | None) -> dict[str, Bounds]:
    if given is None:
        return {}
    inputs = _float_inputs(model)
    names = ", ".join(inputs) or "none"
    if not isinstance(given, Mapping):
        if len(inputs) != 1:
            raise UsageError(f"say which input the range is for, as NAME=LOW,HIGH; the float inputs are: {names}")
        given = {next(iter(inputs)): given}
    tensors = {**{tensor: tensor for tensor in inputs.values()}, **inputs}
    found = {}
    for name, (low, high) in given.items():
        if name not in tensors:
            raise UsageError(f"the model has no float input {name!r}; the float inputs are: {names}")
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise UsageError(
                f"{low:g} to {high:g} is no range of the input {name!r}; give two numbers, the smaller first"
            )
        found[tensors[name]] = (float(low), float(high))
    return found


def _told_by_metadata(model: Model) -> dict[str, Bounds]:
    """Return the ranges of float inputs of the main subgraph that the file's metadata tell."""
    inputs = [model.main.tensors[index] for index in model.main.inputs]
    pairs = zip(inputs, input_metadata(model), strict=False)
    found = {tensor.name: _bounds(said) for tensor, said in pairs if tensor.dtype == "float32"}
    return {name: bounds for name, bounds in found.items() if bounds is not None}


def _bounds(said: InputMetadata) -> Bounds | None:
    if not said.mean and not said.std:
        return _range(np.array(said.lowest), np.array(said.highest))
    if not said.is_image or len(said.mean) != len(said.std) or 0.0 in said.std:
        return None  # between what the values lie that are normalized is not said
    ends = (_PIXELS[:, None] - np.array(said.mean)) / np.array(said.std)
    return _range(ends, ends)


def _range(lows: Array, highs: Array) -> Bounds | None:
    if not lows.size or not highs.size:
        return None
    low, high = float(lows.min()), float(highs.max())
    return (low, high) if math.isfinite(low) and math.isfinite(high) and low < high else None
