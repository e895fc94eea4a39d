# SPDX-License-Identifier: Apache-2.0
"""The delegate under unusual use: wrong options, resized inputs, several interpreters and threads, fork."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from litesmith.model import Builder, Quantization


def q(scale: float) -> Quantization:
    return Quantization(scale=(float(np.float32(scale)),), zero_point=(0,))


@pytest.fixture(scope="module")
def model() -> bytes:
    """QUANTIZE, two convolutions with a residual, MEAN, DEQUANTIZE; the batch may change."""
    b = Builder("small", seed=1)
    x = b.op("QUANTIZE", b.input("image", (-1, 12, 12, 3)), dtype="int16", quantization=q(1e-4))

    def conv(x: Any, channels: int) -> Any:
        weight = b.random.integers(-127, 128, (channels, 3, 3, x.shape[-1])).astype(np.int8)
        w = b.constant(weight, "w", quantization=Quantization(scale=(0.003,) * channels, zero_point=(0,) * channels))
        bias = b.constant(np.arange(channels), "b", dtype="int64", quantization=q(1e-6))
        return b.op("CONV_2D", x, w, bias, quantization=q(3e-4), padding="SAME", stride_h=1, stride_w=1)

    x = conv(x, 17)
    x = b.op("ADD", x, conv(x, 17), quantization=q(5e-4))
    x = b.op("MEAN", x, np.array([1, 2], np.int32), quantization=q(2e-4))
    return b.build({"y": b.op("DEQUANTIZE", x, dtype="float32")}).to_bytes()


def test_an_unknown_option_is_named(library: Path) -> None:
    from ai_edge_litert.interpreter import load_delegate

    with pytest.raises(ValueError, match="unknown option 'turbo'"):
        load_delegate(str(library), {"turbo": 1})
    with pytest.raises(ValueError, match="'isa' has value 'mmx'"):
        load_delegate(str(library), {"isa": "mmx"})
    with pytest.raises(ValueError, match="'num_threads' has value '-2'"):
        load_delegate(str(library), {"num_threads": -2})


def test_int16_can_be_switched_off(model: bytes, delegated: Any) -> None:
    assert delegated(model, int16="off").taken() == []


def test_one_node_can_be_singled_out(model: bytes, delegated: Any) -> None:
    assert delegated(model, only_node=2).taken() == ["CONV_2D"]


@pytest.mark.parametrize("batches", [(3, 1, 5)])
def test_a_resized_batch_is_planned_again(batches: tuple[int, ...], model: bytes, stock: Any, delegated: Any) -> None:
    runs = [stock(model), delegated(model, threads=2)]
    for batch in batches:
        results = []
        for run in runs:
            index = run.interpreter.get_input_details()[0]["index"]
            run.interpreter.resize_tensor_input(index, (batch, 12, 12, 3))
            run.interpreter.allocate_tensors()
            run.interpreter.set_tensor(
                index, np.random.default_rng(batch).standard_normal((batch, 12, 12, 3)).astype(np.float32)
            )
            run.interpreter.invoke()
            results.append(run.outputs()[0])
        assert results[1].shape == (batch, 17)
        np.testing.assert_array_equal(results[1], results[0])


def test_one_delegate_serves_two_interpreters_in_two_threads(model: bytes, library: Path, stock: Any) -> None:
    from ai_edge_litert.interpreter import Interpreter, load_delegate

    want = stock(model).outputs()[0]
    delegate = load_delegate(str(library), {"num_threads": 2})
    image = np.random.default_rng(0).standard_normal((1, 12, 12, 3)).astype(np.float32)
    interpreters = [Interpreter(model_content=model, experimental_delegates=[delegate]) for _ in range(2)]
    wrong: list[int] = []

    def work(interpreter: Any) -> None:
        interpreter.allocate_tensors()
        for _ in range(50):
            interpreter.set_tensor(interpreter.get_input_details()[0]["index"], image)
            interpreter.invoke()
            if not np.array_equal(interpreter.get_tensor(interpreter.get_output_details()[0]["index"]), want):
                wrong.append(1)

    threads = [threading.Thread(target=work, args=(i,)) for i in interpreters]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_a_forked_child_can_invoke(model: bytes, delegated: Any) -> None:
    run = delegated(model, threads=2)
    want = run.outputs()[0].copy()
    child = os.fork()
    if child == 0:
        run.interpreter.invoke()
        os._exit(0 if np.array_equal(run.outputs()[0], want) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    run.interpreter.invoke()
    np.testing.assert_array_equal(run.outputs()[0], want)


def test_the_profile_names_operators_and_kernels(model: bytes, library: Path, delegated: Any) -> None:
    run = delegated(model)
    native = ctypes.CDLL(str(library))
    pointer = ctypes.c_void_p(run.delegate._get_native_delegate_pointer())
    native.litesmith_delegate_set_profiling(pointer, 1)
    for _ in range(3):
        run.interpreter.invoke()
    native.litesmith_delegate_profile.restype = ctypes.c_size_t
    size = native.litesmith_delegate_profile(pointer, None, ctypes.c_size_t(0))
    buffer = ctypes.create_string_buffer(size + 1)
    native.litesmith_delegate_profile(pointer, buffer, ctypes.c_size_t(size + 1))
    rows = json.loads(buffer.value)
    assert [r["op"] for r in rows] == ["QUANTIZE", "CONV_2D", "CONV_2D", "ADD", "MEAN", "DEQUANTIZE"]
    assert all(r["calls"] == 3 and r["total_ns"] > 0 for r in rows)


def test_only_its_interface_is_exported(library: Path) -> None:
    symbols = subprocess.run(
        ["nm", "-D", "--defined-only", str(library)], capture_output=True, text=True, check=True
    ).stdout
    strong = {line.split()[-1] for line in symbols.splitlines() if line.split()[1] == "T"}
    assert strong == {
        "litesmith_delegate_decisions",
        "litesmith_delegate_events",
        "litesmith_delegate_isa",
        "litesmith_delegate_profile",
        "litesmith_delegate_set_profiling",
        "litesmith_run_each",
        "tflite_plugin_create_delegate",
        "tflite_plugin_destroy_delegate",
    }
