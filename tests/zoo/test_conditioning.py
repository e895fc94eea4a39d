# SPDX-License-Identifier: Apache-2.0
"""Random weights are fit for use: activations stay in range, outputs follow the input, and int8 files load and run."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from litesmith import zoo
from litesmith.model import Model

Array = np.ndarray[Any, Any]

NARROW: dict[str, tuple[float, int]] = dict.fromkeys(zoo.names(), (0.25, 64)) | {
    "deepspeech": (0.05, 16),
    "ds_cnn": (0.25, 49),
    "inception_v3": (0.1, 99),
    "mobilebert": (0.125, 32),
    "resnet_v2_101": (0.1, 65),
    "wav2letter": (0.1, 64),
    "yolo_v3": (0.1, 96),
}
WIDE: dict[str, tuple[float, int]] = {
    "deepspeech": (0.5, 2),
    "ds_cnn": (4.0, 49),
    "efficientnet_lite0": (2.0, 64),
    "inception_v3": (1.0, 99),
    "mobilebert": (1.0, 64),
    "mobilenet_v1": (2.0, 96),
    "mobilenet_v2": (2.0, 96),
    "mobilenet_v3_large": (2.0, 96),
    "resnet_50": (1.0, 64),
    "resnet_v2_101": (1.0, 64),
    "resnet_8": (8.0, 32),
    "wav2letter": (1.0, 32),
    "yolo_v3": (0.5, 64),
}
PUBLISHED = ("ds_cnn", "efficientnet_lite0", "mobilenet_v1", "mobilenet_v2", "mobilenet_v3_small", "resnet_8")
SIZES = [
    *((name, *size) for name, size in NARROW.items()),
    *((name, *size) for name, size in WIDE.items()),
    *((name, 1.0, None) for name in PUBLISHED),
]


@pytest.mark.parametrize(("name", "width", "resolution"), SIZES)
def test_activations_stay_in_range_and_follow_the_input(
    name: str, width: float, resolution: int | None, litert: Any
) -> None:
    model = zoo.build(name, width=width, resolution=resolution)
    first, second = litert.activations(model, *(litert.sample(model, seed) for seed in (1, 2)))
    for tensor, values in first.items():
        if tensor.endswith(("/weights", "/hard_sigmoid")):  # of an average or a gate: 0 to 1
            assert values.std() * (values.shape[-1] if tensor.endswith("/weights") else 1) > 0.01, tensor
        elif not tensor.startswith("mask"):  # constant where nothing is padding
            assert 0.05 < values.std() < 20, tensor
    outputs = [model.main.tensors[i].name for i in model.main.outputs]
    change = max(np.abs(first[o] - second[o]).max() / first[o].std() for o in outputs)
    assert change > 0.05


def test_photographs_stay_in_range_too(assets: Any, litert: Any) -> None:
    from PIL import Image

    model = zoo.build("mobilenet_v2", resolution=160)
    photos = sorted((assets / "vision" / "photos").glob("*.jpg"))[:4]
    images = [np.asarray(Image.open(p).convert("RGB").resize((160, 160)), np.float32)[None] for p in photos]
    runs = litert.activations(model, *({"image": (image - 127.5) / 127.5} for image in images))
    for run in runs:
        assert all(0.05 < values.std() < 20 for values in run.values())
    logits = np.concatenate([run["logits"] for run in runs])
    assert logits.std(0).mean() > 0.1


INT8 = [*((name, *size) for name, size in NARROW.items()), *((name, 1.0, None) for name in PUBLISHED)]


@pytest.mark.parametrize(("name", "width", "resolution"), INT8)
def test_an_int8_file_loads_runs_and_resembles_the_float_one(
    name: str, width: float, resolution: int | None, litert: Any
) -> None:
    model = zoo.build(name, width=width, resolution=resolution)
    quantized = _int8(model, [litert.sample(model, seed) for seed in range(3)])
    main = Model.from_bytes(quantized).main
    weights = [op.inputs[1] for op in main.operators if op.kind in {"CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"}]
    assert weights
    assert all(main.tensors[i].dtype == "int8" for i in weights)
    sample = litert.sample(model, 9)
    expected, found = litert.run(model, sample), _run_int8(litert.interpreter(quantized), sample)
    for key, values in expected.items():
        assert np.corrcoef(values.ravel(), found[key].ravel())[0, 1] > 0.9, key


def _int8(model: Model, samples: list[dict[str, Array]]) -> bytes:
    pytest.importorskip("ai_edge_quantizer", reason="the quantizer is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from ai_edge_quantizer import quantizer, recipe

        tool = quantizer.Quantizer(model.to_bytes())
        tool.load_quantization_recipe(recipe.static_wi8_ai8())
        ranges = tool.calibrate({"serving_default": samples})
        return bytes(tool.quantize(ranges).quantized_model)


def _run_int8(interpreter: Any, sample: dict[str, Array]) -> dict[str, Array]:
    runner = interpreter.get_signature_runner()
    inputs, outputs = runner.get_input_details(), runner.get_output_details()
    given = {}
    for key, values in sample.items():
        scale, zero = inputs[key]["quantization"]
        real = inputs[key]["dtype"] != np.int8
        given[key] = values if real else np.clip(np.round(values / scale + zero), -128, 127).astype(np.int8)
    found = {}
    for key, values in runner(**given).items():
        scale, zero = outputs[key]["quantization"]
        found[key] = (values.astype(np.float32) - zero) * scale if values.dtype == np.int8 else values
    return found
