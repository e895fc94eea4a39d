# SPDX-License-Identifier: Apache-2.0
"""What maps and what does not: real files whose fate on the hardware is known, and one small model for each rule."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from litesmith.errors import ModelError, UsageError
from litesmith.model import Builder, Model, Quantization, Record, Signature, Tensor, constant
from litesmith.targets import TARGETS, Compatibility, _asked, compat

WHOLE = (
    "3cc6d2ca_mobilenet_v1_0.5_160_quant",
    "41daeb22_mobilenet_v1_0.75_192_quant",
    "78f8b9bb_mobilenet_v1_0.25_224_quant_without_subgraph_metadata",
    "65a88984_mobilenet_quant_v1_224_head_layers",
)
FLOAT = (
    "mlperf_tiny/kws_dscnn_float", "mlperf_tiny/vww_mobilenetv1_float", "vision/mobilenet_v2_float",
    "vision/mobilenet_v1_0.25_224_float", "cifar10/resnet20_float",
)  # fmt: skip
COMPILED = {
    "3cc6d2ca_mobilenet_v1_0.5_160_quant": "8d410b63_mobilenet_v1_0.5_160_quant_cocompiled_with_mobilenet_v1_0.25_128_quant_edgetpu",
    "350af47f_deeplabv3_mnv2_pascal_quant": "4d899a80_deeplabv3_mnv2_pascal_quant_edgetpu",
    "0470d2a7_deeplabv3_mnv2_dm05_pascal_quant": "4ccdb19b_deeplabv3_mnv2_dm05_pascal_quant_edgetpu",
}
"""Files, and what Google's edgetpu_compiler made of them."""


def file(assets: Path, name: str) -> Path:
    return assets / "corpus" / f"{name}.tflite"


@pytest.mark.parametrize("name", WHOLE)
def test_quantized_files_of_coral_map_whole(name: str, assets: Path) -> None:
    found = compat(file(assets, name), target="edgetpu")

    assert found.maps, found.problems
    assert found.mapped == len(found.operators)
    assert found.partitions == 1
    assert found.first_break is None


@pytest.mark.parametrize(("source", "compiled"), COMPILED.items())
def test_the_verdict_agrees_with_the_compiler(source: str, compiled: str, assets: Path) -> None:
    made = Model.load(file(assets, compiled))
    whole = {op.name for op in made.main.operators} == {"edgetpu-custom-op"}

    assert compat(file(assets, source), target="edgetpu").maps == whole


@pytest.mark.parametrize("name", FLOAT)
@pytest.mark.parametrize("target", ["edgetpu", "hexagon"])
def test_float_files_fail_for_their_type(name: str, target: str, assets: Path) -> None:
    found = compat(assets / f"{name}.tflite", target=target)

    assert not found.maps
    assert found.mapped == 0
    assert found.first_break == 0
    assert "computes in 8 bits (float32)" in str(found.problems[0].reason)
    assert "litesmith quantize" in found.problems[0].reason.remedy
    assert "--io int8" in found.problems[0].reason.remedy


def test_files_of_tflite_micro_map_onto_it(assets: Path) -> None:
    with (assets / "corpus" / "index.csv").open() as opened:
        files = [row["file"] for row in csv.DictReader(opened) if row["source"].startswith("tensorflow/tflite-micro:")]
    wrong, checked = [], 0
    for name in files:
        try:
            found = compat(assets / "corpus" / name, target="tflite-micro")
        except ModelError:
            continue  # two files that LiteRT refuses as well
        checked += 1
        wrong += [] if found.maps else [(name, found.problems)]

    assert checked > 70
    assert not wrong


def test_models_that_litert_tests_its_qualcomm_plugin_with_map(assets: Path) -> None:
    tested = ("add", "log_softmax", "reduceany", "relu1", "sign", "topk", "l2_norm", "atan2")
    files = [
        p for p in (assets / "corpus").glob("*.tflite") if p.stem.split("_", 1)[1] in {f"simple_{t}_op" for t in tested}
    ]
    found = {path.stem.split("_", 1)[1]: compat(path, target="qnn").maps for path in files}

    assert len(found) >= 5
    assert found.pop("simple_atan2_op") is False, "the plugin has none"
    assert all(found.values()), found


