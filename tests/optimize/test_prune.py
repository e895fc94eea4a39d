# SPDX-License-Identifier: Apache-2.0
"""Pruning: as many zeros as asked for, in the pattern asked for, in files that LiteRT loads; and errors that say why."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.optimize.conftest import are_shared, run, sqnr_db

import litesmith
from litesmith import Dataset
from litesmith.errors import DataError, OptimizeError, UsageError
from litesmith.model import Builder, Model
from litesmith.optimize import PruneCoverage, dequantize, prune, quantize, store_sparse
from litesmith.optimize._layer_fit import fit, with_variance
from litesmith.optimize._layer_moments import Moments
from litesmith.optimize._layer_pairs import input_moments
from litesmith.optimize._layer_rules import weight_layers
from litesmith.optimize._output_error import OutputError
from litesmith.optimize._prune_allocate import Curve, allocate_by_curves, allocate_by_weights
from litesmith.optimize._prune_arm import expected_on_arm
from litesmith.optimize._prune_coupling import fit_coupled, row_coupling
from litesmith.optimize._prune_patterns import keep_mask
from litesmith.optimize._prune_reorder import block_order
from litesmith.optimize._prune_second_order import _by_alternation, prune_rows
from litesmith.optimize._prune_sensitivity import row_importance, with_tensors
from litesmith.optimize._segments import Walk

Array = np.ndarray[Any, Any]


@pytest.fixture
def net() -> Model:
    """Wide enough to prune: stem, two 1x1 layers around a depthwise one with a residual, a 3x3 layer, a head."""
    b = Builder("net", seed=5)
    x = b.conv2d(b.input("image", (1, 12, 12, 3)), 16, kernel=3, activation="RELU", name="stem")
    y = b.conv2d(x, 48, activation="RELU6", name="expand")
    y = b.depthwise_conv2d(y, activation="RELU6", name="dw")
    y = b.conv2d(y, 16, name="project")
    x = b.op("ADD", x, y, name="residual")
    x = b.conv2d(x, 32, kernel=3, stride=2, activation="RELU", name="down")
    x = b.op("MEAN", x, np.array([1, 2], np.int32), name="pool")
    x = b.fully_connected(x, 32, activation="RELU", name="hidden")
    return b.build({"logits": b.fully_connected(x, 10, name="logits")})


@pytest.fixture
def pictures() -> list[Array]:
    random = np.random.default_rng(0)
    smooth = random.standard_normal((60, 4, 4, 3)).repeat(3, 1).repeat(3, 2)
    return list((smooth + 0.2 * random.standard_normal((60, 12, 12, 3)))[:, None].astype(np.float32))


def weights(model: Model, name: str) -> Array:
    graph = dequantize(model).main
    op = next(op for op in graph.operators if graph.tensors[op.outputs[0]].name == name)
    return np.asarray(graph.tensors[op.inputs[1]].array())


@pytest.mark.parametrize("store", ["dense", "sparse", "sparse16", "sparse32"])
@pytest.mark.parametrize("pattern", ["unstructured", "4x1"])
@pytest.mark.parametrize("sparsity", [0.5, 0.8])
def test_the_zeros_are_there_and_litert_loads_the_file(
    net: Model, pictures: list[Array], pattern: str, sparsity: float, store: str
) -> None:
    result = prune(net, sparsity=sparsity, pattern=pattern, store=store)
    assert sparsity <= result.coverage.reached < sparsity + 0.02
    again = Model.from_bytes(result.model.to_bytes())
    dense = prune(net, sparsity=sparsity, pattern=pattern).model
    assert sqnr_db(run(dense, pictures[:3]), run(again, pictures[:3])) > (
        60 if store in ("sparse", "sparse16") else 100
    )
    for layer in result.coverage.pruned:
        values = weights(again, layer.name)
        assert layer.zeros == values.size - np.count_nonzero(values)
        if pattern == "4x1":
            blocks = values.reshape(len(values) // 4, 4, -1) != 0
            assert (blocks.any(axis=1) == blocks.all(axis=1)).all()


def test_first_last_and_depthwise_layers_stay_dense_unless_a_rule_says_so(net: Model) -> None:
    coverage = prune(net, sparsity=0.8).coverage
    assert {layer.name for layer in coverage.left_dense} == {"stem", "dw", "logits"}
    assert all(layer.zeros == 0 for layer in coverage.left_dense)
    rules = ["include:stem", "0.5:DEPTHWISE_CONV_2D", "skip:#1"]
    other = prune(net, sparsity=0.8, rules=rules).coverage
    by_name = {layer.name: layer for layer in other.layers}
    assert by_name["expand"].zeros == 0
    assert by_name["expand"].reason == "the rule skip:#1"
    assert by_name["stem"].zeros > 0
    assert by_name["dw"].zeros == by_name["dw"].weights // 2


def test_two_in_four(net: Model, pictures: list[Array]) -> None:
    for data in (None, pictures):
        result = prune(net, sparsity=0.5, pattern="2:4", data=data)
        for layer in result.coverage.pruned:
            groups = weights(result.model, layer.name).reshape(-1, 4)
            assert (np.count_nonzero(groups, axis=1) <= 2).all()


def test_data_beat_magnitude(net: Model, pictures: list[Array]) -> None:
    reference = run(net, pictures[50:])
    for pattern in ("unstructured", "4x1"):
        plain = prune(net, sparsity=0.6, pattern=pattern)
        fitted = prune(net, sparsity=0.6, pattern=pattern, data=pictures[:50])
        assert abs(fitted.coverage.reached - 0.6) < 0.02
        assert fitted.coverage.method == "second-order"
        gain = sqnr_db(reference, run(fitted.model, pictures[50:])) - sqnr_db(
            reference, run(plain.model, pictures[50:])
        )
        assert gain > 3


def test_depthwise_layers_are_fitted_too(net: Model, pictures: list[Array]) -> None:
    reference = run(net, pictures[50:])
    rules = ["skip:CONV_2D", "skip:FULLY_CONNECTED", "0.4:DEPTHWISE_CONV_2D"]
    plain, fitted = (prune(net, rules=rules, data=data).model for data in (None, pictures[:50]))
    assert sqnr_db(reference, run(fitted, pictures[50:])) > sqnr_db(reference, run(plain, pictures[50:])) + 3


def test_the_same_seed_gives_the_same_file(net: Model, pictures: list[Array]) -> None:
    first, second = (prune(net, sparsity=0.7, data=pictures, seed=3).model.to_bytes() for _ in range(2))
    assert first == second


def test_80_percent_zeros_take_less_than_a_quarter_of_the_bytes() -> None:
    b = Builder("wide", seed=1)
    x = b.conv2d(b.input("image", (1, 8, 8, 3)), 128, kernel=3, name="stem")
    x = b.conv2d(x, 128, name="middle")
    model = b.build({"y": b.conv2d(x, 8, name="last")})
    sizes, types = {}, {}
    for pattern in ("4x1", "unstructured"):
        for store in ("sparse", "sparse32"):
            result = prune(model, sparsity=0.8, pattern=pattern, store=store)
            before, after = result.coverage.pruned[0].stored_bytes
            sizes[pattern, store] = after / before
            types[pattern, store] = {t.dtype for t in result.model.main.tensors if t.sparsity is not None}
    assert sizes["4x1", "sparse"] <= 0.22
    assert sizes["unstructured", "sparse"] <= 0.17
    assert 0.25 < sizes["unstructured", "sparse32"] <= 0.27  # an index a value: a quarter and the ends of the rows
    assert types["4x1", "sparse"] == {"float32"}  # what the delegate reads
    assert types["unstructured", "sparse"] == {"float16"}


def test_weights_that_16_bits_cannot_hold_keep_32(net: Model) -> None:
    tensors = [
        t.with_array(t.array() * np.float32(1e-7)) if t.buffer is not None and t.dtype == "float32" else t
        for t in net.main.tensors
    ]
    tiny = net.with_main(replace(net.main, tensors=tuple(tensors)))
    stored = prune(tiny, sparsity=0.8, store="sparse").model
    assert {t.dtype for t in stored.main.tensors if t.sparsity is not None} == {"float32"}


def test_a_pruned_file_can_be_pruned_again(net: Model, pictures: list[Array]) -> None:
    once = prune(net, sparsity=0.5, store="sparse").model
    assert any(op.kind == "DENSIFY" for op in once.main.operators)
    twice = prune(Model.from_bytes(once.to_bytes()), sparsity=0.7, store="sparse")
    assert twice.coverage.reached >= 0.7
    run(twice.model, pictures[:1])


def test_int8_weights_are_pruned_by_magnitude(net: Model, pictures: list[Array]) -> None:
    small = quantize(net, data=pictures, recover=()).model
    result = prune(small, sparsity=0.6, pattern="4x1", store="sparse")
    assert result.coverage.reached >= 0.6
    run(result.model, pictures[:1])
    with pytest.raises(OptimizeError, match="second-order pruning needs float weights.*dequantize"):
        prune(small, sparsity=0.6, data=pictures)


def test_weights_with_another_zero_point_are_refused(net: Model, pictures: list[Array]) -> None:
    small = quantize(net, data=pictures, recover=()).model
    index = next(op.inputs[1] for op in small.main.operators if op.kind == "CONV_2D" and op.inputs[1] > 2)
    tensors = list(small.main.tensors)
    quantization = tensors[index].quantization
    assert quantization is not None
    tensors[index] = replace(
        tensors[index], quantization=replace(quantization, zero_point=(3,) * len(quantization.scale))
    )
    odd = small.with_main(replace(small.main, tensors=tuple(tensors)))
    with pytest.raises(OptimizeError, match="zero point that is not 0.*dequantize"):
        prune(odd, sparsity=0.5, rules=["include:CONV_2D"])


def test_stored_half_precision_says_how(net: Model) -> None:
    half = quantize(net, scheme="float16").model
    with pytest.raises(OptimizeError, match="behind DEQUANTIZE.*dequantize"):
        prune(half, sparsity=0.5)
    assert prune(dequantize(half), sparsity=0.5).coverage.reached >= 0.5


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"sparsity": 1.0}, UsageError, "below 1, not 1.0"),
        ({"sparsity": -0.1}, UsageError, "at least 0"),
        ({"sparsity": float("nan")}, UsageError, "at least 0"),
        ({"sparsity": 0.8, "pattern": "2:4"}, UsageError, "always has a sparsity of 0.5"),
        ({"pattern": "8x8"}, UsageError, "no pattern '8x8'"),
        ({"method": "luck"}, UsageError, "no method 'luck'"),
        ({"method": "second-order"}, UsageError, "needs samples"),
        ({"budget": "all"}, UsageError, "no budget 'all'"),
        ({"store": "zip"}, UsageError, "cannot be stored 'zip'"),
        ({"rules": ["skip:nosuchlayer"]}, OptimizeError, "'skip:nosuchlayer' matches no layer.*#0 CONV_2D 'stem'"),
        ({"rules": ["nonsense"]}, UsageError, "is not a rule"),
        ({"rules": ["maybe:CONV_2D"]}, UsageError, "skip, include or a number"),
        ({"rules": ["1.5:CONV_2D"]}, UsageError, "not 1.5"),
        ({"pattern": "4x1", "rules": ["include:logits"]}, OptimizeError, "#8 FULLY_CONNECTED 'logits' has 10 output"),
        ({"data": []}, DataError, "no samples"),
        ({"data": [], "pattern": "4x1", "reorder": True}, DataError, "no samples"),
        ({"reorder": True}, UsageError, "only blocks of 4x1 gain by another order"),
    ],
)
def test_bad_input_is_explained(net: Model, options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        prune(net, **options)


def test_rows_that_are_alike_become_neighbours() -> None:
    alike = np.kron(np.random.default_rng(0).random((4, 40)) < 0.5, np.ones((4, 1)))  # four of each kind
    order = block_order(np.random.default_rng(1).permutation(alike) + 0.01, 0.5)
    assert sorted(order) == list(range(16))
    kinds = (np.random.default_rng(1).permutation(alike))[order].reshape(4, 4, 40)
    assert (kinds == kinds[:, :1]).all()


def test_another_order_of_channels_costs_less(net: Model, pictures: list[Array]) -> None:
    expected = run(net, pictures)
    plain, ordered = (prune(net, sparsity=0.5, pattern="4x1", reorder=reorder) for reorder in (False, True))
    assert sqnr_db(expected, run(ordered.model, pictures)) > sqnr_db(expected, run(plain.model, pictures)) + 0.5
    assert "in another order" in ordered.coverage.notes[0]
    assert ordered.coverage.reached == plain.coverage.reached


def test_another_order_on_data_is_always_the_same_one(net: Model, pictures: list[Array]) -> None:
    once, again = (prune(net, sparsity=0.5, pattern="4x1", data=pictures, reorder=True) for _ in range(2))
    assert once.model.to_bytes() == again.model.to_bytes()
    assert once.coverage.method == "second-order"
    assert "in another order" in once.coverage.notes[0]


def test_channels_of_integers_stay_where_they_are(net: Model, pictures: list[Array]) -> None:
    small = quantize(net, scheme="int8", data=pictures).model
    notes = prune(small, sparsity=0.5, pattern="4x1", reorder=True).coverage.notes
    assert notes == ("no channels changed places: none may, or none would gain by it",)


@pytest.mark.parametrize("store", ["dense", "sparse"])
def test_signatures_go_on_to_share_their_weights(twins: Model, store: str) -> None:
    once = prune(twins, sparsity=0.8, store=store)
    again = prune(Model.from_bytes(once.model.to_bytes()), sparsity=0.9, store=store)
    for result in (once, again):
        zeros = [layer.zeros for layer in result.coverage.layers]
        assert zeros[:4] == zeros[4:]
        assert are_shared(result.model)
    assert len(once.model.to_bytes()) <= len(twins.to_bytes())


def test_weights_of_several_signatures_are_not_fitted_to_one(twins: Model) -> None:
    samples = list(np.random.default_rng(0).standard_normal((10, 1, 8, 8, 3)).astype(np.float32))
    for pattern, reorder in (("unstructured", False), ("4x1", True)):
        result = prune(twins, sparsity=0.8, data=samples, pattern=pattern, reorder=reorder)
        assert are_shared(result.model)
        assert any("2 layers, first #1 CONV_2D 'one', are pruned by magnitude" in n for n in result.coverage.notes)


@pytest.mark.parametrize("count", [1, 2, 4])
def test_few_samples_give_a_true_error(net: Model, pictures: list[Array], count: int) -> None:
    coverage = prune(net, sparsity=0.8, data=pictures[:count]).coverage
    errors = {layer.name: layer.output_error for layer in coverage.pruned}
    assert [name for name, error in errors.items() if error is None] == (["hidden"] if count == 1 else [])
    assert all(error is None or error > 0.001 for error in errors.values())
    assert any("one sample leaves none to judge a fit by" in note for note in coverage.notes) == (count == 1)


def test_two_samples_are_enough_to_fit(net: Model, pictures: list[Array]) -> None:
    result = prune(net, sparsity=0.5, budget="layer", data=pictures[:2])
    kept = weights(result.model, "project")
    assert not np.isin(kept[kept != 0], weights(net, "project")).all()


def test_a_rule_with_a_number_is_checked_where_nothing_else_is_pruned(net: Model, pictures: list[Array]) -> None:
    for data in (None, pictures[:4]):
        with pytest.raises(OptimizeError, match="#8 FULLY_CONNECTED 'logits' has 10 output"):
            prune(net, sparsity=0, pattern="4x1", rules=["0.5:#8"], data=data)
        coverage = prune(net, sparsity=0, pattern="4x1", rules=["0.5:#1", "include:#8"], data=data).coverage
        assert [layer.name for layer in coverage.layers if layer.zeros] == ["expand"]


def test_a_model_without_layers_to_prune() -> None:
    b = Builder("tiny")
    x = b.input("x", (1, 4))
    with pytest.raises(OptimizeError, match="no layer with constant weights"):
        prune(b.build({"y": b.op("ADD", x, x)}), sparsity=0.5)


def test_the_report_round_trips(net: Model) -> None:
    coverage = prune(net, sparsity=0.8, store="sparse", sizes=True, speed=True).coverage
    assert PruneCoverage.from_json(coverage.to_json()) == coverage
    assert coverage.sizes is not None
    assert coverage.sizes[1].raw < coverage.sizes[0].raw
    assert coverage.speed is not None
    assert "none on x86" in coverage.speed.expectation
    assert "on Arm none: XNNPACK's sparse kernels want" in coverage.speed.expectation
    assert min(coverage.speed.stock_ms) > 0


def test_the_report_says_what_storing_did_to_the_values(net: Model, pictures: list[Array]) -> None:
    def notes(model: Model, store: str) -> str:
        return " ".join(prune(model, sparsity=0.9, store=store).coverage.notes)

    for store in ("sparse", "sparse16"):
        assert "rounded to float16, those of 'expand/weight' and" in notes(net, store)
    for store in ("dense", "sparse32"):
        assert "float16" not in notes(net, store)
    integers = quantize(net, data=pictures, head="same").model
    assert "zeros stay in the file in 'hidden/weight': LiteRT 2.3.0 does not run FULLY_CONNECTED" in notes(
        integers, "sparse"
    )
    assert "zeros stay" not in notes(integers, "dense")


def mobile(size: int, *, extra: str = "") -> Model:
    b = Builder("mobile", seed=4)
    x = b.conv2d(b.input("image", (1, size, size, 3)), 16, kernel=3, stride=2, activation="RELU6", name="stem")
    y = b.conv2d(x, 48, activation="RELU6", name="expand")
    y = b.depthwise_conv2d(y, activation="RELU6", name="dw")
    x = b.op("ADD", x, b.conv2d(y, 16, name="project"), name="sum")
    if extra:
        x = b.op(extra, x, name="extra", filter_width=2, filter_height=2, stride_w=2, stride_h=2, padding="SAME")
    x = b.op("MEAN", x, np.array([1, 2], np.int32), name="pool")
    return b.build({"logits": b.fully_connected(x, 10, name="logits")})


@pytest.mark.parametrize(
    ("model", "options", "words"),
    [
        (mobile(33), {"store": "sparse"}, "some: XNNPACK has sparse kernels for 2 of 2 1x1 convolutions, 80 %"),
        (mobile(33), {"store": "dense"}, "none: no weights are stored sparse"),
        (mobile(33), {"store": "sparse", "sparsity": 0.6}, "none: of the weights of 1x1 convolutions 60 % are zero"),
        (mobile(32), {"store": "sparse"}, "none: XNNPACK's sparse kernels want a net that starts with"),
        (mobile(33, extra="MAX_POOL_2D"), {"store": "sparse"}, "stop at #5 MAX_POOL_2D 'extra'"),
    ],
)
def test_the_speed_to_expect_on_arm_is_that_of_the_net(model: Model, options: dict[str, Any], words: str) -> None:
    assert words in expected_on_arm(prune(model, **{"sparsity": 0.8, "check": False, **options}).model)


def test_sparse_storage_leaves_what_would_grow(net: Model) -> None:
    assert store_sparse(net).main.operators == net.main.operators


def test_masks_have_exactly_the_zeros_that_are_asked_for() -> None:
    scores = np.random.default_rng(0).random((8, 30))
    for sparsity in (0.0, 0.3, 0.99):
        assert (~keep_mask(scores, sparsity, "unstructured")).sum() == np.ceil(240 * sparsity - 1e-9)
    kept = keep_mask(scores, 0.5, "unstructured")
    assert scores[kept].min() >= scores[~kept].max()


def test_second_order_finds_the_least_error() -> None:
    """On two inputs that are nearly equal either weight can go, if the other one takes over."""
    random = np.random.default_rng(0)
    x = random.standard_normal((1, 500, 4))
    x[..., 1] = x[..., 0] + 0.01 * random.standard_normal((1, 500))
    rows = np.array([[[1.0, 1.0, 0.6, 0.5]]])
    moments = Moments.empty(1, 1, 4)
    moments.add(x, x @ np.swapaxes(rows, 1, 2))
    found, mask = prune_rows(moments, rows, 0.25, "unstructured")
    assert mask[0, 0, 2:].all()
    assert np.count_nonzero(found[0, 0, :2]) == 1
    assert moments.error(found) < 0.001
    magnitude = rows * keep_mask(rows[0] ** 2, 0.25, "unstructured")
    assert moments.error(found) < 0.01 * moments.error(magnitude)


def test_half_of_the_lost_deviation_comes_back() -> None:
    """Rows that miss an input write less than they should; those that miss nothing stay as they are."""
    random = np.random.default_rng(0)
    x = random.standard_normal((1, 4000, 2))
    wanted = np.array([[[1.0, 1.0], [1.0, 0.0], [0.01, 1.0]]])
    moments = Moments.empty(1, 3, 2)
    moments.add(x, x @ np.swapaxes(wanted, 1, 2))
    found = with_variance(moments, wanted * np.array([1.0, 0.0]))
    assert found[0, 0] == pytest.approx([2**0.25, 0.0], rel=0.02)
    assert found[0, 1] == pytest.approx([1.0, 0.0], rel=1e-6)
    assert found[0, 2] == pytest.approx([0.01 * 2**0.5, 0.0], rel=1e-6), "no row grows by more"


def test_errors_that_nothing_reads_do_not_matter(pictures: list[Array]) -> None:
    b = Builder("half", seed=2)
    x = b.conv2d(b.input("image", (1, 12, 12, 3)), 8, kernel=3, activation="RELU", name="stem")
    x = b.conv2d(x, 8, kernel=3, activation="RELU", name="middle")
    weights = np.random.default_rng(0).standard_normal((4, 1, 1, 8)).astype(np.float32)
    weights[..., 5:] *= 1e-4
    model = b.build({"y": b.conv2d(x, 4, weight=weights, name="last")})
    feeds = [{model.main.inputs[0]: picture} for picture in pictures]
    layer = weight_layers(model)[1]
    moments = input_moments(model, 0, feeds, [layer.operator])[layer.operator]
    judge = OutputError(model, feeds[:10])
    found = row_importance(model, layer, moments, 0.5, "unstructured", judge, parts=8)[0, :, 0]
    assert found[5:].max() < 0.1 * found[:5].min()
    together = row_importance(model, layer, moments, 0.5, "unstructured", judge, parts=1)
    assert np.ptp(together) == 0


def test_outputs_that_do_the_same_are_coupled(pictures: list[Array]) -> None:
    b = Builder("twice", seed=2)
    x = b.conv2d(b.input("image", (1, 12, 12, 3)), 8, kernel=3, activation="RELU", name="stem")
    x = b.conv2d(x, 4, name="middle")
    weights = np.array([[1, 1, 0, 0], [0, 0, 1, -1]], np.float32).reshape(2, 1, 1, 4)
    model = b.build({"y": b.conv2d(x, 2, weight=weights, name="last")})
    feeds = [{model.main.inputs[0]: picture} for picture in pictures]
    layer = weight_layers(model)[1]
    moments = input_moments(model, 0, feeds, [layer.operator])[layer.operator]
    found = row_coupling(model, layer, moments, OutputError(model, feeds[:10]))
    assert found is not None
    assert np.diag(found) == pytest.approx(1)
    assert found[0, 1] == pytest.approx(-found[2, 3], rel=1e-3)  # a sum and a difference
    assert found[0, 1] > 0.2
    assert np.abs(found[:2, 2:]).max() < 1e-3  # of another output


def test_coupled_rows_make_up_for_each_other() -> None:
    """Where only the sum of two rows is read, each may have the zeros that the other has not."""
    random = np.random.default_rng(0)
    x = random.standard_normal((1, 800, 8))
    rows = random.uniform(0.9, 1.1, (1, 2, 8))
    fitted, held = (Moments.empty(1, 2, 8) for _ in range(2))
    for part, seen in ((fitted, x[:, :600]), (held, x[:, 600:])):
        part.add(seen, seen @ np.swapaxes(rows, 1, 2))
    coupling, even = np.array([[1.0, 0.99], [0.99, 1.0]]), np.ones((1, 2, 1))
    mask = np.arange(16).reshape(1, 8, 2).swapaxes(1, 2) % 4 % 3 == 0  # one of the two in each column
    found = fit_coupled(fitted, held, rows * mask, mask, even, coupling)
    apart = fit(fitted, held, rows * mask, mask)
    wanted = rows.sum(axis=1)
    assert np.abs(found.sum(axis=1) - wanted).max() < 0.1
    assert np.abs(apart.sum(axis=1) - wanted).min() > 0.5
    assert not found[~mask].any()


def test_zeros_are_chosen_where_other_rows_make_up_for_them() -> None:
    random = np.random.default_rng(0)
    x = random.standard_normal((1, 2000, 24)) @ random.standard_normal((24, 24))
    rows, read = random.standard_normal((1, 16, 24)), random.standard_normal((16, 3))
    moments = Moments.empty(1, 16, 24)
    moments.add(x, x @ np.swapaxes(rows, 1, 2))
    read /= np.linalg.norm(read, axis=1, keepdims=True)
    coupling, even = 0.9 * read @ read.T + 0.1 * np.eye(16), np.ones((1, 16, 1))
    errors = []
    for known in (None, coupling):
        mask = prune_rows(moments, rows, 0.6, "unstructured", importance=even, coupling=known)[1]
        lost = fit_coupled(moments, moments, rows * mask, mask, even, coupling)[0] - rows[0]
        errors.append(float(np.sum(coupling * (lost @ moments.covariance()[0][0] @ lost.T))))
    assert errors[1] < 0.9 * errors[0]


def test_a_covariance_that_rounding_spoiled_does_no_harm() -> None:
    """No variance is negative, but the difference of two large sums can be: the first penalty would cancel this one."""
    h, target = np.diag([1.0, 1.0, 1.0, -0.1]), np.array([[1.0, 0.1, 0.5, 1e-6]])
    first = np.array([[True, True, False, False]])
    with np.errstate(all="raise"):
        mask = _by_alternation(h, target, first, 0.5, "unstructured", 90, None)
    assert mask.tolist() == [[True, False, True, False]]


def test_an_error_that_the_last_layer_can_undo_does_not_count(net: Model, pictures: list[Array]) -> None:
    feeds = [{net.main.inputs[0]: picture} for picture in pictures]
    judge, few = OutputError(net, feeds), OutputError(net, feeds[:12])
    layer = weight_layers(net)[-1]
    tensor = net.main.tensors[layer.weight]
    halved = with_tensors(net, 0, {layer.weight: tensor.with_array(tensor.array() / 2)})
    assert judge.of(halved) > 0.2
    assert judge.after_refit(halved) < 0.02 * judge.of(halved)
    assert few.after_refit(halved) == few.of(halved)  # twelve samples cannot tell what ten values have in common


def test_more_samples_than_fit_in_32_bits_are_kept_in_16(net: Model, pictures: list[Array]) -> None:
    feeds = [{net.main.inputs[0]: picture} for picture in pictures[:4]]
    found = []
    for half in (False, True):
        walk = Walk(net, 0, feeds, half=half)
        first, second = walk.pieces([2])
        list(walk.run(first, keep=True))
        kept = [arrays[0].dtype for t in range(len(walk.tensors)) if (arrays := walk.values(t)) is not None]
        assert set(kept) == {np.dtype(np.float16 if half else np.float32)}
        found.append([[views[0].copy()] for views in walk.run(second, [net.main.outputs[0]], keep=False)])
    assert 50 < sqnr_db(found[0], found[1]) < 120


def test_the_budget_goes_where_it_costs_least() -> None:
    cheap = Curve(100, (0.0, 0.5, 0.9), (0.0, 0.001, 0.002))
    dear = Curve(100, (0.0, 0.5, 0.9), (0.0, 1.0, 5.0))
    shares = allocate_by_curves([cheap, dear], 0.5)
    assert shares[0] == pytest.approx(0.9)
    assert sum(shares) == pytest.approx(1.0)
    assert sum(allocate_by_curves([cheap, dear], 0.95)) == pytest.approx(1.9)
    random = np.random.default_rng(0)
    even, spiked = random.standard_normal((20, 20)), np.diag(np.full(20, 9.0)) + 1e-3
    first, second = allocate_by_weights([even, spiked], 0.5, "unstructured")
    assert second > 0.9
    assert first + second == pytest.approx(1.0, abs=0.01)


def test_real_models_keep_their_accuracy(assets: Path) -> None:
    tiny = assets / "mlperf_tiny"
    model = Model.load(tiny / "kws_dscnn_float.tflite")
    calibration, test = Dataset.open(tiny / "kws_calib200.npz"), Dataset.open(tiny / "kws_test800.npz")
    before = litesmith.evaluate(model, test).value
    for pattern, most in (("unstructured", 0.025), ("4x1", 0.06)):
        fitted = prune(model, sparsity=0.5, pattern=pattern, data=calibration).model
        plain = prune(model, sparsity=0.5, pattern=pattern).model
        after = litesmith.evaluate(fitted, test).value
        assert after >= before - most  # measured: 1.6 to 2 and 3.3 to 4.5 points
        assert after > litesmith.evaluate(plain, test).value + 0.05


def test_a_residual_net_loses_less_than_a_point_at_half_the_weights(assets: Path) -> None:
    preprocess = "scale=1/255 mean=0.485,0.456,0.406 std=0.229,0.224,0.225"
    model = Model.load(assets / "cifar10/resnet20_float.tflite")
    calibration = Dataset.open(assets / "cifar10/train20k.npz", preprocess=preprocess).take(100)
    test = Dataset.open(assets / "cifar10/test.npz", preprocess=preprocess).take(1000)
    pruned = prune(model, sparsity=0.5, data=calibration, budget="layer").model
    assert litesmith.evaluate(pruned, test).value >= litesmith.evaluate(model, test).value - 0.01


def test_real_sparse_and_custom_files(assets: Path) -> None:
    sparse = dequantize(Model.load(assets / "vision/face_detection_full_range_sparse.tflite"))
    assert prune(sparse, sparsity=0.9).coverage.reached >= 0.9
    custom = dequantize(Model.load(assets / "vision/selfie_segmentation.tflite"))
    assert prune(custom, sparsity=0.5).coverage.reached >= 0.5
