# SPDX-License-Identifier: Apache-2.0
"""What feeding and reading costs, and the audit of one's own code."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from ai_edge_litert import _pywrap_litert_interpreter_wrapper
from ai_edge_litert.compiled_model import CompiledModel
from ai_edge_litert.interpreter import Interpreter
from ai_edge_litert.tensor_buffer import TensorBuffer

from litesmith.errors import UsageError
from litesmith.measure import Audit, Copies, _timing, audit_copies, copies, watch_calls
from litesmith.model import Model
from litesmith.runtime import Session

IMAGE = np.random.default_rng(0).random((1, 32, 32, 3), np.float32)


def _line() -> int:
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return frame.f_back.f_lineno


def _interpreter(path: Path) -> Interpreter:
    interpreter = Interpreter(str(path))
    interpreter.allocate_tensors()
    return interpreter


def test_every_path_is_measured(tiny: Path) -> None:
    result = copies(tiny, seconds=0.05)

    for direction, size in (("feed", IMAGE.nbytes), ("read", 20)):
        paths = {path.path: path for path in result.of(direction)}
        assert set(paths) == {
            "Interpreter.set/get_tensor",
            "Interpreter.tensor view",
            "CompiledModel buffers",
            "Session copy",
            "Session view",
        }
        assert {name for name, path in paths.items() if not path.copies} == {"Interpreter.tensor view", "Session view"}
        assert all(path.summary and path.summary.median > 0 and result.share(path) > 0 for path in paths.values())
        assert {path.bytes for path in paths.values()} == {size}
    assert Copies.from_json(result.to_json()) == result
    assert len(result.plot().data) == 2


def test_a_path_that_cannot_take_the_model_says_why(int64_model: Model) -> None:
    result = copies(int64_model, seconds=0.02)

    compiled = next(path for path in result.of("feed") if path.path == "CompiledModel buffers")
    assert "int64" in compiled.problem
    assert compiled.summary is None
    assert result.share(compiled) == 0
    assert all(path.samples_us for path in result.of("feed") if path is not compiled)


def test_no_time_at_all_is_refused(tiny: Path) -> None:
    with pytest.raises(UsageError):
        copies(tiny, seconds=0)


def test_ctrl_c_keeps_what_was_measured(tiny: Path, interrupt: Callable[..., None]) -> None:
    interrupt(_timing, "time_for", 15)

    assert not copies(tiny, seconds=0.02).complete


def test_the_audit_is_also_a_part_of_the_verb() -> None:
    assert copies.audit is audit_copies  # type: ignore[attr-defined]


def test_set_tensor_and_get_tensor_copy(tiny: Path) -> None:
    interpreter = _interpreter(tiny)
    index, output = interpreter.get_input_details()[0]["index"], interpreter.get_output_details()[0]["index"]
    with audit_copies() as audit:
        for _ in range(3):
            interpreter.set_tensor(index, IMAGE)
            fed = _line() - 1
            interpreter.invoke()
            interpreter.get_tensor(output)

    feed = next(copy for copy in audit.copies if copy.direction == "feed")
    read = next(copy for copy in audit.copies if copy.direction == "read")
    assert (feed.api, feed.reason, feed.count, feed.bytes) == ("Interpreter.set_tensor", "API", 3, IMAGE.nbytes)
    assert (feed.file, feed.line, feed.function) == (__file__, fed, "test_set_tensor_and_get_tensor_copy")
    assert feed.code == "interpreter.set_tensor(index, IMAGE)"
    assert "interpreter.tensor(index)()" in feed.remedy
    assert feed.total_us == pytest.approx(3 * feed.mean_us)
    assert (read.api, read.reason, read.bytes) == ("Interpreter.get_tensor", "API", 20)
    result = audit.result
    assert result.runs == 3
    assert 0 < result.share < 1
    assert Audit.from_json(result.to_json()) == result
    assert result.plot().data


def test_the_reason_of_a_copy_is_told(tiny: Path) -> None:
    interpreter = _interpreter(tiny)
    index = interpreter.get_input_details()[0]["index"]
    foreign = IMAGE.astype(">f4")
    with audit_copies() as audit:
        interpreter.set_tensor(index, np.asfortranarray(IMAGE))
        interpreter.set_tensor(index, IMAGE[:, ::-1])
        interpreter.set_tensor(index, foreign)
        TensorBuffer.create_from_host_memory(_at(8))
        TensorBuffer.create_from_host_memory(_at(0))

    assert sorted(copy.reason for copy in audit.copies) == ["alignment", "dtype", "layout", "layout"]
    assert all("ascontiguousarray" in copy.remedy for copy in audit.copies if copy.reason == "layout")


def _at(offset: int) -> np.ndarray:
    """Return an array whose address is a multiple of 64 bytes, plus an offset."""
    memory = np.zeros(256, np.uint8)
    start = -memory.ctypes.data % 64 + offset
    return memory[start : start + 64].view(np.float32)


def test_a_view_is_no_copy(tiny: Path) -> None:
    interpreter = _interpreter(tiny)
    index = interpreter.get_input_details()[0]["index"]
    with Session(tiny) as session, audit_copies() as audit:
        interpreter.tensor(index)()[...] = IMAGE
        interpreter.invoke()
        session.inputs["image"][...] = IMAGE
        session.run()

    assert audit.copies == ()
    assert audit.result.runs == 2
    assert audit.result.share == 0


def test_signature_runners_compiled_models_and_sessions_are_seen(tiny: Path) -> None:
    runner = _interpreter(tiny).get_signature_runner()
    with audit_copies() as audit:
        runner(image=IMAGE)
        model = CompiledModel.from_file(str(tiny))
        inputs, outputs = model.create_input_buffers(0), model.create_output_buffers(0)
        inputs[0].write(IMAGE)
        model.run_by_index(0, inputs, outputs)
        outputs[0].read(5, np.float32)
        with Session(tiny) as session:
            session.run({"image": IMAGE})
            session(IMAGE.tolist())

    seen = {(copy.api, copy.direction, copy.reason) for copy in audit.copies}
    assert seen == {
        ("SignatureRunner.__call__", "feed", "API"),
        ("SignatureRunner.__call__", "read", "API"),
        ("TensorBuffer.write", "feed", "API"),
        ("TensorBuffer.read", "read", "API"),
        ("Session.run", "feed", "API"),
        ("Session.__call__", "feed", "dtype"),
        ("Session.__call__", "read", "API"),
    }
    assert audit.result.runs == 4


def test_a_session_on_the_interpreter_counts_once(where_model: Model) -> None:
    with watch_calls() as calls, Session(where_model) as session:
        session.run({"x": np.ones(4, np.float32)})

    assert [call.kind for call in calls] == ["load", "feed", "run"]


def test_everything_is_as_before_afterwards(tiny: Path) -> None:
    owners = (Interpreter, _pywrap_litert_interpreter_wrapper.InterpreterWrapper, CompiledModel, TensorBuffer, Session)
    before = [dict(vars(owner)) for owner in owners]

    with pytest.raises(ZeroDivisionError), audit_copies(), audit_copies():
        _ = 1 / 0

    assert [dict(vars(owner)) for owner in owners] == before


def test_what_the_code_raises_passes_through(tiny: Path) -> None:
    interpreter = _interpreter(tiny)
    index = interpreter.get_input_details()[0]["index"]
    with audit_copies() as audit, pytest.raises(ValueError, match="FLOAT64"):
        interpreter.set_tensor(index, IMAGE.astype(np.float64))

    assert audit.copies == ()
