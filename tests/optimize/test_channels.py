# SPDX-License-Identifier: Apache-2.0
"""Removing channels: what vanishes together, that nothing else changes, budgets, repair, and what is left alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.optimize.conftest import run, sqnr_db

from litesmith import zoo
from litesmith.errors import ModelError, OptimizeError, UsageError
from litesmith.model import Builder, Model, Value
from litesmith.optimize import ChannelsCoverage, _channels, channels, dequantize, quantize
from litesmith.optimize._channels_groups import PlanCost, find_groups, kept_indices
from litesmith.optimize._channels_rewrite import with_order, without_channels
from litesmith.optimize._channels_trace import Trace

Array = np.ndarray[Any, Any]


def residual(b: Builder, x: Value) -> Value:
    y = b.conv2d(x, 32, activation="RELU6", name="expand")
    y = b.depthwise_conv2d(y, activation="RELU6", name="dw")
    return b.op("ADD", x, b.conv2d(y, 16, name="project"), name="sum")


def gate(b: Builder, x: Value) -> Value:
    s = b.op("MEAN", x, np.array([1, 2], np.int32), keep_dims=True, name="squeeze")
    s = b.conv2d(s, 16, activation="RELU", name="reduce")
    s = b.op("LOGISTIC", b.conv2d(s, 16, name="excite"), name="gate")
    return b.op("MUL", x, s, name="gated")


def branches(b: Builder, x: Value) -> Value:
    one, two = b.conv2d(x, 16, activation="RELU", name="one"), b.conv2d(x, 24, kernel=3, activation="RELU", name="two")
    return b.op("CONCATENATION", one, two, axis=-1, name="joined", fused_activation_function="NONE")


def split(b: Builder, x: Value) -> Value:
    one, two = b.op("SPLIT", np.array(3, np.int32), b.conv2d(x, 32, name="both"), num_splits=2, name="half")
    return b.op("MUL", b.op("RELU", one, name="r"), two, name="product")


def unequal_split(b: Builder, x: Value) -> Value:
    wide = b.conv2d(x, 32, name="both")
    one, two = b.op("SPLIT", np.array(3, np.int32), wide, num_splits=2, name="half")
    return b.op("ADD", b.conv2d(one, 16, name="left"), b.conv2d(two, 16, name="right"), name="halves")


def grouped(b: Builder, x: Value) -> Value:
    return b.conv2d(x, 32, kernel=3, groups=2, activation="RELU", name="grouped")


def padded(b: Builder, x: Value) -> Value:
    """The shortcut of ResNets for CIFAR: zeros in place of channels that are not there."""
    wide = b.conv2d(x, 32, kernel=3, name="wide")
    short = b.op("PAD", x, np.array([[0, 0], [0, 0], [0, 0], [8, 8]], np.int32), name="shortcut")
    return b.op("ADD", wide, short, name="sum")


def multiplied(b: Builder, x: Value) -> Value:
    return b.depthwise_conv2d(x, multiplier=2, activation="RELU", name="dw2")


def scaled(b: Builder, x: Value) -> Value:
    random = np.random.default_rng(0)
    x = b.op("MUL", x, random.random((1, 1, 1, 16)).astype(np.float32), name="scale")
    x = b.op("PRELU", x, random.random((1, 1, 16)).astype(np.float32), name="slope")
    return b.op("MAX_POOL_2D", x, name="pool", padding="VALID", stride_h=2, stride_w=2, filter_height=2, filter_width=2)


def upsampled(b: Builder, x: Value) -> Value:
    return b.transpose_conv(x, 24, kernel=2, stride=2, name="up")


def sideways(b: Builder, x: Value) -> Value:
    """Channels first for the mean, as converted models have it."""
    x = b.op("TRANSPOSE", x, np.array([0, 3, 1, 2], np.int32), name="nchw")
    return b.op("MEAN", x, np.array([2, 3], np.int32), name="mean")


BLOCKS: dict[str, Callable[[Builder, Value], Value]] = {
    "residual": residual,
    "gate": gate,
    "branches": branches,
    "split": split,
    "unequal_split": unequal_split,
    "grouped": grouped,
    "padded": padded,
    "multiplied": multiplied,
    "scaled": scaled,
    "upsampled": upsampled,
    "sideways": sideways,
}


def build(block: str, *, mean: bool = False) -> Model:
    b = Builder(block, seed=4)
    x = b.conv2d(b.input("image", (1, 8, 8, 3)), 16, kernel=3, activation="RELU", name="stem")
    x = BLOCKS[block](b, x)
    if mean:
        x = b.op("MEAN", x, np.array([1, 2], np.int32), name="mean")
    elif len(x.shape) == 4:
        x = b.op("RESHAPE", x, np.array([1, int(np.prod(x.shape[1:]))], np.int32), name="flat")
    return b.build({"y": b.fully_connected(x, 5, name="head")})


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("seed", range(3))
def test_channels_that_nothing_reads_leave_no_trace(block: str, seed: int) -> None:
    """Zero every weight that reads some atoms, remove those, and compare: the outputs must be the same."""
    model = build(block)
    trace = Trace(model.main)
    random = np.random.default_rng(seed)
    free = [group for group in find_groups(trace) if not group.reason]
    assert free
    removed = {int(a) for g in free for a in random.choice(g.atoms, int(random.integers(0, g.width)), replace=False)}
    silent = _silenced(model, trace, removed)
    narrow = replace(silent, subgraphs=(without_channels(Trace(silent.main), removed, kept_indices(trace, removed)),))
    narrow.verify()
    samples = [random.standard_normal((1, 8, 8, 3), np.float32) for _ in range(2)]
    for kernels in ("builtin", "delegate"):
        assert sqnr_db(run(silent, samples, kernels=kernels), run(narrow, samples, kernels=kernels)) > 90
    cost = PlanCost(model, 0, trace, find_groups(trace))
    widths = {g.number: g.width - len(removed & set(g.atoms.tolist())) for g in free}
    assert cost.macs(widths) == narrow.cost().macs


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("seed", range(3))
def test_another_order_computes_the_same(block: str, seed: int) -> None:
    """Let the channels of every group change places at random."""
    model = build(block)
    trace = Trace(model.main)
    random = np.random.default_rng(seed)
    free = [group for group in find_groups(trace) if not group.reason]
    moves = {int(a): int(b) for g in free for a, b in zip(g.atoms, random.permutation(g.atoms), strict=True)}
    moved = model.with_main(with_order(trace, moves))
    moved.verify()
    assert moved.to_bytes() != model.to_bytes()
    samples = [random.standard_normal((1, 8, 8, 3), np.float32) for _ in range(2)]
    for kernels in ("builtin", "delegate"):
        assert sqnr_db(run(model, samples, kernels=kernels), run(moved, samples, kernels=kernels)) > 90


def _silenced(model: Model, trace: Trace, removed: set[int]) -> Model:
    """Return the model with zeros wherever a layer reads a removed channel."""
    from litesmith.optimize._channels_trace import feature_atoms

    tensors = list(model.main.tensors)
    for op in model.main.operators:
        if op.kind in ("CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV"):
            values = np.array(tensors[op.inputs[1]].array())
            values[..., np.isin(feature_atoms(trace, op), sorted(removed))] = 0
            tensors[op.inputs[1]] = tensors[op.inputs[1]].with_array(values)
    return model.with_main(replace(model.main, tensors=tuple(tensors)))


def test_silent_channels_go_first() -> None:
    """Half of the channels have weights and biases of zero: removing half changes nothing at all."""
    model = build("residual")
    trace = Trace(model.main)
    removed = {int(a) for g in find_groups(trace) if not g.reason for a in g.atoms[::2]}
    silent = _silenced(model, trace, removed)
    tensors = list(silent.main.tensors)
    for op in silent.main.operators:
        if op.kind in ("CONV_2D", "DEPTHWISE_CONV_2D"):
            gone = np.isin(trace.atoms[op.outputs[0]], sorted(removed))
            for position, axis in ((1, 3 if op.kind == "DEPTHWISE_CONV_2D" else 0), (2, 0)):
                values = np.moveaxis(np.array(tensors[op.inputs[position]].array()), axis, 0)
                values[gone] = 0
                tensors[op.inputs[position]] = tensors[op.inputs[position]].with_array(np.moveaxis(values, 0, axis))
    dead = silent.with_main(replace(silent.main, tensors=tuple(tensors)))
    random = np.random.default_rng(0)
    samples = [random.standard_normal((1, 8, 8, 3), np.float32) for _ in range(40)]
    for data in (None, samples):
        result = channels(dead, keep=0.5, data=data, repair=False)
        assert result.coverage.macs[1] < 0.5 * result.coverage.macs[0]
        assert sqnr_db(run(dead, samples[:3]), run(result.model, samples[:3])) > 90


def test_repair_brings_the_outputs_back() -> None:
    model = build("residual", mean=True)
    random = np.random.default_rng(0)
    smooth = random.standard_normal((180, 1, 4, 4, 3)).repeat(2, 2).repeat(2, 3)
    samples = list(smooth.astype(np.float32))
    options: dict[str, Any] = {"max_macs": 0.6, "data": samples[:120]}
    repaired, plain = channels(model, **options), channels(model, repair=False, **options)
    assert repaired.coverage.macs[1] <= 0.6 * repaired.coverage.macs[0]
    assert repaired.coverage.repaired > 0
    reference = run(model, samples[120:])
    gain = sqnr_db(reference, run(repaired.model, samples[120:])) - sqnr_db(reference, run(plain.model, samples[120:]))
    assert gain > 3
    assert channels(model, **options).model.to_bytes() == repaired.model.to_bytes()


def test_widths_are_multiples() -> None:
    for multiple in (4, 8, 16):
        for group in channels(build("branches"), keep=0.6, multiple=multiple).coverage.removed:
            assert group.width[1] % multiple == 0


def test_rules() -> None:
    result = channels(build("residual"), keep=0.5, rules=["skip:stem", "0.25:expand"])
    widths = {group.name: group.width for group in result.coverage.groups}
    assert widths["stem"] == (16, 16)
    assert widths["expand"] == (32, 8)


def test_latency_budget_is_measured() -> None:
    result = channels(build("residual"), max_latency_ms=1000.0)
    assert result.coverage.latency_ms is not None
    assert not result.coverage.removed
    with pytest.raises(OptimizeError, match="ms at best, not to 1e-06"):
        channels(build("residual"), max_latency_ms=1e-6)


def test_the_latency_of_the_finished_model_is_held_to_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    def ms(model: Model) -> float:
        return model.cost().macs / 1e5

    monkeypatch.setattr(
        _channels, "_latency_ms", lambda model, _threads: 0.7 * ms(model)
    )  # plans seem faster than they are
    monkeypatch.setattr(_channels, "_latencies", lambda before, after, _threads: (ms(before), ms(after)))
    model = build("residual")
    result = channels(model, max_latency_ms=0.6 * ms(model))

    assert ms(result.model) <= 0.6 * ms(model)
    assert result.coverage.latency_ms == (ms(model), ms(result.model))

    monkeypatch.setattr(_channels, "_latencies", lambda _before, _after, _threads: (9.0, 7.0))
    with pytest.raises(OptimizeError, match="takes 7 ms, measured when it was done, not"):
        channels(model, max_latency_ms=0.6 * ms(model))


def test_a_latency_budget_makes_a_model_faster() -> None:
    model = zoo.build("resnet_8")
    full = _channels._latency_ms(model, 1)
    result = channels(model, max_latency_ms=0.6 * full)

    assert result.coverage.removed
    assert result.coverage.latency_ms is not None
    before, after = result.coverage.latency_ms  # of one interleaved run: a busy machine slows both
    assert after <= 0.6 * full
    assert after < 0.9 * before


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({}, UsageError, "give one of keep"),
        ({"keep": 0.5, "max_macs": 0.5}, UsageError, "not 2 of them"),
        ({"keep": 0.0}, UsageError, "above 0"),
        ({"keep": 1.5}, UsageError, "at most 1"),
        ({"max_macs": -3}, UsageError, "must be positive"),
        ({"max_macs": 0.001}, OptimizeError, "at best"),
        ({"keep": 0.01}, OptimizeError, "would empty the layer"),
        ({"keep": 0.5, "multiple": 0}, UsageError, "multiples of 1 or more"),
        ({"keep": 0.5, "rules": ["skip:nothing"]}, OptimizeError, "matches no layer"),
        ({"keep": 0.5, "rules": ["0.01:expand"]}, OptimizeError, "would empty it"),
        ({"keep": 0.5, "rules": ["skip:CONV_2D"]}, OptimizeError, "no channels can be removed"),
    ],
)
def test_bad_input_is_explained(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        channels(build("residual"), **options)


def test_a_custom_operator_is_left_alone_with_its_channels() -> None:
    b = Builder("custom", seed=0)
    x = b.conv2d(b.input("image", (1, 8, 8, 3)), 16, kernel=3, name="stem")
    x = b.conv2d(x, 32, activation="RELU", name="free")
    x = b.conv2d(x, 16, name="held")
    x = b.op("CUSTOM", x, name="mine", custom_code="Mine", outputs=[((1, 8, 8, 16), "float32")])
    model = b.build({"y": b.conv2d(x, 4, name="last")})
    result = channels(model, keep=0.5, check=False)
    reasons = {group.name: group.reason for group in result.coverage.left}
    assert "Mine: what it does to channels is not known" in reasons["held"]
    assert {group.name for group in result.coverage.removed} == {"stem", "free"}


def test_channels_of_weights_that_another_signature_has_stay(twins: Model) -> None:
    with pytest.raises(OptimizeError, match="#0 CONV_2D: another subgraph, such as that of another signature"):
        channels(twins, keep=0.5)


@pytest.mark.parametrize("count", [1, 3])
def test_few_samples_are_enough_for_a_plan(count: int) -> None:
    samples = list(np.random.default_rng(0).standard_normal((count, 1, 8, 8, 3)).astype(np.float32))
    coverage = channels(build("residual"), max_macs=0.6, data=samples).coverage
    assert coverage.macs[1] <= 0.6 * coverage.macs[0]
    assert any("one sample leaves none to judge a fit by" in note for note in coverage.notes) == (count == 1)


def test_quantized_and_stored_models() -> None:
    model = build("residual")
    random = np.random.default_rng(0)
    samples = [random.standard_normal((1, 8, 8, 3), np.float32) for _ in range(8)]
    with pytest.raises(OptimizeError, match="quantized.*dequantize"):
        channels(quantize(model, data=samples, recover=()).model, keep=0.5)
    half = channels(quantize(model, scheme="float16").model, keep=0.5)
    assert "float32 now" in half.coverage.notes[0]


def test_the_report_round_trips() -> None:
    coverage = channels(build("gate"), keep=0.5, sizes=True).coverage
    assert ChannelsCoverage.from_json(coverage.to_json()) == coverage
    assert coverage.sizes is not None
    assert coverage.sizes[1].raw < coverage.sizes[0].raw


NETS = [name for name in zoo.names() if name not in ("deepspeech", "mobilebert", "yolo_v3", "efficientnet_lite4")]


@pytest.mark.parametrize("name", NETS)
def test_every_cnn_of_the_zoo(name: str) -> None:
    """All but the largest, which take longer and are of the same blocks."""
    result = channels(zoo.build(name), keep=0.5)
    assert result.coverage.macs[1] < 0.4 * result.coverage.macs[0]
    assert all(
        "output of the model" in group.reason or "input of the model" in group.reason for group in result.coverage.left
    )


def test_real_files(assets: Path) -> None:
    for name in (
        "cifar10/resnet20_float", "mlperf_tiny/ic_resnet8_float", "mlperf_tiny/kws_dscnn_float", "mnist/resnet_float",
        "mlperf_tiny/vww_mobilenetv1_float", "mlperf_tiny/ad_autoencoder_float", "vision/face_landmark",
        "vision/hand_landmark_lite", "vision/selfie_segmentation", "vision/deeplabv3_257_mv_gpu",
        "vision/face_detection_full_range_sparse", "vision/mobilenet_v1_0.25_224_float", "vision/mobilenet_v2_float",
    ):  # fmt: skip
        model = Model.load(assets / f"{name}.tflite")
        result = channels(model, keep=0.5)
        assert result.coverage.macs[1] < 0.5 * dequantize(model).cost().macs, name


def test_the_corpus_is_narrowed_or_explained(assets: Path) -> None:
    """Whatever the file: a model that LiteRT runs like the original, or a reason."""
    done = 0
    for path in sorted((assets / "corpus").glob("*.tflite"))[::4]:
        try:
            model = Model.load(path)
            model.verify()
        except ModelError:  # broken files are a matter of reading
            continue
        try:
            channels(model, keep=0.5)
            done += 1
        except OptimizeError:
            pass
    assert done > 0
