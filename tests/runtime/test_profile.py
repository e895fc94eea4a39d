# SPDX-License-Identifier: Apache-2.0
"""The profiler's raw events."""

from __future__ import annotations

import time
from collections import Counter

import numpy as np
import pytest

from litesmith.errors import SessionError
from litesmith.model import Builder, Model
from litesmith.runtime import Session, _profile


@pytest.fixture(scope="module")
def mixed_model() -> Model:
    """Float operators that XNNPACK takes, with an int32 one that it leaves between them."""
    b = Builder()
    x = b.input("x", (1, 8))
    y = b.op("CAST", b.op("CAST", b.op("NEG", x), dtype="int32"), dtype="float32")
    return b.build({"y": b.op("ABS", y)})


def test_events_of_built_in_kernels_name_the_operators_of_the_file(mixed_model: Model) -> None:
    with Session(mixed_model, profiling=True, kernels="builtin") as session:
        session.run()
        session.start_profile()
        before_us = time.monotonic() * 1e6
        session.run()
        events = session.stop_profile()
        after_us = time.monotonic() * 1e6
    operators = [event for event in events if event.type == "operator"]
    assert [(event.node, event.tag) for event in operators] == [(0, "NEG"), (1, "CAST"), (2, "CAST"), (3, "ABS")]
    assert all(before_us - 1 <= event.start_us <= after_us for event in operators)
    assert {event.subgraph for event in operators} == {0}
    (invoke,) = (event for event in events if event.tag == "Invoke")
    assert sum(event.duration_us for event in operators) <= invoke.duration_us + len(operators)


def test_events_inside_a_delegate(conv_model: Model) -> None:
    with Session(conv_model, profiling=True) as session:
        session.start_profile()
        session.run()
        events = session.stop_profile()
    inside = [event for event in events if event.type == "delegate_profiled_operator"]
    assert sum("Convolution" in event.tag for event in inside) == 3
    assert [event.node for event in inside] == sorted(event.node for event in inside)
    assert {event.source for event in inside} == {"delegate"}
    assert not any("elemetry" in event.type or event.duration_us > 1e9 for event in events)


def test_only_the_runs_between_start_and_stop_are_recorded(mixed_model: Model) -> None:
    with Session(mixed_model, profiling=True) as session:
        for runs in (1, 5, 2, 0):
            session.run()
            session.start_profile()
            for _ in range(runs):
                session.run()
            events = session.stop_profile()
            session.run()
            assert Counter(event.tag for event in events)["Invoke"] == runs


def test_a_full_buffer_loses_nothing(mixed_model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """LiteRT's buffer is emptied whenever it might not take another run."""
    monkeypatch.setattr(_profile, "_DRAIN_AT", 20)
    with Session(mixed_model, profiling=True, kernels="builtin") as session:
        session.start_profile()
        for _ in range(50):
            session.run()
        events = session.stop_profile()
    assert Counter(event.tag for event in events if event.type == "operator") == {"NEG": 50, "CAST": 100, "ABS": 50}
    starts = [event.start_us for event in events if event.tag == "Invoke"]
    assert starts == sorted(starts)


def test_profiling_must_be_asked_for(mixed_model: Model) -> None:
    with Session(mixed_model) as session:
        for use in (session.start_profile, session.stop_profile):
            with pytest.raises(SessionError, match="make it with profiling=True"):
                use()
    with Session(mixed_model, profiling=True) as session, pytest.raises(SessionError, match="call start_profile"):
        session.stop_profile()


def test_profiling_is_refused_where_only_the_interpreter_can_run(where_model: Model) -> None:
    with pytest.raises(SessionError, match="profiling needs LiteRT's compiled-model API"):
        Session(where_model, profiling=True, backend="interpreter")
    with (
        Session(where_model, profiling=True) as session,
        pytest.raises(SessionError, match=r"profiling needs .*: the shape of an output is only known during a run"),
    ):
        session.run({"x": np.ones(4, np.float32)})
