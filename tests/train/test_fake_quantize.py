# SPDX-License-Identifier: Apache-2.0
"""Rounding in training is the rounding of LiteRT's integer kernels, and its gradients are those of LSQ."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.train.conftest import pattern_images

from litesmith.data import Dataset
from litesmith.model import Builder, Model, expose
from litesmith.optimize import calibrate, quantize
from litesmith.optimize._run import GraphRunner
from litesmith.train import GraphModule
from litesmith.train._fake_quantize import ActivationQuantizer, DynamicQuantizer, WeightQuantizer
from litesmith.train._quantized_graph import QuantizedGraph


def test_an_activation_is_rounded_and_cut() -> None:
    quantizer = ActivationQuantizer("int8", 0.1, -128)
    rounded = quantizer(torch.tensor([-1.0, 0.04, 0.06, 25.4, 26.0]))

    assert torch.allclose(rounded, torch.tensor([0.0, 0.0, 0.1, 25.4, 25.5]), atol=1e-6)
    assert quantizer.covers("RELU")
    assert not quantizer.covers("RELU6")
    assert ActivationQuantizer("int8", 6 / 255, -128).covers("RELU6")


def test_the_gradient_of_the_scale_is_that_of_lsq() -> None:
    quantizer = ActivationQuantizer("int8", 0.1, 0)
    x = torch.tensor([0.04, -0.33, 20.0, -20.0], requires_grad=True)
    upstream = torch.tensor([1.0, 2.0, 3.0, 4.0])
    quantizer(x).backward(upstream)

    assert torch.equal(x.grad, torch.tensor([1.0, 2.0, 0.0, 0.0]))
    per_element = torch.tensor([0.0 - 0.04, -0.3 + 0.33, 12.7, -12.8])
    assert quantizer.log_scale.grad is not None
    assert float(quantizer.log_scale.grad) == pytest.approx(float((upstream * per_element).sum()), rel=1e-5)


def test_weights_have_a_scale_for_each_channel_and_keep_zeros() -> None:
    weight = torch.tensor([[0.0, 1.0, -1.27], [0.0, 10.0, -12.7]])
    quantizer = WeightQuantizer(torch.tensor([0.01, 0.1]), 0, 8)

    assert torch.equal(quantizer.integers(weight), torch.tensor([[0, 100, -127], [0, 100, -127]], dtype=torch.int8))
    assert torch.allclose(quantizer(weight), weight, atol=1e-5)
    shared = WeightQuantizer(torch.tensor([0.01, 0.1]), 0, 8, shared=True)
    assert shared.scales().tolist() == pytest.approx([0.1, 0.1])
    quantizer(weight).sum().backward()
    assert quantizer.log_scale.grad is not None


def test_rounding_on_the_fly_is_within_half_a_step_of_each_row() -> None:
    x = torch.randn(5, 7) * torch.tensor([[0.1], [1.0], [10.0], [0.5], [3.0]])
    step = (x.amax(dim=1).clamp(min=0) - x.amin(dim=1).clamp(max=0)) / 255

    assert bool(((DynamicQuantizer()(x) - x).abs() <= step[:, None] * 0.5001).all())


STEPS_OFF_AND_SHARE_EQUAL = (1.01, 0.995)
ROUNDED_TWICE: dict[str, dict[str, tuple[float, float]]] = {
    "int8": {},
    "int16x8": {"MEAN": (1.01, 0.8), "FULLY_CONNECTED": (2.01, 0.5)},
}
"""MEAN on int16 rounds twice, which lifts an eighth of its values by a step; the layer that reads them inherits it."""


@pytest.mark.parametrize("scheme", ["int8", "int16x8"])
@pytest.mark.parametrize("head", ["auto", "same"])
def test_the_simulation_is_the_written_file(scheme: str, head: str, learned: Model, data: Dataset) -> None:
    """Tensor by tensor, PyTorch is a step from LiteRT at the most, and nearly everywhere on the same integer."""
    ranges = calibrate(learned, data.take(100))
    planned = quantize(learned, scheme=scheme, ranges=ranges, recover=(), head=head)
    module = GraphModule(learned).eval()
    graph = QuantizedGraph(module, planned.model)
    with torch.no_grad():
        for parameter in module.parameters():  # as if training had moved it
            parameter.mul_(1.01)
    written = graph.to_model()
    written.verify()
    integers = {
        t: ROUNDED_TWICE[scheme].get(op.kind, STEPS_OFF_AND_SHARE_EQUAL)
        for op in learned.main.operators
        for t in op.outputs
        if written.main.tensors[t].dtype in ("int8", "int16") and t not in written.main.outputs
    }
    same: dict[int, list[float]] = {tensor: [] for tensor in integers}
    runner = GraphRunner(expose(written, list(integers)))
    for image in pattern_images(8, seed=5)[0]:
        values: dict[int, Any] = module.run({learned.main.inputs[0]: torch.from_numpy(image[None])}, keep=integers)
        runner.run({written.main.inputs[0]: image[None]})
        for tensor, (limit, _) in integers.items():
            quantization = written.main.tensors[tensor].quantization
            assert quantization is not None
            simulated = values[tensor].detach().numpy() / quantization.scale[0] + quantization.zero_point[0]
            steps = np.abs(runner.view(tensor).astype(np.float64) - simulated)
            assert steps.max() <= limit
            same[tensor].append((steps < 0.5).mean())
        if head == "auto":
            answer = values[learned.main.outputs[0]].detach().numpy()
            assert np.allclose(runner.view(written.main.outputs[0]), answer, atol=0.02 * np.abs(answer).max())
    assert all(np.mean(same[tensor]) > share for tensor, (_, share) in integers.items())


@pytest.mark.parametrize("layer", ["conv2d", "depthwise_conv2d", "transpose_conv"])
def test_convolutions_on_int16_keep_15_bits_of_their_multiplier(layer: str) -> None:
    """Without that a value in fifty is off by a step."""
    b = Builder("layer", seed=3)
    x = b.input("x", (1, 12, 12, 6))
    options: dict[str, Any] = (
        {"kernel": 3, "activation": "RELU"} if layer != "transpose_conv" else {"kernel": 3, "stride": 2}
    )
    channels = () if layer == "depthwise_conv2d" else (12,)
    y = getattr(b, layer)(x, *channels, **options)
    model = b.build({"y": b.conv2d(y, 4)})
    samples = np.random.default_rng(0).normal(size=(20, 12, 12, 6)).astype(np.float32)
    planned = quantize(model, scheme="int16x8", ranges=calibrate(model, list(samples)), recover=(), head="same")
    module = GraphModule(model).eval()
    written = QuantizedGraph(module, planned.model).to_model()
    (tensor,) = next(op.outputs for op in model.main.operators if op.kind.endswith(("CONV_2D", "TRANSPOSE_CONV")))
    runner = GraphRunner(expose(written, [tensor]))
    quantization = written.main.tensors[tensor].quantization
    assert quantization is not None
    equal = []
    for sample in samples:
        values = module.run({model.main.inputs[0]: torch.from_numpy(sample[None])}, keep=[tensor])
        runner.run({written.main.inputs[0]: sample[None]})
        simulated = np.round(values[tensor].detach().numpy() / quantization.scale[0])
        equal.append((simulated == runner.view(tensor)).mean())
    assert np.mean(equal) > 0.999


def test_tensors_that_a_kernel_ties_share_their_scale() -> None:
    b = Builder("joined")
    x = b.input("x", (1, 6, 6, 4))
    left, right = b.conv2d(x, 4, kernel=3), b.conv2d(x, 4, kernel=3)
    joined = b.op("CONCATENATION", left, right, axis=3)
    pooled = b.op("MAX_POOL_2D", joined, padding="SAME", filter_height=2, filter_width=2, stride_h=2, stride_w=2)
    model = b.build({"y": b.conv2d(pooled, 4, kernel=3)})
    samples = np.random.default_rng(0).normal(size=(20, 6, 6, 4)).astype(np.float32)
    planned = quantize(model, ranges=calibrate(model, list(samples)), recover=(), head="same")
    module = GraphModule(model)
    graph = QuantizedGraph(module, planned.model)
    places = [op.outputs[0] for op in model.main.operators]

    assert graph.quantizer(places[2]) is graph.quantizer(places[3]) is graph.quantizer(places[0])
    with torch.no_grad():
        graph.quantizer(places[3]).log_scale.add_(0.1)
    scales = {graph.to_model().main.tensors[t].quantization.scale for t in places[:4]}  # type: ignore[union-attr]
    assert len(scales) == 1
