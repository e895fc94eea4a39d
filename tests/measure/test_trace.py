# SPDX-License-Identifier: Apache-2.0
"""The timeline, parsed back: nested, without overlap, with the durations of the profile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as proto

from litesmith.errors import MeasureError, UsageError
from litesmith.measure import Trace, _recording, span, trace, tracing, write_trace
from litesmith.measure._recording import record
from litesmith.measure._spans import collect_spans
from litesmith.model import Model
from litesmith.optimize import quantize
from litesmith.runtime import Session, partitions, random_inputs
from litesmith.zoo import build


@dataclass
class Parsed:
    """A slice of a trace as read back."""

    name: str
    start: int
    end: int = -1
    depth: int = 0
    details: dict[str, Any] = field(default_factory=dict)


def parse(path: Path) -> tuple[dict[str, list[Parsed]], dict[str, list[float]]]:
    """Return the slices and the counters of a trace by track; fails where slices of a track do not nest."""
    message = proto.Trace()
    message.ParseFromString(path.read_bytes())
    names: dict[int, str] = {}
    events: dict[int, list[Any]] = {}
    for packet in message.packet:
        if packet.HasField("track_descriptor"):
            names[packet.track_descriptor.uuid] = packet.track_descriptor.name
        elif packet.HasField("track_event"):
            events.setdefault(packet.track_event.track_uuid, []).append(packet)
    slices: dict[str, list[Parsed]] = {}
    counters: dict[str, list[float]] = {}
    for uuid, packets in events.items():
        if packets[0].track_event.type == proto.TrackEvent.TYPE_COUNTER:
            counters[names[uuid]] = [p.track_event.double_counter_value for p in packets]
            continue
        slices[names[uuid]] = _nest(packets)
    return slices, counters


def _nest(packets: list[Any]) -> list[Parsed]:
    """Pair begins and ends as Perfetto does: by time, and at the same time in the order of the file."""
    done: list[Parsed] = []
    open_slices: list[Parsed] = []
    written: list[tuple[Parsed, int]] = []
    for begin, end in zip(packets[::2], packets[1::2], strict=True):
        assert begin.track_event.type == proto.TrackEvent.TYPE_SLICE_BEGIN
        assert end.track_event.type == proto.TrackEvent.TYPE_SLICE_END
        details = {a.name: a.string_value or a.int_value for a in begin.track_event.debug_annotations}
        written.append((Parsed(begin.track_event.name, begin.timestamp, end.timestamp, details=details), 0))
    for parsed, _ in written:
        while open_slices and open_slices[-1].end <= parsed.start:
            open_slices.pop()
        if open_slices:
            assert open_slices[-1].start <= parsed.start
            assert parsed.end <= open_slices[-1].end, f"{parsed} sticks out of {open_slices[-1]}"
        parsed.depth = len(open_slices)
        open_slices.append(parsed)
        done.append(parsed)
    return done


def test_the_trace_has_each_kernel_of_each_run_with_its_duration(tiny_model: Model, tmp_path: Path) -> None:
    pieces = partitions(tiny_model)
    with Session(tiny_model, profiling=True) as session:
        session.run(random_inputs(session))
        recorded = record(tiny_model, session, pieces, runs=8)

    result = write_trace(tmp_path / "t.pftrace", tiny_model, recorded)

    slices, _ = parse(tmp_path / "t.pftrace")
    expected = [s for run in recorded for s in run.slices]
    durations_ns = [s.end - s.start for s in slices["operators"]]
    assert durations_ns == pytest.approx([s.duration_us * 1000 for s in expected], abs=1)  # both ends are whole ones
    assert {s.depth for s in slices["operators"]} == {0}, "operators run one after the other"
    assert [s.details["operator"] for s in slices["operators"] if "operator" in s.details] == [
        s.operator for s in expected if s.operator is not None
    ]
    assert all("kernel" in s.details for s in slices["operators"])
    assert slices["operators"][0].details["MACs"] == tiny_model.cost().operators[0].macs
    assert [(s.name, s.depth) for s in slices["session"]] == [("run", 0), ("graph", 1)] * 8
    assert result.runs == 8
    assert result.slices == len(slices["operators"]) + 16
    assert Trace.from_json(result.to_json()) == result
    assert result.plot().data


def test_the_operators_of_our_delegate_are_on_the_timeline(tmp_path: Path) -> None:
    model = quantize(build("ds_cnn"), scheme="int16x8", check=False).model

    trace(model, tmp_path / "t.pftrace", runs=3)

    operators = parse(tmp_path / "t.pftrace")[0]["operators"]
    assert [s.details["operator"] for s in operators] == list(range(len(model.main.operators))) * 3
    assert any("s16s8_gemm" in str(s.details["kernel"]) for s in operators)


def test_the_verb_writes_counters_too(tiny: Path, tmp_path: Path) -> None:
    result = trace(tiny, tmp_path / "t.pftrace", runs=30)

    slices, counters = parse(tmp_path / "t.pftrace")
    assert result.complete
    assert len(slices["session"]) == 60
    assert counters["memory (MB)"][0] > 1
    assert all(value >= 0 for value in counters.get("CPU (%)", []))


def test_spans_nest_and_each_thread_has_its_track(tmp_path: Path, tiny_model: Model) -> None:
    import threading

    with collect_spans() as spans:
        with span("outer"), span("inner"):
            pass
        other = threading.Thread(target=lambda: _in_span("elsewhere"))
        other.start()
        other.join()
    write_trace(tmp_path / "t.pftrace", tiny_model, [], spans=spans)

    slices, _ = parse(tmp_path / "t.pftrace")
    assert [(s.name, s.depth) for s in slices["application"]] == [("outer", 0), ("inner", 1)]
    assert [s.name for s in slices["application 2"]] == ["elsewhere"]


def _in_span(name: str) -> None:
    with span(name):
        pass


def test_a_span_where_nothing_is_traced_leaves_nothing() -> None:
    with span("lost"):
        pass
    with collect_spans() as spans:
        pass

    assert spans == []


def test_ones_own_loop_is_on_the_same_timeline(tiny: Path, tmp_path: Path) -> None:
    with tracing(tmp_path / "app.pftrace", tiny) as session:
        for number in range(3):
            with span("frame"):
                with span("prepare"):
                    session.inputs["image"][...] = np.float32(number)
                session.run()

    slices, _ = parse(tmp_path / "app.pftrace")
    frames = [s for s in slices["application"] if s.name == "frame"]
    runs = [s for s in slices["session"] if s.name == "run"]
    assert [s.depth for s in slices["application"]] == [0, 1] * 3
    assert len(frames) == len(runs) == 3
    for frame, run in zip(frames, runs, strict=True):
        assert frame.start <= run.start
        assert run.end <= frame.end
    assert len(slices["operators"]) >= 15


def test_a_loop_that_raises_keeps_its_trace(tiny: Path, tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        _fail_while_tracing(tmp_path / "app.pftrace", tiny)

    slices, _ = parse(tmp_path / "app.pftrace")
    assert [s.name for s in slices["session"]] == ["run", "graph"]
    assert [s.name for s in slices["application"]] == ["doomed"]


def _fail_while_tracing(path: Path, model: Path) -> None:
    with tracing(path, model) as session, span("doomed"):
        session.run()
        _ = 1 / 0


def test_ctrl_c_keeps_the_runs_until_then(tiny: Path, tmp_path: Path, interrupt: Callable[..., None]) -> None:
    interrupt(_recording, "_record_some", 3)

    result = trace(tiny, tmp_path / "t.pftrace", runs=100_000)

    assert not result.complete
    assert 2 <= result.runs == len(parse(tmp_path / "t.pftrace")[0]["session"]) // 2


def test_what_cannot_be_written_is_told(tiny: Path, tmp_path: Path) -> None:
    with pytest.raises(MeasureError, match="cannot be written"):
        trace(tiny, tmp_path / "no" / "t.pftrace", runs=1)
    with pytest.raises(UsageError):
        trace(tiny, tmp_path / "t.pftrace", runs=0)
