# SPDX-License-Identifier: Apache-2.0
"""Thousands of damaged files go through load, verify, inspect, write and Session: a LitesmithError, or it works.

Never a crash of this process, never another exception, never a hang. The damage follows from the seed.
"""

from __future__ import annotations

import collections
import faulthandler
from pathlib import Path

import pytest
from tests.conftest import ASSETS
from tests.model.mutations import damaged
from tests.model.operator_samples import samples, stateful_models

from litesmith.errors import LitesmithError
from litesmith.model import Model
from litesmith.runtime import Session, inspect, random_inputs

LARGEST_BYTES = 60_000
CHUNKS, EACH = 16, 250
LIMIT_S = 60  # for one file: a hang ends the test run with a traceback
LARGEST_RUN_BYTES, LARGEST_RUN_MACS = 250_000_000, 500_000_000
# Kernels that go where the values of these inputs say, unlooked. What is constant is verified; what comes at run time cannot be.
TRUSTING = {
    "BROADCAST_ARGS": (0, 1),
    "EMBEDDING_LOOKUP_SPARSE": (1, 2),
    "REVERSE_SEQUENCE": (1,),
    "STABLEHLO_CASE": (0,),
}


@pytest.fixture(scope="module")
def originals() -> list[bytes]:
    """One model for each operator, and every real file that is small."""
    made = [sample.model().to_bytes() for sample in samples()] + [model.to_bytes() for _, model in stateful_models()]
    real: list[Path] = sorted((ASSETS / "corpus").glob("*.tflite")) if ASSETS.is_dir() else []
    return made + [path.read_bytes() for path in real if path.stat().st_size <= LARGEST_BYTES]


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_damaged_files_end_in_an_error_or_run(originals: list[bytes], chunk: int) -> None:
    ends: collections.Counter[str] = collections.Counter()
    try:
        for seed in range(chunk * EACH, (chunk + 1) * EACH):
            faulthandler.dump_traceback_later(LIMIT_S, exit=True)
            ends[_end(damaged(originals[seed * 7919 % len(originals)], seed), seed)] += 1
    finally:
        faulthandler.cancel_dump_traceback_later()

    assert ends.total() == EACH
    assert ends["not read"] > EACH // 20
    assert ends["not verified"] > EACH // 20
    assert ends["run"] > EACH // 20


def _end(data: bytes, seed: int) -> str:
    """Return how far a file came."""
    try:
        model = Model.from_bytes(data)
    except LitesmithError as error:
        assert str(error)
        return "not read"
    written = model.to_bytes() if not model.unknown else data
    assert model.unknown or Model.from_bytes(written).to_bytes() == written
    try:
        model.verify()
    except LitesmithError as error:
        assert str(error)
        return "not verified"
    if not _is_harmless(model):
        return "not run"
    try:
        inspect(model, delegates=False)
        with Session(data, kernels="builtin" if seed % 4 == 0 else "delegate") as session:
            session.run(random_inputs(session))
    except LitesmithError as error:
        assert str(error)
        return "refused by LiteRT"
    return "run"


def _is_harmless(model: Model) -> bool:
    """Return whether a lawful model is also one to run here: not too large, no loop that may be endless."""
    cost = model.cost()
    if cost.bytes_moved > LARGEST_RUN_BYTES or cost.macs > LARGEST_RUN_MACS:
        return False
    for index, _, operator in model.operators():
        tensors = model.subgraphs[index].tensors
        trusted = (tensors[operator.inputs[i]] for i in TRUSTING.get(operator.kind, ()))
        if operator.kind == "WHILE" or any(tensor.buffer is None for tensor in trusted):
            return False
    return True