def test_every_file_gets_a_verdict_on_every_target(assets: Path) -> None:
    checked = 0
    for path in sorted((assets / "corpus").glob("*.tflite"))[::3]:
        for target in TARGETS:
            try:
                found = compat(path, target=target)
            except ModelError:
                continue
            checked += 1
            assert found.maps == (bool(found.operators) and found.mapped == len(found.operators))
            assert all(operator.fits == (not operator.reasons) for operator in found.operators)
            assert Compatibility.from_json(found.to_json()) == found

    assert checked > 500


def int8(shape: tuple[int, ...], name: str = "x", dtype: str = "int8") -> Tensor:
    return Tensor(name, shape, dtype, quantization=Quantization((0.1,), (0,)))


def one(
    kind: str, inputs: list[Tensor], outputs: list[Tensor], options: Record | None = None, version: int = 1
) -> Model:
    """A model of one operator: the inputs without values are the model's."""
    from litesmith.model import Operator, Subgraph

    tensors = (*inputs, *outputs)
    given = tuple(i for i, t in enumerate(inputs) if not t.is_constant)
    made = tuple(range(len(inputs), len(tensors)))
    op = Operator(kind, tuple(range(len(inputs))), made, options, version=version)
    return Model((Subgraph(tensors=tensors, operators=(op,), inputs=given, outputs=made),))


def pool(activation: str = "NONE", shape: tuple[int, ...] = (1, 8, 8, 4)) -> Model:
    options = Record(
        "Pool2DOptions", padding="VALID", stride_w=2, stride_h=2, filter_width=2, filter_height=2,
        fused_activation_function=activation,
    )  # fmt: skip
    return one("MAX_POOL_2D", [int8(shape)], [int8((shape[0], 4, 4, 4), "y")], options, version=2)


def softmax(*shape: int) -> Model:
    out = Tensor("y", shape, "int8", quantization=Quantization((1 / 256,), (-128,)))
    return one("SOFTMAX", [int8(shape)], [out], Record("SoftmaxOptions", beta=1.0), version=2)


def mean(axes: list[int], shape: tuple[int, ...], made: tuple[int, ...]) -> Model:
    return one(
        "MEAN",
        [int8(shape), constant("axes", np.array(axes, np.int32))],
        [int8(made, "y")],
        Record("ReducerOptions"),
        2,
    )


def concatenation(values: int) -> Model:
    fixed = int8((1, 4), "c").with_array(np.full((1, 4), values, np.int8))
    return one("CONCATENATION", [int8((1, 4)), fixed], [int8((1, 8), "y")], Record("ConcatenationOptions", axis=1), 2)


