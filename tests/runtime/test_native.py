# SPDX-License-Identifier: Apache-2.0
"""Sessions use Litesmith's delegate by themselves where a model has operators for it, and only there."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from litesmith.errors import SessionError, UsageError
from litesmith.model import Builder, Model, Quantization
from litesmith.runtime import LITESMITH, XNNPACK, LitesmithWarning, Session, _native, inspect, native_tier, partitions
from litesmith.runtime._native import wants_native

pytestmark = pytest.mark.skipif(not native_tier(), reason="Litesmith was installed without its kernels")


def q(scale: float) -> Quantization:
    return Quantization(scale=(float(np.float32(scale)),), zero_point=(0,))


@pytest.fixture(scope="module")
def int16_model() -> Model:
    """Float outside, two int16x8 convolutions and a residual inside; the batch may change."""
    b = Builder("int16", seed=1)
    x = b.op("QUANTIZE", b.input("image", (-1, 12, 12, 3)), dtype="int16", quantization=q(1e-4))

    def conv(x: Any, channels: int) -> Any:
        weight = b.random.integers(-127, 128, (channels, 3, 3, x.shape[-1])).astype(np.int8)
        w = b.constant(weight, "w", quantization=Quantization(scale=(0.003,) * channels, zero_point=(0,) * channels))
        bias = b.constant(np.arange(channels), "b", dtype="int64", quantization=q(1e-6))
        return b.op("CONV_2D", x, w, bias, quantization=q(3e-4), padding="SAME", stride_h=1, stride_w=1)

    x = conv(x, 17)
    x = b.op("ADD", x, conv(x, 17), quantization=q(5e-4))
    x = b.op("MEAN", x, np.array([1, 2], np.int32), quantization=q(2e-4))
    return b.build({"y": b.op("DEQUANTIZE", x, dtype="float32")})


@pytest.fixture(scope="module")
def pruned_model() -> Model:
    """1x1 convolutions of which 95 % is zero, and a SOFTMAX that stays with XNNPACK."""
    b = Builder("pruned", seed=0)
    x = b.conv2d(b.input("image", (1, 33, 29, 3)), 32, kernel=3, stride=2, activation="RELU6")
    for filters in (128, 128, 256):
        keep = b.random.random((filters, 1, 1, x.shape[-1])) >= 0.95
        weight = (b.random.standard_normal(keep.shape) * keep * 0.5).astype(np.float32)
        x = b.conv2d(b.depthwise_conv2d(x, activation="RELU6"), filters, weight=weight)
    x = b.op("MEAN", x, np.array([1, 2], np.int32))
    return b.build({"scores": b.op("SOFTMAX", b.op("RESHAPE", x, np.array([16, 16], np.int32)), beta=1.0)})


def image(shape: tuple[int, ...]) -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def test_int16_is_taken_and_exact(int16_model: Model, open_session: Callable[..., Session], backend: str) -> None:
    x = image((1, 12, 12, 3))
    with open_session(int16_model) as session, open_session(int16_model, delegate="off") as without:
        assert session.compiled.delegate == native_tier()
        assert session.compiled.backend == backend
        assert without.compiled.delegate == ""
        assert without.compiled.kernels == "xnnpack"
        np.testing.assert_array_equal(session(x)["y"], without(x)["y"])


@pytest.mark.parametrize("threads", [1, 2])
def test_a_resized_session_is_exact(int16_model: Model, open_session: Callable[..., Session], threads: int) -> None:
    with (
        open_session(int16_model, threads=threads) as session,
        open_session(int16_model, delegate="off") as without,
    ):
        for batch in (3, 1, 4):
            for each in (session, without):
                each.resize({"image": (batch, 12, 12, 3)})
            x = image((batch, 12, 12, 3))
            np.testing.assert_array_equal(session(x)["y"], without(x)["y"])


def test_xnnpack_keeps_the_rest(pruned_model: Model, open_session: Callable[..., Session]) -> None:
    x = image((1, 33, 29, 3))
    pieces = partitions(pruned_model)
    kinds = {p.delegate: {pruned_model.main.operators[i].kind for i in p.operators} for p in pieces}
    assert "CONV_2D" in kinds[LITESMITH]
    assert "SOFTMAX" in kinds[XNNPACK]
    assert {p.delegate for p in partitions(pruned_model, kernels="xnnpack")} == {XNNPACK}
    with open_session(pruned_model) as session, open_session(pruned_model, delegate="off") as without:
        np.testing.assert_allclose(session(x)["scores"], without(x)["scores"], rtol=1e-4)


def test_the_profile_has_the_operators_of_both(pruned_model: Model) -> None:
    pieces = {i: p.delegate for p in partitions(pruned_model) for i in p.operators}
    with Session(pruned_model, profiling=True) as session:
        session.run({"image": image((1, 33, 29, 3))})
        session.start_profile()
        for _ in range(3):
            session.run()
        events = session.stop_profile()
    ours = [e for e in events if e.type == "delegate_operator"]
    runs = Counter(e.node for e in ours)
    assert {i for i in runs if i >= 0} == {i for i, delegate in pieces.items() if delegate == LITESMITH}
    assert {count for node, count in runs.items() if node >= 0} == {3}
    assert any(e.type == "delegate_profiled_operator" and e.tag.startswith("Softmax") for e in events)
    assert not any(e.tag == "LitesmithDelegate" for e in events)
    invokes = [(e.start_us, e.start_us + e.duration_us) for e in events if e.tag == "Invoke"]
    assert all(any(begin - 1 <= e.start_us <= end + 1 for begin, end in invokes) for e in ours)
    assert all(e.duration_us > 0 for e in ours if e.node >= 0)


def test_an_ordinary_model_runs_as_before(conv_model: Model) -> None:
    """The same kernels in the same order, and no delegate of ours anywhere."""
    tags = []
    for how in ("auto", "off"):
        with Session(conv_model, profiling=True, delegate=how) as session:
            assert session.compiled.delegate == ""
            session.run()
            session.start_profile()
            session.run()
            tags.append([(e.type, e.tag, e.node) for e in session.stop_profile()])
    assert tags[0] == tags[1]
    assert partitions(conv_model) == partitions(conv_model, kernels="xnnpack")


def test_which_models_want_it(int16_model: Model, pruned_model: Model, conv_model: Model) -> None:
    assert wants_native(int16_model)
    assert wants_native(pruned_model)
    assert not wants_native(conv_model)


def test_inspect_says_what_it_takes(int16_model: Model, pruned_model: Model, conv_model: Model) -> None:
    found = inspect(int16_model).litesmith
    assert found is not None
    assert (found.delegated, found.partitions) == (6, 1)
    mixed = inspect(pruned_model)
    assert mixed.litesmith is not None
    assert mixed.xnnpack is not None
    assert mixed.litesmith.delegated + mixed.xnnpack.delegated == len(pruned_model.main.operators)
    assert inspect(conv_model).litesmith is None


def test_wrong_choices_are_refused(conv_model: Model) -> None:
    with pytest.raises(UsageError, match="delegate must be auto or off, not 'on'"):
        Session(conv_model, delegate="on")  # type: ignore[arg-type]


def test_without_the_library_it_says_so(int16_model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_native, "_find", lambda: None)
    with pytest.raises(SessionError, match="no native delegate"):
        _native.delegate_path()
    with (
        pytest.warns(LitesmithWarning, match="kernels: this Litesmith has no native delegate"),
        Session(int16_model) as session,
    ):
        assert session.compiled.delegate == ""


def test_a_library_for_another_machine_is_told_and_done_without(
    int16_model: Model, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "lib.so").write_bytes(b"\x7fELF, but not for here")
    monkeypatch.setattr(_native, "_find", _native._find.__wrapped__)
    monkeypatch.setattr(_native, "_files", lambda: [tmp_path / "lib.so"])
    with pytest.raises(SessionError, match=r"does not load here \(.*lib.so"):
        _native.delegate_path()
    with pytest.warns(LitesmithWarning, match="does not load here"), Session(int16_model) as session:
        assert session.compiled.delegate == ""


def test_sessions_in_threads_agree(int16_model: Model, pruned_model: Model) -> None:
    wrong: list[str] = []

    def work(model: Model, x: Any) -> None:
        with Session(model, threads=2) as session:
            want = next(iter(session(x).values()))
            for _ in range(30):
                if not np.array_equal(next(iter(session(x).values())), want):
                    wrong.append(str(model.description))

    jobs = [(int16_model, image((1, 12, 12, 3))), (pruned_model, image((1, 33, 29, 3)))] * 2
    threads = [threading.Thread(target=work, args=job) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_forked_child_makes_its_own(int16_model: Model) -> None:
    x = image((1, 12, 12, 3))
    with Session(int16_model, threads=2) as session:
        want = session(x)["y"]
        child = os.fork()
        if child == 0:
            code = 1
            try:
                with Session(int16_model, threads=2) as own:
                    code = 0 if np.array_equal(own(x)["y"], want) else 1
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        np.testing.assert_array_equal(session(x)["y"], want)


def test_the_delegate_gets_the_threads_of_its_session(int16_model: Model) -> None:
    def tasks() -> int:
        return len(list(Path("/proc/self/task").iterdir()))

    with Session(int16_model, threads=4) as session:
        before = tasks()
        session.run()
        assert tasks() - before == 3  # its workers start with the first run
