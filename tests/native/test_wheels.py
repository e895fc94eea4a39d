# SPDX-License-Identifier: Apache-2.0
"""The same library, unchanged, loads in several releases of ai-edge-litert and is exact in each.

The releases come from $LITESMITH_WHEELS (a folder of virtual environments named after the version) or are installed
once into the system's temporary folder; where neither works the test is skipped and says why.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from litesmith.model import Builder, Quantization, Value
from litesmith.optimize._prune_store import store_sparse

VERSIONS = ["2.0.3", "2.1.0", "2.3.0"]

PROBE = """
import json, sys, warnings
import numpy as np
warnings.simplefilter("ignore")
from ai_edge_litert.interpreter import Interpreter, OpResolverType, load_delegate
model, library, preserve = sys.argv[1:4]
def run(**options):
    it = Interpreter(model_path=model, experimental_preserve_all_tensors=preserve == "all", **options)
    it.allocate_tensors()
    detail = it.get_input_details()[0]
    image = np.random.default_rng(0).standard_normal(detail["shape"]).astype(np.float32)
    it.set_tensor(detail["index"], image)
    it.invoke()
    return it
want = run(experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES)
got = run(experimental_delegates=[load_delegate(library, {"num_threads": 2})])
result = {}
for op in want._get_ops_details() if preserve == "all" else []:
    same = all(np.array_equal(want.get_tensor(t), got.get_tensor(t)) for t in op["outputs"])
    result[f"{op['index']} {op['op_name']}"] = bool(same)
if preserve != "all":
    a, b = (it.get_tensor(it.get_output_details()[0]["index"]) for it in (want, got))
    result["output"] = bool(np.allclose(a, b, rtol=1e-4, atol=1e-6))
delegated = sum(op["op_name"] == "DELEGATE" for op in got._get_ops_details())
print(json.dumps({"same": result, "delegated": delegated}))
"""


def q(scale: float) -> Quantization:
    return Quantization(scale=(float(np.float32(scale)),), zero_point=(0,))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The operators of a convolutional network in int16x8."""
    b = Builder("net", seed=2)

    def constant(shape: tuple[int, ...], axis: int) -> Value:
        n = shape[axis]
        quantization = Quantization(scale=(0.004,) * n, zero_point=(0,) * n, axis=axis)
        return b.constant(b.random.integers(-127, 128, shape).astype(np.int8), "w", quantization=quantization)

    def bias(n: int) -> Value:
        return b.constant(b.random.integers(-(1 << 30), 1 << 30, n), "b", dtype="int64", quantization=q(1e-6))

    x = b.op("QUANTIZE", b.input("image", (1, 15, 15, 3)), dtype="int16", quantization=q(1e-4))
    x = b.op(
        "CONV_2D",
        x,
        constant((20, 3, 3, 3), 0),
        bias(20),
        quantization=q(4e-4),
        padding="SAME",
        stride_h=2,
        stride_w=2,
        fused_activation_function="RELU6",
    )
    y = b.op(
        "DEPTHWISE_CONV_2D",
        x,
        constant((1, 3, 3, 20), 3),
        bias(20),
        quantization=q(3e-4),
        padding="SAME",
        stride_h=1,
        stride_w=1,
        depth_multiplier=1,
    )
    x = b.op("ADD", x, y, quantization=q(6e-4))
    x = b.op(
        "CONV_2D",
        x,
        constant((20, 1, 1, 20), 0),
        b.constant(b.random.integers(-(1 << 30), 1 << 30, 20), "b", dtype="int32", quantization=q(1e-6)),
        quantization=q(6e-4),
        padding="SAME",
        stride_h=1,
        stride_w=1,
        quantized_bias_type="INT32",
    )
    x = b.op(
        "MAX_POOL_2D", x, quantization=q(6e-4), padding="VALID", stride_h=2, stride_w=2, filter_height=2, filter_width=2
    )
    x = b.op("MEAN", x, np.array([1, 2], np.int32), quantization=q(3e-4))
    x = b.op("FULLY_CONNECTED", x, constant((10, 20), 0), bias(10), quantization=q(2e-3))
    x = b.op("SOFTMAX", x, quantization=q(1 / 32768), beta=1.0)
    path = tmp_path_factory.mktemp("wheels") / "net.tflite"
    b.build({"y": b.op("DEQUANTIZE", x, dtype="float32")}).save(path)
    return path


def python_with(version: str) -> Path:
    given = os.environ.get("LITESMITH_WHEELS")
    folder = Path(given or Path(tempfile.gettempdir()) / f"litesmith-wheels-{os.getuid()}") / version
    python = folder / "bin" / "python"
    if (folder / "ready").exists() or (given and python.exists()):
        return python
    if given:
        pytest.skip(f"{given} has no environment {version}")
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, capture_output=True)
    install = [str(python), "-m", "pip", "install", "-q", f"ai-edge-litert=={version}", "numpy"]
    done = subprocess.run(install, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"ai-edge-litert {version} cannot be installed here: {done.stderr.strip()[-200:]}")
    (folder / "ready").touch()
    return python


def probe(version: str, model: Path, library: Path, preserve: str) -> dict[str, Any]:
    command = [str(python_with(version)), "-c", PROBE, str(model), str(library), preserve]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_every_node_is_exact_in(version: str, model: Path, library: Path) -> None:
    result = probe(version, model, library, "all")
    assert result["delegated"] >= 9
    assert all(result["same"].values()), result["same"]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("block", [1, 4])
def test_a_sparse_chain_is_taken_and_equal_in(version: str, block: int, library: Path, tmp_path: Path) -> None:
    """Pruned convolutions, a depthwise one and a residual, with weights behind DENSIFY."""
    b = Builder("chain", seed=3)

    def conv(x: Value, filters: int) -> Value:
        keep = np.repeat(b.random.random((filters // block, 1, 1, x.shape[-1])) >= 0.9, block, 0)
        weight = b.random.standard_normal(keep.shape).astype(np.float32) * keep
        return b.conv2d(x, filters, weight=weight.astype(np.float32), activation="RELU6")

    x = b.conv2d(b.input("image", (1, 33, 33, 3)), 32, kernel=3, stride=2, activation="RELU6")
    x = conv(b.depthwise_conv2d(conv(x, 96), activation="RELU6"), 96)
    x = b.op("ADD", x, conv(x, 96), fused_activation_function="NONE")
    x = b.op("MEAN", x, np.array([1, 2], np.int32), keep_dims=False)
    path = tmp_path / "sparse.tflite"
    store_sparse(b.build({"y": x})).save(path)
    result = probe(version, path, library, "none")
    assert result["delegated"] == 1
    assert result["same"] == {"output": True}
