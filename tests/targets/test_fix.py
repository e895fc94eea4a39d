# SPDX-License-Identifier: Apache-2.0
"""Safe rewrites: they help the target, and LiteRT gives the same outputs before and after."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from litesmith.errors import RecipeError
from litesmith.model import Builder, Model, Operator, Quantization, Record, Subgraph, Tensor, constant
from litesmith.optimize import Recipe
from litesmith.optimize._equal import difference
from litesmith.runtime import Session, inspect
from litesmith.targets import _fix, compat, fix
from litesmith.targets._rewrites import substitute
from litesmith.targets._substitutes import SUBSTITUTIONS

REAL = {
    "mlperf_tiny/kws_dscnn_int8": ("edgetpu", ("a fixed batch",)),
    "corpus/597a384c_vww_96_int8": ("edgetpu", ("a fixed batch",)),
    "corpus/861f3de4_model_ToyCar_quant_fullint": ("edgetpu", ("a fixed batch", "integer inputs and outputs")),
    "corpus/01613be3_mbnet128_0.25_q": ("edgetpu", ("a fixed batch", "shapes as constants")),
    "corpus/261e2d25_mbnet96_0.25_f": ("gpu", ("a fixed batch", "shapes as constants")),
    "vision/mobilenet_v1_0.25_224_float": ("gpu", ("SQUEEZE as RESHAPE",)),
}


@pytest.mark.parametrize("name", REAL)
def test_real_files_map_after_the_rewrites(name: str, assets: Path) -> None:
    target, applied = REAL[name]
    path = assets / f"{name}.tflite"

    fixed = fix(path, target=target)

    assert not compat(path, target=target).maps
    assert fixed.found.applied == applied
    assert fixed.found.refused == ()
    assert fixed.found.maps, fixed.found.problems
    fixed.model.verify()
    assert difference(Model.load(path), Model.from_bytes(fixed.model.to_bytes())) <= 1e-4


def test_integer_inputs_are_the_ones_the_model_made_itself(assets: Path) -> None:
    path = assets / "corpus" / "861f3de4_model_ToyCar_quant_fullint.tflite"
    fixed = fix(path, target="edgetpu").model
    graph = fixed.main
    (took,), (gives,) = graph.inputs, graph.outputs

    assert (graph.tensors[took].dtype, graph.tensors[gives].dtype) == ("int8", "int8")
    assert {op.kind for op in graph.operators} == {"FULLY_CONNECTED"}
    scale = graph.tensors[took].quantization
    assert scale is not None
    x = np.random.default_rng(0).integers(-128, 128, (1, 640)).astype(np.int8)
    real = ((x.astype(np.float32) - scale.zero_point[0]) * scale.scale[0]).astype(np.float32)
    with Session(path) as old, Session(fixed) as new:
        expected = next(iter(old.run({next(iter(old.inputs)): real}).values()))
        found = next(iter(new.run({next(iter(new.inputs)): x}).values()))
        made = graph.tensors[gives].quantization
        assert made is not None
        np.testing.assert_allclose(
            (found - float(made.zero_point[0])) * made.scale[0], expected, atol=made.scale[0] / 100
        )


def test_integers_at_the_border_stay_what_they_are(assets: Path) -> None:
    fixed = fix(assets / "corpus" / "2335faf0_keyword_scrambled.tflite", target="edgetpu")

    assert fixed.model.main.tensors[fixed.model.main.inputs[0]].dtype == "int16"
    assert (fixed.found.applied, fixed.found.refused) == ((), ())


def single(kind: str, shape: tuple[int, ...] = (1, 4, 4, 8), made: tuple[int, ...] | None = None, options: Record | None = None, more: tuple[Tensor, ...] = ()) -> Model:  # fmt: skip
    """A float model of one operator."""
    tensors = (Tensor("x", shape), *more, Tensor("y", made or shape))
    op = Operator(kind, tuple(range(1 + len(more))), (1 + len(more),), options)
    return Model((Subgraph(tensors=tensors, operators=(op,), inputs=(0,), outputs=(1 + len(more),)),))


def _pool(kind: str) -> Model:
    options = Record(
        "Pool2DOptions", padding="VALID", stride_w=2, stride_h=2, filter_width=2, filter_height=2,
        fused_activation_function="RELU6",
    )  # fmt: skip
    q = Quantization((0.07,), (-3,))
    tensors = (Tensor("x", (1, 4, 4, 8), "int8", quantization=q), Tensor("y", (1, 2, 2, 8), "int8", quantization=q))
    return Model(
        (
            Subgraph(
                tensors=tensors, operators=(Operator(kind, (0,), (1,), options, version=2),), inputs=(0,), outputs=(1,)
            ),
        )
    )


def _sliced() -> Model:
    cut = tuple(constant(n, np.array(v, np.int32)) for n, v in (("b", [0, -1, 1]), ("e", [1, 0, 4]), ("s", [1, 1, 1])))
    options = Record("StridedSliceOptions", shrink_axis_mask=0b010, begin_mask=0b001)
    return single("STRIDED_SLICE", (1, 4, 6), (1, 3), options, cut)


def slicing(*cuts: tuple[list[int], list[int], list[int]], shape: tuple[int, ...] = (1, 7, 8, 3), dtype: str = "float32", **masks: int) -> Model:  # fmt: skip
    """Slices, one after another: begin, end and step of each."""
    b = Builder()
    x = b.input("x", shape, dtype)
    for bounds in cuts:
        x = b.op("STRIDED_SLICE", x, *(np.array(v, np.int32) for v in bounds), **masks)
    return b.build({"y": x})


COLUMNS = [0, 0, 0, 0], [1, 7, 8, 3], [1, 1, 2, 1]
ROWS = [0, 0, 0, 0], [1, 7, 4, 3], [1, 3, 1, 1]

CASES = {
    "SQUEEZE": ("hexagon", single("SQUEEZE", (1, 1, 8), (8,), Record("SqueezeOptions", squeeze_dims=(0, 1)))),
    "EXPAND_DIMS": ("qnn", single("EXPAND_DIMS", (4, 8), (1, 4, 8), more=(constant("a", np.array(0, np.int32)),))),
    "SQUARE": ("nnapi", single("SQUARE")),
    "HARD_SWISH": ("edgetpu", single("HARD_SWISH")),
    "LEAKY_RELU": ("edgetpu", single("LEAKY_RELU", options=Record("LeakyReluOptions", alpha=0.2))),
    "RELU6": ("mediatek", single("RELU6")),
    "RELU_N1_TO_1": ("tflite-micro", single("RELU_N1_TO_1")),
    "PADV2": ("edgetpu", single("PADV2", (1, 4), (1, 6), more=(constant("p", np.array([[0, 0], [1, 1]], np.int32)), constant("v", np.array(0, np.float32))))),
    "MAX_POOL_2D": ("edgetpu", _pool("MAX_POOL_2D")),
    "AVERAGE_POOL_2D": ("hexagon", _pool("AVERAGE_POOL_2D")),
    "STRIDED_SLICE": ("gpu", _sliced()),
}  # fmt: skip


def test_every_substitution_has_a_case() -> None:
    assert set(CASES) == {substitution.kind for substitution in SUBSTITUTIONS}
    assert len(SUBSTITUTIONS) == len(CASES) + 1, "STRIDED_SLICE has two"


@pytest.mark.parametrize("target", ["xnnpack", "edgetpu"])
def test_every_second_pixel_is_picked_by_a_convolution(target: str) -> None:
    model = slicing(COLUMNS)

    fixed = fix(model, target=target)

    assert fixed.found.applied == ("STRIDED_SLICE as DEPTHWISE_CONV_2D",)
    assert [op.kind for op in fixed.model.main.operators] == ["DEPTHWISE_CONV_2D"]
    assert difference(model, fixed.model) == 0


def test_slices_of_slices_become_one_convolution() -> None:
    model = slicing(COLUMNS, ROWS)

    fixed = fix(model, target="xnnpack")

    assert fixed.found.applied == ("slices of slices as one", "STRIDED_SLICE as DEPTHWISE_CONV_2D")
    assert fixed.found.maps
    (picked,) = fixed.model.main.operators
    assert picked.options is not None
    assert (picked.options.stride_h, picked.options.stride_w) == (3, 2)
    assert difference(model, fixed.model) == 0


def test_slices_that_others_read_too_are_not_merged() -> None:
    b = Builder()
    once = b.op("STRIDED_SLICE", b.input("x", (1, 7, 8, 3)), *(np.array(v, np.int32) for v in COLUMNS))
    both = b.build({"once": once, "twice": b.op("STRIDED_SLICE", once, *(np.array(v, np.int32) for v in ROWS))})

    fixed = fix(both, target="xnnpack")

    assert fixed.found.applied == ("STRIDED_SLICE as DEPTHWISE_CONV_2D",)
    assert [op.kind for op in fixed.model.main.operators] == ["DEPTHWISE_CONV_2D", "DEPTHWISE_CONV_2D"]
    assert difference(both, fixed.model) == 0


NOT_PICKED = {
    "another first row": slicing(([0, 1, 0, 0], [1, 7, 8, 3], [1, 2, 1, 1])),
    "fewer rows": slicing(([0, 0, 0, 0], [1, 3, 8, 3], [1, 2, 1, 1])),
    "channels": slicing(([0, 0, 0, 0], [1, 7, 8, 3], [1, 1, 1, 2])),
    "three axes": slicing(([0, 0, 0], [7, 8, 3], [2, 1, 1]), shape=(7, 8, 3)),
    "integers": slicing(COLUMNS, dtype="int32"),
}


@pytest.mark.parametrize("name", NOT_PICKED)
def test_slices_that_no_convolution_can_be_stay(name: str) -> None:
    fixed = fix(NOT_PICKED[name], target="xnnpack")

    assert fixed.found.applied == ()
    assert fixed.model == NOT_PICKED[name]


def test_bounds_that_are_masked_count_as_none() -> None:
    model = slicing(([0, 0, 3, 0], [1, 7, 8, 3], [1, 1, 2, 1]), begin_mask=0b100)

    fixed = fix(model, target="xnnpack")

    assert [op.kind for op in fixed.model.main.operators] == ["DEPTHWISE_CONV_2D"]
    assert difference(model, fixed.model) == 0


def test_rewrites_are_a_step_of_recipes() -> None:
    recipe = Recipe.parse("fix(xnnpack) → dynamic")

    assert Recipe.from_toml(recipe.to_toml()) == recipe
    assert [op.kind for op in recipe.apply(slicing(COLUMNS)).main.operators] == ["DEPTHWISE_CONV_2D"]
    with pytest.raises(RecipeError, match="put 'fix' first"):
        Recipe.parse("dynamic → fix(xnnpack)").check_order()
    with pytest.raises(RecipeError, match="has no option 'toaster'"):
        Recipe.parse("fix(toaster)")


def test_shortcuts_of_a_real_residual_network_run_on_xnnpack(assets: Path) -> None:
    path = assets / "cifar10" / "resnet20_float.tflite"

    fixed = fix(path, target="xnnpack")

    assert not compat(path, target="xnnpack").maps
    assert fixed.found.maps
    assert difference(Model.load(path), fixed.model) <= 1e-5


@pytest.mark.parametrize("kind", CASES)
def test_a_substitute_gives_the_same_outputs(kind: str) -> None:
    target, model = CASES[kind]
    says = next(substitution.says for substitution in SUBSTITUTIONS if substitution.kind == kind)

    fixed = fix(model, target=target)

    assert fixed.found.applied == (says,), fixed.found.refused
    assert difference(model, fixed.model) <= 1e-6
    assert not any(f"no {kind} " in problem.reason.says for problem in fixed.found.problems)


def test_what_cannot_be_replaced_stays() -> None:
    steep = single("LEAKY_RELU", options=Record("LeakyReluOptions", alpha=2.0))
    filled = single("PADV2", (1, 4), (1, 6), more=(constant("p", np.array([[0, 0], [1, 1]], np.int32)), constant("v", np.array(7, np.float32))))  # fmt: skip

    for model in (steep, filled):
        fixed = fix(model, target="edgetpu")
        assert fixed.found.applied == ()
        assert fixed.model == model


def test_a_rewrite_that_changes_an_output_is_left_out_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(model: Model) -> Model:
        op = model.main.operators[0]
        return model.with_main(replace(model.main, operators=(replace(op, kind="ABS", options=None),)))

    model = single("SQUARE")
    monkeypatch.setattr(_fix, "_rewrites", lambda _: iter([("a bad idea", wrong)]))

    fixed = fix(model, target="nnapi")

    assert fixed.model == model
    assert fixed.found.applied == ()
    assert "a bad idea: the outputs would change by" in fixed.found.refused[0]


def test_an_open_length_is_not_guessed() -> None:
    b = Builder()
    x = b.input("x", (1, 10, 4))
    model = b.build({"y": b.op("RELU", x)})
    tensors = tuple(replace(t, shape_signature=(1, -1, 4)) for t in model.main.tensors)
    model = model.with_main(replace(model.main, tensors=tensors))

    fixed = fix(model, target="edgetpu")

    assert "a fixed batch" not in fixed.found.applied


def test_float_models_are_prepared_for_quantization() -> None:
    import litesmith

    b = Builder()
    x = b.conv2d(b.input("x", (1, 8, 8, 3)), 4, kernel=3, name="c")
    model = b.build({"y": b.op("HARD_SWISH", x)})

    fixed = fix(model, target="edgetpu").model
    data = [{"x": np.random.default_rng(i).standard_normal((1, 8, 8, 3)).astype(np.float32)} for i in range(4)]
    small = litesmith.quantize(fixed, scheme="int8", io="int8", data=data).model

    assert compat(small, target="edgetpu").maps


def test_outputs_of_every_signature_are_compared() -> None:
    def two(kind: str) -> Model:
        first, second = Builder(), Builder()
        built = first.build({"y": first.op("NEG", first.input("x", (4,)))}, signature="first")
        other = second.build({"y": second.op(kind, second.input("z", (4,)))}, signature="second")
        entries = (*built.signatures, replace(other.signatures[0], subgraph_index=1))
        return Model((built.main, other.main), signatures=entries)

    assert difference(two("NEG"), two("NEG")) == 0
    assert difference(two("NEG"), two("ABS")) > 0.1


def test_what_was_rewritten_is_no_longer_the_file(tmp_path: Path) -> None:
    single("SQUARE").save(tmp_path / "square.tflite")
    fixed = fix(tmp_path / "square.tflite", target="edgetpu")
    assert fixed.found.applied
    assert fixed.found.model == str(tmp_path / "square.tflite")
    assert fixed.model.source is None
    assert inspect(fixed.model, delegates=False).size_bytes == len(fixed.model.to_bytes())


def test_a_pad_without_its_value_stays() -> None:
    model = single("PADV2", (1, 4), (1, 6), more=(constant("pads", np.array([[0, 0], [1, 1]], np.int32)),))
    padding = next(s for s in SUBSTITUTIONS if s.kind == "PADV2")
    assert len(model.main.operators[0].inputs) == 2
    assert substitute(model, padding, [0]) is None
