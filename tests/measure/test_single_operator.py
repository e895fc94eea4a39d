# SPDX-License-Identifier: Apache-2.0
"""One operator against a kernel of one's own: the real inputs, the right numbers, and the verdict."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from litesmith.errors import SessionError, UsageError
from litesmith.measure import OperatorContest, optimize_op
from litesmith.measure._single_operator import take_out
from litesmith.model import Builder, Model, Quantization
from litesmith.runtime import Session, custom_op, custom_ops, forget_custom_op, replace_op

QUICK = {"runs": 20, "seconds": 0.1}


@pytest.fixture(scope="module")
def model() -> Model:
    b = Builder()
    x = b.conv2d(b.input("x", (1, 8, 8, 3)), 4, kernel=3, activation="RELU")
    x = b.op("MIRROR_PAD", x, np.array([[0, 0], [1, 1], [1, 1], [0, 0]], np.int32), outputs=[((1, 10, 10, 4), "float32")], mode="REFLECT")  # fmt: skip
    return b.build({"y": b.conv2d(x, 4, kernel=3)})


def pad(x: np.ndarray, _widths: np.ndarray, *, out: np.ndarray, options: dict[str, str]) -> None:
    assert options == {"mode": "REFLECT"}
    out[...] = np.pad(x, [(0, 0), (1, 1), (1, 1), (0, 0)], mode="reflect")


def test_the_operator_alone_computes_what_it_computes_in_the_model(model: Model) -> None:
    image = np.random.default_rng(0).standard_normal((1, 8, 8, 3)).astype(np.float32)
    feeds, single = take_out(model, 1, {"x": image})
    single.verify()
    assert [operator.kind for operator in single.main.operators] == ["MIRROR_PAD"]
    rest, last = take_out(model, 2, {"x": image})
    with Session(single) as padded, Session(last) as end, Session(model) as whole:
        between = padded.run(feeds)["out0"]
        assert np.array_equal(between, rest["in0"])
        assert np.array_equal(end.run(rest)["out0"], whole(image)["y"])


def test_a_right_kernel(model: Model) -> None:
    contest = optimize_op(model, 1, pad, **QUICK)
    assert contest.right
    assert contest.operator_kind == "MIRROR_PAD"
    assert contest.inputs == ("float32 1×8×8×4", "[int32 4×2]")
    assert [c.name for c in contest.contestants] == ["built-in", "reference", "yours"], "XNNPACK does not take it"
    assert contest.contestant("yours").largest_difference == 0
    assert contest.verdict.startswith(("pays", "does not pay"))
    assert contest.pays == contest.verdict.startswith("pays")
    assert contest.pieces == (2, 2)
    assert OperatorContest.from_json(contest.to_json()) == contest
    assert len(contest.plot().data) == 3
    assert not custom_ops(), "nothing stays registered"


def test_a_wrong_kernel_is_called_wrong(model: Model) -> None:
    def careless(x: np.ndarray, widths: np.ndarray, *, out: np.ndarray) -> None:
        out[...] = np.pad(x, [(0, 0), (1, 1), (1, 1), (0, 0)], mode="edge")

    contest = optimize_op(model, 1, careless, **QUICK)
    assert not contest.right
    assert not contest.pays
    assert contest.verdict.startswith("wrong: its results are off by")
    assert optimize_op(model, 1, careless, tolerance=10.0, **QUICK).right


def test_an_operator_of_xnnpack_and_its_constants(model: Model) -> None:
    def convolve(
        x: np.ndarray, weight: np.ndarray, bias: np.ndarray, *, out: np.ndarray, options: dict[str, object]
    ) -> None:
        padded = np.pad(x, [(0, 0), (1, 1), (1, 1), (0, 0)])
        windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))
        result = np.einsum("bhwcij,oijc->bhwo", windows, weight) + bias
        out[...] = np.maximum(result, 0) if options["fused_activation_function"] == "RELU" else result

    contest = optimize_op(model, 0, convolve, **QUICK)
    assert contest.right, contest.verdict
    assert [c.name for c in contest.contestants] == ["XNNPACK", "built-in", "reference", "yours"]
    assert contest.pieces == (2, 1), "the first convolution is no longer XNNPACK's"


def test_integers_may_be_one_step_off() -> None:
    source, target = Quantization((0.1,), (3,)), Quantization((0.02,), (-5,))
    b = Builder()
    x = b.input("x", (1, 4, 4, 8), "int8", quantization=source)
    axes = np.array([1, 2], np.int32)
    model = b.build({"y": b.op("MEAN", x, axes, outputs=[((1, 8), "int8")], quantization=target, version=2)})

    def mean(x: np.ndarray, axes: np.ndarray, *, out: np.ndarray) -> None:
        real = (x.astype(np.float64) - source.zero_point[0]).mean(tuple(axes)) * source.scale[0]
        out[...] = np.clip(np.floor(real / target.scale[0]) + target.zero_point[0], -128, 127)  # not rounded

    assert optimize_op(model, 0, mean, **QUICK).right


def test_weights_behind_a_dequantize_are_constants() -> None:
    b = Builder()
    weight = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float16)
    dequantized = b.op("DEQUANTIZE", b.constant(weight), outputs=[((4, 6), "float32")])
    x = b.input("x", (2, 6))
    model = b.build({"y": b.op("FULLY_CONNECTED", x, dequantized, None, outputs=[((2, 4), "float32")])})
    feeds, alone = take_out(model, 1)
    assert list(feeds) == ["in0"]
    (constant,) = (tensor for tensor in alone.main.tensors if tensor.is_constant)
    assert np.array_equal(constant.array(), weight)
    assert optimize_op(model, 1, lambda x, w, bias: x @ w.T, **QUICK).right


def test_a_custom_operator_against_its_registered_kernel() -> None:
    b = Builder()
    model = b.build({"y": b.op("CUSTOM", b.input("x", (5,)), custom_code="Cube", outputs=[((5,), "float32")])})
    with pytest.raises(UsageError, match="'Cube', for which there is no kernel to compare with"):
        optimize_op(model, 0, lambda x: x * x * x)
    custom_op("Cube", lambda x: x**3)
    try:
        contest = optimize_op(model, 0, lambda x: x * x * x, **QUICK)
    finally:
        forget_custom_op("Cube")
    assert [c.name for c in contest.contestants] == ["registered", "yours"]
    assert contest.right


def test_a_kernel_from_a_file_leaves_nothing_registered(model: Model, tmp_path: Path) -> None:
    file = tmp_path / "kernels.py"
    file.write_text(
        "import litesmith, numpy as np\n@litesmith.custom_op('Aside')\n"
        "def pad(x, widths, *, out): out[...] = np.pad(x, [(0, 0), (1, 1), (1, 1), (0, 0)], mode='reflect')\n"
    )
    assert optimize_op(model, 1, f"{file}:pad", **QUICK).right
    assert not custom_ops()


def test_what_makes_no_sense(model: Model, tmp_path: Path) -> None:
    for arguments in ((9, pad), (-1, pad), (1, "nowhere:f"), (1, 3.5), (1, __file__)):
        with pytest.raises(UsageError):
            optimize_op(model, *arguments, **QUICK)
    for options in ({"runs": 0}, {"seconds": 0}, {"inputs": {}}, {"inputs": {"z": np.zeros(1)}}):
        with pytest.raises(UsageError):
            optimize_op(model, 1, pad, **options)  # type: ignore[arg-type]


def test_a_kernel_that_raises_ends_it(model: Model) -> None:
    def broken(x: np.ndarray, widths: np.ndarray, *, out: np.ndarray) -> None:
        raise ZeroDivisionError("oops")

    with pytest.raises(SessionError, match="ZeroDivisionError: oops"):
        optimize_op(model, 1, broken, **QUICK)
    assert not custom_ops()


def test_replaced_operators_keep_their_options(model: Model) -> None:
    replaced = replace_op(model, 1, "MyPad")
    assert replaced.main.operators[1].name == "MyPad"
    replaced.verify()
    custom_op("MyPad", pad)
    try:
        image = np.random.default_rng(0).standard_normal((1, 8, 8, 3)).astype(np.float32)
        with Session(model) as before, Session(Model.from_bytes(replaced.to_bytes())) as after:
            assert np.array_equal(before(image)["y"], after(image)["y"])
    finally:
        forget_custom_op("MyPad")
