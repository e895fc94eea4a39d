# SPDX-License-Identifier: Apache-2.0
"""Run a model once and say what came out: the first thing to try with a file from somewhere else."""

from __future__ import annotations

import time
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from litesmith.errors import DataError, SessionError
from litesmith.result import Result
from litesmith.runtime._feeds import converted
from litesmith.runtime._session import Session
from litesmith.runtime._source import ModelLike

Array = np.ndarray[Any, Any]
SHOWN_VALUES = 5


@dataclass(frozen=True)
class OutputFacts:
    """One output: its shape and type, its range, and where it is largest."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    minimum: float | None
    maximum: float | None
    mean: float | None
    largest: tuple[tuple[int, float], ...]  # (position in the flattened output, value), largest first


@dataclass(frozen=True)
class Run(Result, kind="run", schema=1):
    """What ``run`` saw: the outputs, and how long the one run took (use ``bench`` to measure)."""

    model: str
    inputs: str
    outputs: tuple[OutputFacts, ...]
    load_ms: float
    compile_ms: float
    run_ms: float
    backend: str


def run(
    model: ModelLike,
    inputs: Mapping[str, Any] | str | Path | None = None,
    *,
    threads: int = 1,
    signature: str | None = None,
    kernels: str = "delegate",
    seed: int = 0,
    save: str | Path | None = None,
) -> Run:
    """Run a model once.

    Args:
        model: A path, the bytes of a `.tflite`, or a Model.
        inputs: An array for each input by its name, a `.npz` of them, or a `.npy` for the only input; random values by
            default.
        threads: Threads of the CPU kernels.
        signature: The signature to run; the first by default.
        kernels: "delegate" (XNNPACK), "builtin" or "reference".
        seed: Of the random inputs.
        save: A `.npz` to write the outputs to.

    Example:
        >>> import litesmith
        >>> litesmith.run(litesmith.samples.model()).outputs[0].shape
        (1, 10)
    """
    with Session(model, threads=threads, signature=signature, kernels=kernels) as session:
        feeds = random_inputs(session, seed) if inputs is None else _given(session, inputs)
        session.resize({name: a.shape for name, a in feeds.items() if a.shape != session.inputs[name].shape})
        outputs = {name: array.copy() for name, array in session.run(feeds).items()}
        start = time.perf_counter()
        session.run()  # only for its time: the first run also allocates, and a state goes on from run to run
        spent = time.perf_counter() - start
        if save is not None:
            _save(Path(save), outputs)
        return Run(
            model=str(model) if isinstance(model, (str, Path)) else "model",
            inputs="random" if inputs is None else str(inputs) if isinstance(inputs, (str, Path)) else "given",
            outputs=tuple(_facts(name, array) for name, array in outputs.items()),
            load_ms=session.compiled.load_ms,
            compile_ms=session.compiled.compile_ms,
            run_ms=1000 * spent,
            backend=session.compiled.backend,
        )


def random_inputs(session: Session, seed: int = 0) -> dict[str, Array]:
    """Return random values for all inputs: small whole numbers for indices, standard normal for reals."""
    random = np.random.default_rng(seed)
    return {name: _random(random, view) for name, view in session.inputs.items()}


def _random(random: np.random.Generator, view: Array) -> Array:
    kind = view.dtype.kind
    if kind == "O":
        return np.full(view.shape, b"litesmith", object)
    values: Any
    if kind == "b":
        values = random.integers(0, 2, view.shape)
    elif kind == "c":
        values = random.standard_normal(view.shape) + 1j * random.standard_normal(view.shape)
    elif kind == "f":
        values = random.standard_normal(view.shape)
    elif view.dtype.itemsize > 2:  # 32- and 64-bit integers are mostly indices into something
        values = random.integers(0, 2, view.shape)
    else:  # and narrow ones quantized reals
        values = random.integers(int(np.iinfo(view.dtype).min), int(np.iinfo(view.dtype).max) + 1, view.shape)
    return np.asarray(values).astype(view.dtype)


def _given(session: Session, inputs: Mapping[str, Any] | str | Path) -> dict[str, Array]:
    if not isinstance(inputs, (str, Path)):
        return _fitting(session, inputs)
    path = Path(inputs)
    try:
        with path.open("rb") as file:
            loaded = np.load(file, allow_pickle=False)
            arrays = {"": loaded} if isinstance(loaded, np.ndarray) else {name: loaded[name] for name in loaded.files}
    except FileNotFoundError:
        raise DataError(f"there is no file {path}") from None
    except (OSError, ValueError, EOFError, KeyError, NotImplementedError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{path} is not a .npy or .npz of plain numbers: {error}") from error
    names = list(session.inputs)
    if len(arrays) == 1 and len(names) == 1:
        arrays = {names[0]: next(iter(arrays.values()))}
    missing = [name for name in names if name not in arrays]
    if missing:
        raise DataError(
            f"{path} has {', '.join(map(repr, arrays))}, but the model needs {', '.join(map(repr, missing))}"
        )
    return {name: arrays[name] for name in names}


def _fitting(session: Session, inputs: Mapping[str, Any]) -> dict[str, Array]:
    """Return arrays that were given by name: one for each input, and no other."""
    names = ", ".join(map(repr, session.inputs)) or "none"
    unknown = [name for name in inputs if name not in session.inputs]
    if unknown:
        raise SessionError(f"the model has no input {unknown[0]!r}; its inputs are: {names}")
    missing = [name for name in session.inputs if name not in inputs]
    if missing:
        raise SessionError(f"no array for the input {missing[0]!r}; give one for each of: {names}")
    return {name: converted(name, inputs[name], view.dtype) for name, view in session.inputs.items()}


def _save(path: Path, outputs: Mapping[str, Array]) -> None:
    """Write a `.npz` as np.savez does, which takes no array that is named like one of its own arguments."""
    path = path if path.name.endswith(".npz") else path.with_name(f"{path.name}.npz")
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in outputs.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, _plain(array), allow_pickle=False)


def _plain(array: Array) -> Array:
    return array.astype("S") if array.dtype.hasobject else array


def _facts(name: str, array: Array) -> OutputFacts:
    if not array.size or array.dtype.kind in "Oc":
        return OutputFacts(
            name, array.shape, "string" if array.dtype.hasobject else array.dtype.name, None, None, None, ()
        )
    flat = array.ravel().astype(np.float64)
    top = np.argsort(-flat, kind="stable")[:SHOWN_VALUES]
    return OutputFacts(
        name=name,
        shape=array.shape,
        dtype=array.dtype.name,
        minimum=float(flat.min()),
        maximum=float(flat.max()),
        mean=float(flat.mean()),
        largest=tuple((int(i), float(flat[i])) for i in top),
    )
