# SPDX-License-Identifier: Apache-2.0
"""Every real file that stock LiteRT runs gives the same bits in a session; every other is refused with its reason."""

from __future__ import annotations

import csv
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from litesmith.errors import LitesmithError
from litesmith.runtime import Session
from litesmith.runtime._arrays import Array

SHARDS = 4

# Weights of float16, and metadata that allow their precision: Litesmith's kernels use that.
LESS_PRECISE = ("048edd36_hand_landmark_lite.tflite", "1b14e942_palm_detection_full.tflite")

# Where LiteRT's compiled-model API does not do, and why.
NEEDS_INTERPRETER = {
    "2335faf0_keyword_scrambled.tflite": "Variable tensors",
    "47943099_trained_lstm.tflite": "Variable tensors",
    "261e2d25_mbnet96_0.25_f.tflite": "only known during a run",
    "35d7921c_simple_topk_op_runtime_k.tflite": "only known during a run",
}

# What "loads" in the index, but cannot be run by stock LiteRT either, except with the inputs that are right for it.
RUNS_AFTER_ALL = {
    "4b7a6a4c_gather_string.tflite",
    "70a234e1_transpose_conv0.tflite",
    "6b6ee590_transpose_conv1.tflite",
    "6b563cb2_transpose_conv2.tflite",
}


def _files(corpus: Path, *, ran: bool) -> Iterator[Path]:
    with (corpus / "index.csv").open(encoding="utf-8", newline="") as index:
        for row in csv.DictReader(index):
            if (row["status"] == "ran") == ran:
                yield corpus / row["file"]


def _fill(array: Array, random: np.random.Generator) -> None:
    """Values that operators accept: positive, and small where they may be indices."""
    if array.dtype == bool:
        array[...] = random.integers(0, 2, array.shape)
    elif array.dtype.kind == "f":
        array[...] = random.uniform(0, 1, array.shape)
    elif array.dtype.itemsize <= 2:
        array[...] = random.integers(0, np.iinfo(array.dtype).max, array.shape)
    else:
        array[...] = random.integers(0, 2, array.shape)


def _stock(path: Path, session: Session, *, runs: int) -> list[Array]:
    """Run the wheel's own Interpreter on the session's inputs; outputs in the order of the file."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(str(path), num_threads=1)
    interpreter.allocate_tensors()
    details = interpreter.get_input_details()
    for _ in range(runs):
        for detail, array in zip(details, session.inputs.values(), strict=True):
            interpreter.set_tensor(detail["index"], array)
        interpreter.invoke()
    return [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]


@pytest.mark.parametrize("shard", range(SHARDS))
def test_the_same_bits_as_stock_litert(assets: Path, shard: int) -> None:
    wrong = []
    files = list(_files(assets / "corpus", ran=True))[shard::SHARDS]
    assert len(files) > 50
    for path in files:
        with Session(path, delegate="off" if path.name in LESS_PRECISE else "auto") as session:
            random = np.random.default_rng(zlib.crc32(path.name.encode()))
            for array in session.inputs.values():
                _fill(array, random)
            session.run()
            session.run()  # a second run finds what only works once
            expected = _stock(path, session, runs=2)
            same = all(
                ours.shape == theirs.shape and ours.tobytes() == theirs.tobytes()
                for ours, theirs in zip(session.outputs.values(), expected, strict=True)
            )
            if not same or NEEDS_INTERPRETER.get(path.name, "") not in session.compiled.reason:
                wrong.append(path.name)
            if session.compiled.backend == "interpreter" and path.name not in NEEDS_INTERPRETER:
                wrong.append(f"{path.name}: {session.compiled.reason}")
    assert wrong == []


@pytest.mark.parametrize("name", LESS_PRECISE)
def test_files_that_allow_less_precision_stay_close(assets: Path, name: str) -> None:
    path = assets / "corpus" / name
    with Session(path) as session:
        random = np.random.default_rng(zlib.crc32(name.encode()))
        for array in session.inputs.values():
            _fill(array, random)
        session.run()
        for ours, theirs in zip(session.outputs.values(), _stock(path, session, runs=1), strict=True):
            assert np.abs(ours - theirs).max() <= 0.02 * np.abs(theirs).max()


def test_what_stock_litert_does_not_run_is_refused(assets: Path) -> None:
    """At load, with the reason: also those on which stock LiteRT ends the process."""
    for path in _files(assets / "corpus", ran=False):
        if path.name in RUNS_AFTER_ALL:
            Session(path).close()
        else:
            with pytest.raises(LitesmithError, match=r"op|quantiz|SVDF"):
                Session(path)


def test_strings_of_a_real_file(assets: Path) -> None:
    with Session(assets / "corpus" / "4b7a6a4c_gather_string.tflite") as session:
        words = np.array([f"word {k}".encode() for k in range(10)], object)
        (chosen,) = session(words, np.array([2, 0, 9])).values()
        assert chosen.tolist() == [b"word 2", b"word 0", b"word 9"]
