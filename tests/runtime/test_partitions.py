# SPDX-License-Identifier: Apache-2.0
"""Which operators XNNPACK takes."""

from __future__ import annotations

import numpy as np
import pytest

from litesmith.errors import SessionError
from litesmith.model import Builder, Model
from litesmith.runtime import Partition, Session, partitions


@pytest.fixture(scope="module")
def split_model() -> Model:
    """NEG and ABS go to XNNPACK; a FLOOR_MOD on integers between them does not."""
    b = Builder()
    whole = b.op("CAST", b.op("NEG", b.input("x", (1, 8))), dtype="int32")
    rest = b.op("FLOOR_MOD", whole, np.full((1, 8), 3, np.int32), outputs=[((1, 8), "int32")])
    return b.build({"y": b.op("ABS", b.op("CAST", rest, dtype="float32"))})


def test_partitions_cover_the_operators_once(split_model: Model) -> None:
    found = partitions(split_model)
    assert sorted(index for partition in found for index in partition.operators) == [0, 1, 2, 3, 4]
    assert [partition.delegate for partition in found] == ["XNNPACK", "XNNPACK", None]
    assert found[0].operators[0] == 0
    assert found[1].operators[-1] == 4
    assert 2 in found[2].operators


def test_they_are_what_the_profiler_sees(split_model: Model) -> None:
    with Session(split_model, profiling=True) as session:
        session.start_profile()
        session.run()
        events = session.stop_profile()
        found = session.compiled.partitions
    built_in = {event.node for event in events if event.type == "operator"}
    pieces = sum(event.type == "delegate_profiled_operator" and event.node == 0 for event in events)
    assert built_in == set(found[-1].operators)
    assert pieces == len(found) - 1


def test_without_xnnpack_all_is_left(split_model: Model) -> None:
    assert partitions(split_model, kernels="builtin") == (Partition(None, (0, 1, 2, 3, 4)),)


def test_a_whole_model_is_one_piece(conv_model: Model) -> None:
    assert partitions(conv_model) == (Partition("XNNPACK", (0, 1, 2, 3, 4)),)
    with Session(conv_model) as session:
        assert session.compiled.fully_accelerated


def test_a_model_that_does_not_load() -> None:
    b = Builder()
    model = b.build({"y": b.op("CUSTOM", b.input("x", (2,)), custom_code="MyOp", outputs=[((2,), "float32")])})
    with pytest.raises(SessionError, match="custom operator 'MyOp'"):
        partitions(model)
