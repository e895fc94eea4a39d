# SPDX-License-Identifier: Apache-2.0
"""Weights are packed once and stay as small as they are in the file."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from litesmith import zoo
from litesmith.model import Builder, Model, Operator, Quantization
from litesmith.model._sparsity import sparsify
from litesmith.optimize import quantize

UNITS = 2048

GROWTH = """
import ctypes, sys

class Mallinfo(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in
        "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()]

libc = ctypes.CDLL(None)
libc.mallinfo2.restype = Mallinfo

def heap():
    now = libc.mallinfo2()
    return now.uordblks + now.hblkhd

from ai_edge_litert.interpreter import Interpreter, OpResolverType, load_delegate
library, path = sys.argv[1:]
options = {"experimental_op_resolver_type": OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES}
if library != "none":
    delegate = load_delegate(library, {"num_threads": 1})
    options = {"experimental_delegates": [delegate]}
before = heap()
interpreter = Interpreter(model_path=path, num_threads=1, **options)
interpreter.allocate_tensors()
if library == "none":
    print(heap() - before, -1)
    sys.exit()
interpreter.invoke()
growth = heap() - before
ask = ctypes.CDLL(library).litesmith_delegate_decisions
ask.restype, ask.argtypes = ctypes.c_size_t, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]
buffer = ctypes.create_string_buffer(1 << 20)
ask(delegate._get_native_delegate_pointer(), buffer, len(buffer))
print(growth, buffer.value.count(b'"taken":false'))
"""


def heap_growth(library: Path | str, model: Path) -> tuple[int, int]:
    """What an interpreter takes on the heap, and how many operators the delegate leaves."""
    done = subprocess.run([sys.executable, "-c", GROWTH, library, model], capture_output=True, text=True, check=True)
    growth, left = map(int, done.stdout.split())
    return growth, left


def q(scale: float, count: int = 1) -> Quantization:
    return Quantization(scale=(float(np.float32(scale)),) * count, zero_point=(0,) * count)


def int16_model() -> Model:
    """Two 1x1 convolutions and a FULLY_CONNECTED of 4 M weights each, on one pixel."""
    b = Builder("weights", seed=0)
    x = b.input("x", (1, 1, 1, UNITS), dtype="int16", quantization=q(1e-4))
    for _ in range(2):
        w = b.random.integers(-127, 128, (UNITS, 1, 1, UNITS)).astype(np.int8)
        weight = b.constant(w, "w", quantization=q(0.003, UNITS))
        bias = b.constant(np.zeros(UNITS), "b", dtype="int64", quantization=q(3e-7))
        x = b.op("CONV_2D", x, weight, bias, quantization=q(3e-4), padding="SAME", stride_h=1, stride_w=1)
    x = b.op("RESHAPE", x, np.array([1, UNITS], np.int32), quantization=q(3e-4))
    w = b.random.integers(-127, 128, (UNITS, UNITS)).astype(np.int8)
    bias = b.constant(np.zeros(UNITS), "b", dtype="int64", quantization=q(9e-7))
    x = b.op("FULLY_CONNECTED", x, b.constant(w, "w", quantization=q(0.003)), bias, quantization=q(3e-4))
    return b.build({"y": x})


def test_int8_weights_are_not_kept_wider(library: Path, tmp_path: Path) -> None:
    path = tmp_path / "int16.tflite"
    int16_model().save(path)
    growth, left = heap_growth(library, path)
    assert left == 0  # all four operators are the delegate's
    assert 0.95 * path.stat().st_size <= growth <= 1.05 * path.stat().st_size


def test_a_network_is_not_copied_twice(library: Path, tmp_path: Path) -> None:
    """What the delegate adds to the stock engine: packed weights, depthwise ones too, and the constants of channels."""
    model = zoo.build("mobilenet_v2", resolution=32)
    path = tmp_path / "net.tflite"
    quantize(model, scheme="int16x8", check=False).model.save(path)
    growth, left = heap_growth(library, path)
    assert left == 0
    assert growth - heap_growth("none", path)[0] <= 1.05 * path.stat().st_size


def test_sparse_tensors_are_not_unpacked(library: Path, tmp_path: Path) -> None:
    """Of a file with sparse tensors, the dense weights are never all in memory."""
    b = Builder("sparse", seed=0)
    x = b.input("x", (1, UNITS))
    for _ in range(3):
        w = np.where(b.random.random((UNITS, UNITS)) < 0.02, b.random.standard_normal((UNITS, UNITS)), 0.0)
        x = b.fully_connected(x, UNITS, weight=w.astype(np.float32))
    main = b.build({"y": x}).main
    tensors, operators = list(main.tensors), []
    for op in main.operators:
        weight = tensors[op.inputs[1]]
        tensors.append(replace(sparsify(weight, None), name=f"{weight.name}/sparse{len(tensors)}"))
        tensors[op.inputs[1]] = replace(weight, buffer=None)
        operators += [Operator(kind="DENSIFY", inputs=(len(tensors) - 1,), outputs=(op.inputs[1],)), op]
    path = tmp_path / "sparse.tflite"
    Model(subgraphs=(replace(main, tensors=tuple(tensors), operators=tuple(operators)),)).save(path)
    dense_bytes = 3 * 4 * UNITS * UNITS
    growth, left = heap_growth(library, path)
    assert left == 0
    assert growth < 0.15 * dense_bytes
