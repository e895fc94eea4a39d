# SPDX-License-Identifier: Apache-2.0
"""Thousands of damaged files go through load, verify, inspect, write and Session: a LitesmithError, or it works.

Never a crash of this process, never another exception, never a hang. The damage follows from the seed.
"""

from __future__ import annotations

import faulthandler
from pathlib import Path

import pytest

from litesmith.errors import LitesmithError
from litesmith.model import Model
from litesmith.runtime import Session, inspect, random_inputs
from tests.conftest import ASSETS
from tests.model.mutations import damaged
from tests.model.operator_samples import samples, stateful_models

LARGEST_BYTES = 40_000
CHUNKS, EACH = 16, 200
LIMIT_S = 120  # for a chunk: a hang ends the test run with a traceback


def _originals() -> list[bytes]:
    made = [sample.model().to_bytes() for sample in samples()] + [model.to_bytes() for _, model in stateful_models()]
    real: list[Path] = sorted((ASSETS / "corpus").glob("*.tflite")) if ASSETS.is_dir() else []
    return made + [path.read_bytes() for path in real if path.stat().st_size <= LARGEST_BYTES]


@pytest.fixture(scope="module")
def originals() -> list[bytes]:
    return _originals()


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_damaged_files_end_in_an_error_or_run(originals: list[bytes], chunk: int) -> None:
    faulthandler.dump_traceback_later(LIMIT_S, exit=True)
    ran = refused = 0
    try:
        for seed in range(chunk * EACH, (chunk + 1) * EACH):
            data = damaged(originals[seed * 7919 % len(originals)], seed)
            try:
                model = Model.from_bytes(data)
                inspect(model, delegates=False)
                written = model.to_bytes()
                assert Model.from_bytes(written).to_bytes() == written
                with Session(data) as session:
                    session.run(random_inputs(session))
                ran += 1
            except LitesmithError as error:
                assert str(error)
                refused += 1
    finally:
        faulthandler.cancel_dump_traceback_later()
    assert ran + refused == EACH
    assert refused > EACH // 10
