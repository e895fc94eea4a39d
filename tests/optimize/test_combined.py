# SPDX-License-Identifier: Apache-2.0
"""Channels, zeros, shared values and integers together: what one step made, the next one keeps. Counted in the file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.optimize.conftest import run, sqnr_db

import litesmith
from litesmith import Recipe
from litesmith.errors import RecipeError
from litesmith.model import Model
from litesmith.optimize import (
    SCHEMES,
    ClusterCoverage,
    Coverage,
    PruneCoverage,
    RecipeCoverage,
    cluster,
    prune,
    quantize,
    unpack_sparse,
)
from litesmith.optimize._cluster import _spared
from litesmith.optimize._cluster_shared import shared_weights

Array = np.ndarray[Any, Any]


@pytest.fixture
def pictures() -> list[Array]:
    random = np.random.default_rng(0)
    return list(random.standard_normal((40, 1, 12, 12, 3)).astype(np.float32))


def integers(model: Model) -> dict[str, Array]:
    """Return the int8 weights of the layers by the name of what they write, as the written file has them."""
    graph = unpack_sparse(Model.from_bytes(model.to_bytes())).main
    return {
        graph.tensors[op.outputs[0]].name: np.asarray(graph.tensors[op.inputs[1]].array())
        for op in graph.operators
        if op.kind in ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED")
        and graph.tensors[op.inputs[1]].dtype == "int8"
    }


@pytest.mark.parametrize("per_channel", [False, True])
def test_int8_keeps_zeros_and_shared_values(net: Model, pictures: list[Array], per_channel: bool) -> None:
    pruned = prune(net, sparsity=0.6, data=pictures)
    shared = cluster(pruned.model, clusters=16, per_channel=per_channel, data=pictures, rules=["skip:dw"])
    found = integers(quantize(shared.model, data=pictures).model)
    assert found
    for layer in shared.coverage.clustered:
        stored = found[layer.name]
        assert int(np.sum(stored == 0)) >= layer.zeros[1] > 0.1 * stored.size
        rows = stored.reshape(len(stored), -1) if per_channel else stored.reshape(1, -1)
        assert max(len(np.unique(row)) for row in rows) <= 17


def test_pruned_weights_stay_zero_in_int8_with_all_recovery(net: Model, pictures: list[Array]) -> None:
    pruned = prune(net, sparsity=0.7, pattern="4x1", data=pictures)
    found = integers(quantize(pruned.model, data=pictures).model)
    for layer in pruned.coverage.pruned:
        assert int(np.sum(found[layer.name] == 0)) >= layer.zeros


def test_pruned_layers_are_not_mistaken_for_clustered_ones(net: Model, pictures: list[Array]) -> None:
    pruned = prune(net, sparsity=0.8, budget="layer").model
    clustered = cluster(pruned, clusters=8, rules=["skip:*", "include:down"]).model
    names = {op.inputs[1]: net.main.tensors[op.outputs[0]].name for op in net.main.operators if len(op.inputs) > 1}
    for model, shared in ((pruned, []), (clustered, ["down"])):
        assert [names[weight] for _, weight in shared_weights(model, [SCHEMES["int8"]])] == shared
        coverage = quantize(model, data=pictures).coverage
        assert ("equalize" in {report.name for report in coverage.recovery}) == (not shared)
        assert any("first 'down" in note and "equalize; name them" in note for note in coverage.notes) == bool(shared)


def test_a_recipe_runs_them_all(net: Model, pictures: list[Array]) -> None:
    text = "channels(0.75) → prune(0.6, 4x1) → cluster(16) → int8 → sparse"
    recipe = Recipe.parse(text)
    assert str(recipe) == text
    assert Recipe.from_toml(recipe.to_toml()) == recipe
    result = recipe.apply(net, pictures)
    assert result.cost().macs < net.cost().macs
    assert len(result.to_bytes()) < len(net.to_bytes()) / 3
    found = integers(result)
    assert len(np.unique(found["down"])) <= 17
    assert np.mean(found["down"] == 0) > 0.3
    run(result, pictures[:1])
    assert recipe.apply(net, pictures).to_bytes() == result.to_bytes()


def test_what_the_recipe_of_the_manual_says_is_read() -> None:
    recipe = Recipe.parse("channels(0.25) → prune(0.8, block=4x1) → int8(percentile, equalize, bias) + float:SOFTMAX")
    assert [step.name for step in recipe.steps] == ["channels", "prune", "int8"]


@pytest.mark.parametrize("text", ["int8 → prune(0.5)", "cluster(8) → prune(0.5)", "sparse → int8", "prune → channels"])
def test_the_wrong_order_is_refused_before_anything_runs(net: Model, text: str) -> None:
    with pytest.raises(RecipeError, match="comes after"):
        Recipe.parse(text).apply(net)


def test_evaluate_and_diagnose_take_the_results(pictures: list[Array]) -> None:
    model, data = litesmith.samples.model(), litesmith.samples.dataset("test").take(50)
    pruned = prune(model, sparsity=0.5, store="sparse").model
    assert 0 <= litesmith.evaluate(pruned, data, against=model).value <= 1
    diagnosis = litesmith.diagnose(model, prune(model, sparsity=0.5).model, data=data)
    assert diagnosis.layers


def test_channels_of_small_weights_keep_their_values_in_int8(net: Model, pictures: list[Array]) -> None:
    sizes = 4.0 ** -np.arange(4).repeat(12)
    graph = net.main
    weight = next(op.inputs[1] for op in graph.operators if graph.tensors[op.outputs[0]].name == "expand")
    spread = graph.tensors[weight].array() * sizes.astype(np.float32)[:, None, None, None]
    tensors = (*graph.tensors[:weight], graph.tensors[weight].with_array(spread), *graph.tensors[weight + 1 :])
    clustered = cluster(net.with_main(replace(graph, tensors=tensors)), clusters=8, per_channel=True).model
    values = clustered.main.tensors[weight].array().reshape(48, -1)
    stored = shared_weights(clustered, [SCHEMES["int8"]])[0, weight]
    integers = stored.integers.reshape(48, -1)

    assert len(np.unique(values)) > 2 * 8, "channels have values of their own"
    assert len(np.unique(integers)) <= 8, "and share the integers"
    for row, real, scale in zip(integers, values, stored.scales, strict=True):
        assert len(np.unique(row)) == len(np.unique(real))
        assert np.sum((row * scale - real) ** 2) < 1e-3 * np.sum(real**2)
    small = quantize(clustered, data=pictures, recover=()).model
    assert sqnr_db(run(clustered, pictures[:8]), run(small, pictures[:8])) > 25


def test_values_that_each_channel_has_alone_get_a_scale_for_each(net: Model) -> None:
    random = np.random.default_rng(0)
    graph = net.main
    weight = next(op.inputs[1] for op in graph.operators if graph.tensors[op.outputs[0]].name == "down")
    shape = graph.tensors[weight].shape
    own = random.standard_normal((shape[0], 6)) * np.exp(random.normal(0, 1, (shape[0], 1)))
    rows = np.take_along_axis(own, random.integers(0, 6, (shape[0], 144)), axis=1).astype(np.float32)
    tensors = list(graph.tensors)
    tensors[weight] = tensors[weight].with_array(rows.reshape(shape))
    found = shared_weights(net.with_main(replace(graph, tensors=tuple(tensors))), [SCHEMES["int8"]])

    assert len(np.unique(rows)) <= 256
    assert len(np.unique(found[0, weight].scales)) == shape[0]


@pytest.mark.parametrize("data_free", [False, True])
def test_few_zeros_of_a_pruned_layer_stay_too(net: Model, pictures: list[Array], data_free: bool) -> None:
    pruned = prune(net, sparsity=0.1, budget="layer")
    shared = cluster(pruned.model, clusters=8, data=None if data_free else pictures)
    found = integers(quantize(shared.model, data=pictures).model)
    zeros = {layer.name: layer.zeros for layer in pruned.coverage.pruned}

    assert zeros
    for layer in shared.coverage.clustered:
        if layer.name in zeros:
            assert layer.zeros == (zeros[layer.name], zeros[layer.name])
            assert int(np.sum(found[layer.name] == 0)) >= zeros[layer.name] > 0.05 * layer.weights
            assert len(np.unique(found[layer.name])) <= 9


def test_zeros_that_rounding_made_are_as_other_values() -> None:
    steps = np.rint(np.random.default_rng(0).normal(0, 3, (4, 8, 64))) / 10
    assert 0.01 < np.mean(steps == 0) < 1 / 4
    assert not _spared(steps, 4).any()


# ------------------------------------------------------------------------------------------- recipes as a whole


def test_a_whole_recipe_in_any_order(net: Model, pictures: list[Array]) -> None:
    done = litesmith.recipe(net, "int8 → cluster(8) -> prune(0.5)", data=pictures, sizes=True)
    right = Recipe.parse("prune(0.5) → cluster(8) → int8")
    coverage = done.coverage

    assert coverage.recipe == str(right)
    assert any("not as given: int8 → cluster(8) → prune(0.5)" in note for note in coverage.notes)
    assert done.model.to_bytes() == right.apply(net, pictures).to_bytes()
    kinds = [type(step.coverage) for step in coverage.steps]
    assert kinds == [PruneCoverage, ClusterCoverage, Coverage]
    assert RecipeCoverage.from_json(coverage.to_json()) == coverage
    assert coverage.sizes is not None
    assert coverage.sizes[1].brotli < coverage.sizes[0].brotli / 3
    assert coverage.steps[-1].raw_bytes == coverage.sizes[1].raw
    assert not litesmith.recipe(net, right, data=pictures[:8]).coverage.notes


def test_a_recipe_from_a_file(net: Model, tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    Recipe.parse("prune(0.8) → float16 → sparse").to_toml(path)
    assert [step.step for step in litesmith.recipe(net, path).coverage.steps] == ["prune(0.8)", "float16", "sparse"]
    with pytest.raises(RecipeError, match="has no step"):
        litesmith.recipe(net, "")


def test_the_right_order_is_named() -> None:
    with pytest.raises(RecipeError, match=r"put 'prune' first: fix → prune\(0.5\) → int8 → sparse"):
        Recipe.parse("fix → int8 → prune(0.5) → sparse").check_order()