def strided(step: int, **options: int) -> Model:
    cut = [constant(n, np.array(v, np.int32)) for n, v in (("b", [0, 0, 0]), ("e", [1, 4, 4]), ("s", [1, step, 1]))]
    return one(
        "STRIDED_SLICE",
        [int8((1, 4, 4)), *cut],
        [int8((1, 4 // step, 4), "y")],
        Record("StridedSliceOptions", **options),
        2,
    )


def pad(before: int) -> Model:
    amounts = constant("p", np.array([[before, 0], [1, 1], [0, 0]], np.int32))
    return one("PAD", [int8((1, 4, 4)), amounts], [int8((1 + before, 6, 4), "y")], Record("PadOptions"), version=2)


def transpose_conv(*, stored: bool) -> Model:
    weights = int8((4, 2, 2, 4), "w")
    return one(
        "TRANSPOSE_CONV",
        [
            constant("shape", np.array([1, 8, 8, 4], np.int32)),
            weights.with_array(np.ones(weights.shape, np.int8)) if stored else weights,
            int8((1, 4, 4, 4)),
        ],
        [int8((1, 8, 8, 4), "y")],
        Record("TransposeConvOptions", padding="VALID", stride_w=2, stride_h=2),
        version=2,
    )


def softplus_like(kind: str, dtype: str = "float32") -> Model:
    return one(kind, [Tensor("x", (1, 4), dtype)], [Tensor("y", (1, 4), dtype)])


RULES: dict[str, tuple[str, Model, Model, str]] = {
    "fused activation": ("edgetpu", pool(), pool("RELU"), "no activation may be fused"),
    "batch": ("edgetpu", pool(), pool(shape=(2, 8, 8, 4)), "only the three innermost dimensions"),
    "softmax size": ("edgetpu", softmax(1, 16000), softmax(1, 16001), "at most 16,000 elements"),
    "softmax shape": ("edgetpu", softmax(1, 10), softmax(1, 5, 10), "must be one-dimensional"),
    "mean over batch": ("edgetpu", mean([1], (1, 8, 4), (1, 4)), mean([0], (1, 8, 4), (8, 4)), "along the batch"),
    "mean over channels": ("edgetpu", mean([2], (1, 8, 4), (1, 8)), mean([2], (1, 8, 5), (1, 8)), "multiple of 4"),
    "zeros only": ("edgetpu", concatenation(0), concatenation(1), "only zeros"),
    "strides": ("edgetpu", strided(1), strided(2), "all strides must be 1"),
    "batch padding": ("edgetpu", pad(0), pad(1), "the batch cannot be padded"),
    "weights behind the shape": ("edgetpu", transpose_conv(stored=True), transpose_conv(stored=False), "must be constants of the file"),
    "8 bits": ("hexagon", pool(), softplus_like("LOGISTIC"), "computes in 8 bits"),
    "versions": ("hexagon", pool(), one("NEG", [int8((1, 4))], [int8((1, 4), "y")], version=2), "version 1 of this operator"),
    "rank": ("nnapi", softplus_like("RELU"), one("RELU", [Tensor("x", (1, 1, 1, 1, 2))], [Tensor("y", (1, 1, 1, 1, 2))]), "at most 4"),
    "gpu slices": ("gpu", strided(1), one("SLICE", [Tensor("x", (8,)), constant("b", np.zeros(1, np.int32)), constant("n", np.full(1, 4, np.int32))], [Tensor("y", (4,))]), "3 or 4 dimensions"),
    "gpu types": ("gpu", softplus_like("RELU"), one("ADD", [Tensor("x", (4,), "int64"), Tensor("z", (4,), "int64")], [Tensor("y", (4,), "int64")], Record("AddOptions")), "no GPU kernels"),
    "qnn types": ("qnn", one("FLOOR_MOD", [Tensor("x", (4,), "int32"), Tensor("z", (4,), "int32")], [Tensor("y", (4,), "int32")]), one("FLOOR_MOD", [Tensor("x", (4,)), Tensor("z", (4,))], [Tensor("y", (4,))]), "int32 only"),
    "mediatek int64": ("mediatek", softplus_like("RELU"), one("ADD", [Tensor("x", (4,), "int64"), Tensor("z", (4,), "int64")], [Tensor("y", (4,), "int64")], Record("AddOptions")), "int64 only for constants"),
    "micro uint8": ("tflite-micro", pool(), one("MAX_POOL_2D", [int8((1, 8, 8, 4), dtype="uint8")], [int8((1, 4, 4, 4), "y", "uint8")], pool().main.operators[0].options), "unsigned 8-bit"),
    "xnnpack softmax": ("xnnpack", softplus_like("LOGISTIC"), softmax(1, 10), "no 8-bit kernel"),
}  # fmt: skip


@pytest.mark.parametrize("name", RULES)
def test_a_rule_lets_one_model_pass_and_holds_another_back(name: str) -> None:
    target, good, bad, says = RULES[name]

    fits, breaks = compat(good, target=target), compat(bad, target=target)

    assert fits.maps, fits.problems
    assert not breaks.maps
    assert any(says in problem.reason.says for problem in breaks.problems), breaks.problems


def test_dynamic_range_weights_are_told(assets: Path) -> None:
    found = compat(assets / "corpus" / "195e33ef_model_ToyCar_quant.tflite", target="tflite-micro")

    assert not found.maps
    assert "float activations with integer weights" in found.problems[0].reason.says


def test_the_edge_tpu_takes_one_piece_only() -> None:
    b = Builder()
    x = b.input("x", (1, 8, 8, 4), dtype="int8", quantization=Quantization((0.1,), (0,)))
    for kind in ("RELU", "ABS", "RELU"):
        x = b.op(kind, x, outputs=[((1, 8, 8, 4), "int8")])
    model = b.build({"y": x})
    tensors = tuple(
        Tensor(t.name, t.shape, t.dtype, quantization=Quantization((0.1,), (0,))) for t in model.main.tensors
    )
    model = model.with_main(type(model.main)(**{**vars(model.main), "tensors": tensors}))

    tpu, phone = compat(model, target="edgetpu"), compat(model, target="qnn")

    assert [o.mapped for o in tpu.operators] == [True, False, False]
    assert [o.fits for o in tpu.operators] == [True, False, True]
    assert tpu.first_break == 1
    assert (tpu.partitions, phone.partitions) == (1, 1)
    assert phone.maps


def test_the_parameter_cache_is_estimated(assets: Path) -> None:
    small = compat(assets / "mlperf_tiny" / "kws_dscnn_int8.tflite", target="edgetpu")
    real = compat(assets / "vision" / "mobilenet_v2_float.tflite", target="edgetpu")
    b = Builder()
    large = compat(b.build({"y": b.fully_connected(b.input("x", (1, 4000)), 3000)}), target="edgetpu")

    assert any("they fit into the 8.0 MB on the chip" in note for note in small.notes)
    assert any("about 3.5 MB of parameters in 8 bits: they fit" in note for note in real.notes)
    assert any("about 12.0 MB of parameters in 8 bits do not fit into the 8.0 MB" in note for note in large.notes)


def test_nnapi_is_told_to_be_deprecated_with_the_way_out() -> None:
    notes = " ".join(compat(softplus_like("RELU"), target="nnapi").notes)

    assert "deprecated" in notes
    assert "--target gpu" in notes


def test_xnnpack_is_asked_itself(assets: Path) -> None:
    from litesmith.runtime import partitions

    path = assets / "mlperf_tiny" / "kws_dscnn_int8.tflite"
    left = {i for piece in partitions(Model.load(path)) if piece.delegate is None for i in piece.operators}

    found = compat(path, target="xnnpack")

    assert {o.index for o in found.operators if not o.mapped} == left
    assert any("LiteRT compiled it" in note for note in found.notes)


def test_a_gpu_checker_that_likes_everything_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    model = softplus_like("RELU")
    monkeypatch.setattr(_asked, "_gpu_checker_works", lambda: False)
    unasked = compat(model, target="gpu")
    monkeypatch.setattr(_asked, "_gpu_checker_works", lambda: True)
    monkeypatch.setattr(_asked, "_ask_gpu_checker", lambda _: {0})
    refused = compat(model, target="gpu")

    assert unasked.maps
    assert any("calls every model compatible" in note for note in unasked.notes)
    assert not refused.maps


def test_bad_input() -> None:
    with pytest.raises(UsageError, match="there is no target 'npu'; there are: edgetpu"):
        compat(softplus_like("RELU"), target="npu")
    with pytest.raises(ModelError):
        compat("none.tflite", target="gpu")


def two_entries(first: str, second: str) -> Model:
    """A model of two signatures, each with a subgraph of its own."""
    signatures = tuple(Signature(k, (("x", 0),), (("y", 1),), i) for i, k in enumerate(("first", "second")))
    return Model((softplus_like(first).main, softplus_like(second).main), signatures)


@pytest.mark.parametrize("target", ["nnapi", "gpu", "xnnpack"])
def test_every_signature_has_to_map(target: str) -> None:
    fits, breaks = (compat(two_entries("RELU", kind), target=target) for kind in ("LOGISTIC", "ZEROS_LIKE"))
    assert fits.maps, fits.problems
    assert [o.subgraph for o in fits.operators] == [0, 1]
    assert fits.partitions == 2
    assert not breaks.maps
    assert (breaks.first_break, breaks.problems[0].operators) == (1, (1,))
    assert breaks.by_kind() == {"RELU": (1, 1), "ZEROS_LIKE": (0, 1)}


def test_bodies_that_no_signature_enters_are_said_to_be_left_out() -> None:
    model = two_entries("RELU", "ZEROS_LIKE")
    found = compat(Model(model.subgraphs, model.signatures[:1]), target="nnapi")
    assert found.maps
    assert any("no signature enters" in note for note in found.notes)
