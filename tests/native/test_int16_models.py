# SPDX-License-Identifier: Apache-2.0
"""Whole int16x8 networks: every node's output equals the stock kernels', and the network runs in one partition."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

MODELS = {
    "resnet20": "cifar10/resnet20_float.tflite",
    "kws_dscnn": "mlperf_tiny/kws_dscnn_float.tflite",
    "ic_resnet": "mlperf_tiny/ic_resnet_large_float.tflite",
}


@pytest.fixture(scope="session")
def quantized(assets: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The models with int16 activations and int8 weights, calibrated on noise."""
    quantizer = pytest.importorskip("ai_edge_quantizer.quantizer", reason="ai-edge-quantizer is not installed")
    from ai_edge_litert.interpreter import Interpreter
    from ai_edge_quantizer import recipe

    made = {}
    random = np.random.default_rng(0)
    for name, file in MODELS.items():
        path = str(assets / file)
        runner = Interpreter(model_path=path).get_signature_runner("serving_default")
        samples = [
            {k: random.uniform(-1, 1, d["shape"]).astype(d["dtype"]) for k, d in runner.get_input_details().items()}
            for _ in range(2)
        ]
        target = tmp_path_factory.mktemp("int16") / f"{name}.tflite"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # calibration preserves all tensors, which the interpreter warns about
            engine = quantizer.Quantizer(path, recipe.static_wi8_ai16())
            engine.quantize(engine.calibrate({"serving_default": samples})).export_model(str(target), overwrite=True)
        made[name] = target.read_bytes()
    return made


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("spread", [0.3, 30.0])
def test_every_node_is_exact(name: str, spread: float, quantized: dict[str, bytes], stock: Any, delegated: Any) -> None:
    want = stock(quantized[name], spread=spread, preserve=True)
    nodes = {op["index"]: op for op in want.interpreter._get_ops_details()}
    got = delegated(quantized[name], spread=spread, preserve=True)
    decisions = got.decisions()
    assert all(d["taken"] for d in decisions), [d for d in decisions if not d["taken"]]
    for decision in decisions:
        for tensor in nodes[decision["node"]]["outputs"]:
            np.testing.assert_array_equal(
                got.interpreter.get_tensor(tensor), want.interpreter.get_tensor(tensor), err_msg=str(decision)
            )


@pytest.mark.parametrize("name", MODELS)
def test_one_partition_and_the_same_output(name: str, quantized: dict[str, bytes], stock: Any, delegated: Any) -> None:
    want = stock(quantized[name]).outputs()
    for threads in (1, 2):
        got = delegated(quantized[name], threads=threads)
        partitions = [op for op in got.interpreter._get_ops_details() if op["op_name"] == "DELEGATE"]
        assert len(partitions) == 1
        for a, b in zip(want, got.outputs(), strict=True):
            np.testing.assert_array_equal(b, a)


def test_a_float_model_is_left_alone(assets: Path, delegated: Any) -> None:
    got = delegated((assets / MODELS["resnet20"]).read_bytes())
    assert got.taken() == []
