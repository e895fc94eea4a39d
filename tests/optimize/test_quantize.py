# SPDX-License-Identifier: Apache-2.0
"""Quantized models load, run and stay close to float; what was done is said; nothing fails in silence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.optimize.conftest import KERNELS, run, sqnr_db

import litesmith
from litesmith import zoo
from litesmith.errors import OptimizeError, UsageError
from litesmith.model import Builder, Model, Signature
from litesmith.model._flatbuffer import Writer
from litesmith.optimize import Coverage, Rule, WeightOverride, calibrate, dequantize, quantize
from litesmith.optimize._rules import RULES, KernelRule
from litesmith.optimize._weight_ranges import weight_scales
from litesmith.runtime import Session, random_inputs

Array = np.ndarray[Any, Any]
LEAST_DB = {
    "int8": 25, "int16x8": 35, "int8w4": 6, "dynamic": 30, "dynamic4": 6, "float16": 60, "weights8": 35, "weights4": 6,
    "weights4-block32": 6, "float": 100,
}  # fmt: skip


@pytest.mark.parametrize("scheme", sorted(LEAST_DB))
def test_every_scheme_runs_and_is_close(convnet: Model, images: list[Array], scheme: str) -> None:
    quantized = quantize(convnet, scheme=scheme, data=images)

    reference = run(convnet, images)
    for kernels in KERNELS:
        assert sqnr_db(reference, run(quantized.model, images, kernels=kernels)) > LEAST_DB[scheme]
    quantized.model.verify()
    assert quantize(convnet, scheme=scheme, data=images).model.to_bytes() == quantized.model.to_bytes()


@pytest.mark.parametrize(
    ("scheme", "share"), [("int8", 0.255), ("dynamic", 0.255), ("weights8", 0.255), ("int16x8", 0.26), ("float16", 0.5)]
)
def test_constants_shrink(scheme: str, share: float) -> None:
    b = Builder("large")
    x = b.input("x", (1, 256))
    model = b.build({"y": b.fully_connected(b.fully_connected(x, 256, activation="RELU"), 256)})

    before, after = quantize(model, scheme=scheme).coverage.size_bytes

    assert after <= share * before


@pytest.mark.parametrize(
    ("name", "scheme", "share"),
    [
        ("mobilenet_v1", "int8", 0.26),
        ("mobilenet_v1", "dynamic", 0.26),
        ("mobilenet_v2", "int8", 0.269),
        ("mobilenet_v2", "dynamic", 0.264),
        ("mobilenet_v2", "int16x8", 0.274),
    ],
)
def test_files_shrink_to_constants_and_scales(name: str, scheme: str, share: float) -> None:
    model = zoo.build(name)
    quantized = quantize(model, scheme=scheme, check=False)
    parameters = [t.quantization for t in quantized.model.main.tensors if t.quantization is not None]
    scales = sum(4 * len(q.scale) for q in parameters)
    zero_points = sum(8 * len(points) for points in {q.zero_point for q in parameters})
    size = len(quantized.model.to_bytes())

    assert size <= share * len(model.to_bytes())
    assert size <= 1.01 * (quantized.coverage.size_bytes[1] + scales + zero_points)


@pytest.mark.parametrize("scheme", ["int8", "int16x8", "weights8"])
def test_shared_vectors_change_no_output(convnet: Model, scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = quantize(convnet, scheme=scheme, check=False).model
    shared = model.to_bytes()

    def apart(writer: Writer, *vector: Any, share: Callable[..., None] = Writer._share) -> None:
        writer._shared.clear()
        share(writer, *vector)

    monkeypatch.setattr(Writer, "_share", apart)
    separate = model.to_bytes()

    assert len(shared) < 0.99 * len(separate)
    for kernels in KERNELS:
        outputs = []
        for content in (shared, separate):
            with Session(content, kernels=kernels) as session:
                outputs.append({name: y.tobytes() for name, y in session.run(random_inputs(session, 1)).items()})
        assert outputs[0] == outputs[1]


def test_tensors_keep_their_index(convnet: Model, images: list[Array]) -> None:
    graph = quantize(convnet, data=images).model.main

    for old, new in zip(convnet.main.tensors, graph.tensors, strict=False):
        assert old.shape == new.shape
        assert new.name in (old.name, f"{old.name}/int8")


def test_inputs_and_outputs_keep_name_and_type(convnet: Model, images: list[Array]) -> None:
    model = quantize(convnet, data=images, head="same").model

    assert [model.main.tensors[i].name for i in model.main.inputs] == ["image"]
    assert [model.main.tensors[i].name for i in model.main.outputs] == ["softmax"]
    assert model.signatures[0].outputs == (("probabilities", model.main.outputs[0]),)
    assert {model.main.tensors[i].dtype for i in (*model.main.inputs, *model.main.outputs)} == {"float32"}


@pytest.mark.parametrize(("io", "scheme"), [("int8", "int8"), ("int16", "int16x8"), ("int8", "int16x8")])
def test_integer_inputs_and_outputs(convnet: Model, images: list[Array], io: str, scheme: str) -> None:
    model = quantize(convnet, scheme=scheme, data=images, io=io).model
    entry, result = model.main.tensors[model.main.inputs[0]], model.main.tensors[model.main.outputs[0]]
    assert (entry.dtype, result.dtype) == (io, io)
    assert entry.quantization is not None
    assert result.quantization is not None

    scale, zero = entry.quantization.scale[0], entry.quantization.zero_point[0]
    limits = np.iinfo(io)
    fed = [np.clip(np.rint(x / scale) + zero, limits.min, limits.max).astype(io) for x in images]
    got = [[(y.astype(np.float64) - result.quantization.zero_point[0]) * result.quantization.scale[0] for y in out]
           for out in run(model, fed)]  # fmt: skip

    assert sqnr_db(run(convnet, images), got) > 20
    if io == scheme:
        assert not {op.kind for op in model.main.operators} & {"QUANTIZE", "DEQUANTIZE"}


def test_the_head_stays_float_and_it_is_said(convnet: Model, images: list[Array]) -> None:
    coverage = quantize(convnet, data=images).coverage

    assert [(op.kind, op.scheme) for op in coverage.left_float] == [
        ("MEAN", "float"),
        ("FULLY_CONNECTED", "dynamic"),
        ("SOFTMAX", "float"),
    ]
    assert "do not tie" in coverage.left_float[0].reason
    assert quantize(convnet, data=images, head="same").coverage.left_float == ()
    assert quantize(convnet, data=images, strict=True).coverage.left_float == ()


def test_rules_by_kind_index_and_name_and_the_last_wins(convnet: Model, images: list[Array]) -> None:
    rules: list[Rule | str] = [
        Rule("CONV_2D", "float"),
        "int16x8:project",
        "int8:#0",
        "int8:SOFTMAX",
        "int8:FULLY_CONNECTED",
    ]

    quantized = quantize(convnet, data=images, rules=rules)

    schemes = {op.name: op.scheme for op in quantized.coverage.operators}
    assert schemes["stem"] == "int8"
    assert schemes["project"] == "int16x8"
    assert schemes["softmax"] == "int8"
    assert quantized.coverage.conversions == {"QUANTIZE": 1, "QUANTIZE (rescale)": 2, "DEQUANTIZE": 1}
    for kernels in KERNELS:
        assert sqnr_db(run(convnet, images), run(quantized.model, images, kernels=kernels)) > 20


def test_conversions_are_never_doubled(images: list[Array]) -> None:
    b = Builder("fan-out")
    x = b.input("x", (1, 16, 16, 3))
    h = b.conv2d(x, 4, kernel=3, name="a")
    floats = [b.op("SIN", h), b.op("COS", h)]
    ints = [b.conv2d(f, 4, name="b") for f in (floats[0], floats[0])]
    model = b.build({"y": b.op("ADD", b.op("ADD", *ints), floats[1])})

    coverage = quantize(model, data=images).coverage

    assert coverage.conversions == {"QUANTIZE": 3, "DEQUANTIZE": 2}
    assert {op.kind for op in coverage.left_float} == {"SIN", "COS"}


def test_a_rule_that_matches_nothing(convnet: Model, images: list[Array]) -> None:
    with pytest.raises(OptimizeError, match="'float:TANH' matches no operator"):
        quantize(convnet, data=images, rules=["float:TANH"])

    coverage = quantize(convnet, data=images, rules=["float:TANH"], allow_unused_rules=True).coverage
    assert coverage.unused_rules == ("float:TANH",)


def test_strict_names_what_stays_float(images: list[Array]) -> None:
    b = Builder("sine")
    model = b.build({"y": b.op("SIN", b.conv2d(b.input("x", (1, 16, 16, 3)), 4))})

    with pytest.raises(OptimizeError, match="#1 SIN 'sin': LiteRT has no integer kernel"):
        quantize(model, data=images, strict=True)


def test_quantized_models_are_refused_and_dequantized(convnet: Model, images: list[Array]) -> None:
    for scheme in ("int8", "int16x8", "dynamic", "float16", "weights4", "int8w4"):
        quantized = quantize(convnet, scheme=scheme, data=images, min_weight_elements=0).model
        with pytest.raises(OptimizeError, match="quantized already"):
            quantize(quantized, data=images)

        back = dequantize(quantized)

        assert {t.dtype for t in back.main.tensors if t.is_constant} <= {"float32", "int32", "float16"}
        assert not {op.kind for op in back.main.operators} & {"QUANTIZE", "DEQUANTIZE"}
        assert sqnr_db(run(quantized, images), run(back, images)) > 20
        assert back.signatures[0].outputs[0][0] == "probabilities"
        again = quantize(back, data=images).model
        assert sqnr_db(run(back, images), run(again, images)) > 20


def test_without_data_the_ranges_are_said_to_be_guessed(convnet: Model, images: list[Array]) -> None:
    quantized = quantize(convnet)

    assert quantized.coverage.ranges == "data-free"
    assert any("no data was given" in note for note in quantized.coverage.notes)
    assert sqnr_db(run(convnet, images), run(quantized.model, images)) > 8


def test_partitions_are_predicted_and_found(convnet: Model, images: list[Array]) -> None:
    for scheme in ("int8", "dynamic", "float16", "weights8"):
        coverage = quantize(convnet, scheme=scheme, data=images, min_weight_elements=0).coverage
        assert (coverage.predicted_partitions, coverage.actual_partitions) == (1, 1)
    coverage = quantize(convnet, scheme="int16x8", data=images).coverage
    assert (coverage.predicted_partitions, coverage.actual_partitions) == (0, 0)


def test_coverage_is_a_result(convnet: Model, images: list[Array]) -> None:
    coverage = quantize(convnet, data=images, rules=["float:MEAN"]).coverage

    assert Coverage.from_json(coverage.to_json()) == coverage
    assert "left float" in coverage.table()
    assert sum(coverage.bytes_by_type.values()) == coverage.size_bytes[1]


def test_shared_weights_and_biases_are_stored_for_each_scale(make_samples: Callable[..., list[Any]]) -> None:
    b = Builder("shared")
    x = b.input("x", (1, 8))
    weight = b.constant(b.random.standard_normal((8, 8), np.float32), "w")
    bias = b.constant(b.random.standard_normal(8, np.float32), "b")
    first = b.op("FULLY_CONNECTED", x, weight, bias, fused_activation_function="RELU")
    model = b.build({"y": b.op("FULLY_CONNECTED", first, weight, bias)})
    samples = make_samples(model)

    quantized = quantize(model, data=samples, head="same")

    layers = [op for op in quantized.model.main.operators if op.kind == "FULLY_CONNECTED"]
    assert layers[0].inputs[1] == layers[1].inputs[1]
    assert layers[0].inputs[2] != layers[1].inputs[2]
    assert sqnr_db(run(model, samples), run(quantized.model, samples)) > 25


def _twisted(kind: str) -> Model:
    b = Builder(kind, seed=2)
    x = b.input("x", (1, 6, 6, 4))
    weight = b.random.standard_normal((5, 3, 3, 4)).astype(np.float32)
    bias = b.random.standard_normal(5).astype(np.float32)
    if kind == "dead channels":
        weight[1:3] = 0
    elif kind == "all zero":
        weight[:], bias[:] = 0, 0
    elif kind == "huge bias":
        weight[0] *= 1e-9
        bias[0] = 1e5
    elif kind == "vanishing":
        weight *= 1e-25
        bias *= 1e-25
    elif kind == "not a number":
        weight[0, 0, 0, 0] = np.nan
        bias[1] = np.nan
    elif kind == "huge":
        weight *= 1e30
    h = b.conv2d(x, 5, kernel=3, weight=weight, bias=bias, activation="RELU", name="conv")
    h = b.op("ADD", h, b.conv2d(x, 5, name="other"))
    return b.build({"y": b.op("MUL", h, h), "z": b.op("MEAN", h, np.array([1, 2], np.int32))})


def test_relaxed_changes_no_number_and_says_that_less_precision_will_do() -> None:
    model = litesmith.samples.model()
    relaxed = quantize(model, scheme="relaxed")

    assert [t.dtype for t in relaxed.model.main.tensors] == [t.dtype for t in model.main.tensors]
    assert all(
        np.array_equal(new.array(), old.array())
        for new, old in zip(relaxed.model.main.tensors, model.main.tensors, strict=True)
        if old.is_constant
    )
    assert {m.name: bytes(m.buffer.data) for m in relaxed.model.metadata}["reduced_precision_support"] == b"fp16accfp32"
    assert relaxed.coverage.quantized == relaxed.coverage.left_float == ()
    assert "less precision" in relaxed.coverage.table()
    again = quantize(relaxed.model, scheme="relaxed").model
    assert len(again.metadata) == len(relaxed.model.metadata)


def test_without_data_the_partitions_are_still_counted() -> None:
    assert quantize(litesmith.samples.model()).coverage.actual_partitions == 1


@pytest.mark.parametrize("scheme", ["int8", "int16x8", "dynamic", "float16", "weights4"])
@pytest.mark.parametrize("kind", ["dead channels", "all zero", "huge bias", "vanishing", "not a number", "huge"])
def test_degenerate_values_never_break_the_file(kind: str, scheme: str, make_samples: Callable[..., list[Any]]) -> None:
    model = _twisted(kind)
    samples = make_samples(model)

    quantized = quantize(model, scheme=scheme, data=samples)

    for kernels in KERNELS:
        outputs = run(quantized.model, samples, kernels=kernels)
        if kind in ("dead channels", "all zero", "huge bias") and scheme != "weights4":
            assert sqnr_db(run(model, samples), outputs) > 20


def test_signatures_share_the_quantized_weights(make_samples: Callable[..., list[Any]]) -> None:
    b = Builder("two")
    x = b.input("x", (1, 8))
    model = b.build({"y": b.fully_connected(b.fully_connected(x, 64, activation="RELU"), 64)})
    other = replace(model.signatures[0], key="second", subgraph_index=1)
    model = replace(model, subgraphs=(model.main, model.main), signatures=(*model.signatures, other))

    quantized = quantize(model, data=make_samples(model), recover=())

    first, second = quantized.model.subgraphs
    assert first == second
    assert first.tensors[2].buffer is second.tensors[2].buffer
    assert isinstance(quantized.model.signatures[1], Signature)


def test_overrides_are_taken_as_they_are(convnet: Model, images: list[Array]) -> None:
    source = convnet.main.operators[0].inputs[1]
    values = convnet.main.tensors[source].array()
    integers = np.ones(values.shape, np.int8)
    override = WeightOverride(integers, weight_scales(values, 0, 8))

    graph = quantize(convnet, data=images, weights={(0, source): override}).model.main

    assert np.array_equal(graph.tensors[source].array(), integers)


@pytest.mark.parametrize("rows", [64, 32])
def test_tied_embeddings_have_the_scales_that_each_reader_takes(rows: int) -> None:
    b = Builder("tied", seed=3)
    table = b.constant(b.random.standard_normal((rows, 32), np.float32), "table")
    hidden = b.op("GATHER", table, b.input("ids", (1,), "int32"), name="hidden")
    model = b.build({"y": b.op("FULLY_CONNECTED", hidden, table, None, name="logits")})
    samples = [np.array([number], np.int32) for number in range(16)]

    quantized = quantize(model, scheme="dynamic", data=samples, recover=("gptq",))

    assert [(op.kind, op.scheme) for op in quantized.coverage.quantized] == [
        ("GATHER", "dynamic"),
        ("FULLY_CONNECTED", "dynamic"),
    ]
    assert sqnr_db(run(model, samples), run(quantized.model, samples)) > 30


def test_a_bias_that_a_float_layer_reads_too_stays_float(make_samples: Callable[..., list[Any]]) -> None:
    b = Builder("shared", seed=1)
    bias = b.constant(b.random.standard_normal(32, np.float32), "bias")
    x = b.input("x", (1, 32))
    first, second = (b.random.standard_normal((32, 32), np.float32) for _ in range(2))
    y = b.op("FULLY_CONNECTED", x, first, bias, name="static")
    model = b.build({"y": b.op("FULLY_CONNECTED", y, second, bias, name="hybrid")})
    samples = make_samples(model)

    for rule, kept in (("dynamic:hybrid", 2), ("float16:hybrid", 2), ("weights8:hybrid", 2), ("float:hybrid", 1)):
        quantized = quantize(model, data=samples, rules=[rule], recover=())
        assert len(quantized.coverage.quantized) == kept
        assert sqnr_db(run(model, samples), run(quantized.model, samples)) > 25


def test_schemes_of_weights_say_what_stays_float() -> None:
    model = litesmith.samples.model()
    weights = {
        number: model.main.tensors[op.inputs[1]].elements
        for number, op in enumerate(model.main.operators)
        if op.kind in ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED")
    }
    small = {number for number, elements in weights.items() if elements < 1024}
    assert small

    coverage = quantize(model, scheme="dynamic").coverage
    assert {op.index for op in coverage.left_float} == small
    assert {op.index for op in coverage.quantized} == weights.keys() - small
    assert {op.scheme for op in coverage.without_weights} == {"float"}
    assert "without weights" in coverage.table()
    with pytest.raises(OptimizeError, match="would stay float.*weights are fewer than the 1024"):
        quantize(model, scheme="dynamic", strict=True)
    for scheme in ("weights8", "weights4", "dynamic"):
        strict = quantize(model, scheme=scheme, strict=True, min_weight_elements=0).coverage
        assert {op.index for op in strict.quantized} == weights.keys()


def test_weights_that_another_operator_reads_as_float_are_not_stored_twice() -> None:
    b = Builder("tied", seed=3)
    table = b.constant(b.random.standard_normal((64, 32), np.float32), "table")
    scaled = b.op("MUL", table, np.float32(2.0).reshape(1, 1), name="scaled")
    hidden = b.op("GATHER", scaled, b.input("ids", (1,), "int32"), name="hidden")
    model = b.build({"y": b.op("FULLY_CONNECTED", hidden, table, None, name="logits")})

    small, hybrid = (quantize(model, scheme=scheme).coverage for scheme in ("weights8", "dynamic"))

    assert "another operator reads 'table' as float" in small.left_float[0].reason
    assert small.size_bytes[1] == small.size_bytes[0]
    assert [op.name for op in hybrid.quantized] == ["logits"]
    assert hybrid.left_float == ()


def test_float16_says_what_it_cannot_hold() -> None:
    b = Builder("large")
    x = b.fully_connected(b.input("x", (1, 4)), 4, weight=np.full((4, 4), 1e6, np.float32), bias=False, name="large")
    x = b.fully_connected(b.op("RELU", x, name="relu"), 4, name="last")

    coverage = quantize(b.build({"y": x}), scheme="float16").coverage

    assert [op.kind for op in coverage.without_weights] == ["RELU"]
    assert [op.name for op in coverage.quantized] == ["last"]
    assert "reaches 1e+06, beyond the 65504 of float16" in coverage.left_float[0].reason


def test_lstm_runs_in_integers() -> None:
    b = Builder("lstm", seed=1)
    x = b.input("x", (1, 12, 6))
    weights = [b.random.standard_normal((8, n)).astype(np.float32) * 0.4 for n in (6, 6, 6, 6, 8, 8, 8, 8)]
    biases = [b.random.standard_normal(8).astype(np.float32) * 0.1 for _ in range(4)]
    states = [b.input(f"state{i}", (1, 8)) for i in range(2)]
    inputs = [x, *weights, None, None, None, *biases, None, None, *states, None, None, None, None]
    out = b.op("UNIDIRECTIONAL_SEQUENCE_LSTM", *inputs, fused_activation_function="TANH")
    built = b.build({"y": out})
    tensors = [replace(t, is_variable=t.name.startswith("state")) for t in built.main.tensors]
    graph = replace(built.main, tensors=tuple(tensors), inputs=built.main.inputs[:1])
    signature = replace(built.signatures[0], inputs=built.signatures[0].inputs[:1])
    model = replace(built.with_main(graph), signatures=(signature,))
    random = np.random.default_rng(0)
    samples = [random.standard_normal((1, 12, 6)).astype(np.float32) for _ in range(8)]

    quantized = quantize(model, data=samples)

    assert quantized.coverage.left_float == ()
    assert sqnr_db(run(model, samples), run(quantized.model, samples)) > 22
    cell = calibrate(model, samples).find(model.main.operators[0].inputs[19])
    assert cell is not None
    assert cell.high > 0.1
    wide = quantize(model, data=samples, scheme="int16x8").coverage
    assert [(op.scheme, "no int16x8 kernel" in op.reason) for op in wide.left_float] == [("dynamic", True)]
    stored = quantize(model, scheme="weights8").coverage
    assert ["in the schemes dynamic and float16 only" in op.reason for op in stored.left_float] == [True]


def test_what_litert_refuses_becomes_float_again(images: list[Array], monkeypatch: pytest.MonkeyPatch) -> None:
    b = Builder("refused")
    h = b.conv2d(b.input("x", (1, 16, 16, 3)), 4, kernel=3)
    model = b.build({"y": b.conv2d(b.op("SIN", h), 4)})
    monkeypatch.setitem(RULES, "SIN", KernelRule())  # a wrong rule: LiteRT has no int8 SIN

    coverage = quantize(model, data=images).coverage

    assert [op.kind for op in coverage.left_float] == ["SIN"]
    assert "refuses it" in coverage.left_float[0].reason


def test_usage_errors(convnet: Model) -> None:
    with pytest.raises(UsageError, match="no scheme 'int9'"):
        quantize(convnet, scheme="int9")
    with pytest.raises(UsageError, match="cannot be 'uint8'"):
        quantize(convnet, io="uint8")
    for scheme in ("dynamic", "float16", "relaxed"):
        with pytest.raises(UsageError, match=f"cannot be int8 in the scheme {scheme}.*--io float"):
            quantize(convnet, scheme=scheme, io="int8")
    with pytest.raises(UsageError, match="the head cannot be"):
        quantize(convnet, head="best")
    with pytest.raises(UsageError, match="no recovery pass 'luck'"):
        quantize(convnet, recover=["luck"])
    with pytest.raises(UsageError, match="not a rule"):
        quantize(convnet, rules=["SOFTMAX"])


def test_layers_without_bias(make_samples: Callable[..., list[Any]]) -> None:
    b = Builder("plain")
    x = b.input("x", (1, 6, 6, 4))
    weight = b.random.standard_normal((4, 2, 2, 4)).astype(np.float32)
    size = np.array([1, 12, 12, 4], np.int32)
    h = b.op("TRANSPOSE_CONV", size, weight, x, padding="SAME", stride_h=2, stride_w=2)
    model = b.build({"y": b.fully_connected(h, 3, bias=False)})
    samples = make_samples(model)

    for scheme in ("int8", "int16x8"):
        quantized = quantize(model, scheme=scheme, data=samples, head="same", recover=())
        assert not any(t.is_quantized and t.dtype in ("int32", "int64") for t in quantized.model.main.tensors)
        for kernels in KERNELS:
            assert sqnr_db(run(model, samples), run(quantized.model, samples, kernels=kernels)) > 20


def test_zero_points_are_stored_once() -> None:
    b = Builder(seed=1)
    x = b.input("x", (1, 4, 4, 64))
    for number in range(4):
        x = b.conv2d(x, 64, name=f"c{number}")
    data = quantize(b.build({"y": x}), head="same").model.to_bytes()

    assert data.count(b"\0" * 64 * 8) == 1
    assert Model.from_bytes(data).to_bytes() == data
