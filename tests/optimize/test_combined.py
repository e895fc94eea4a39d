# SPDX-License-Identifier: Apache-2.0
"""Channels, zeros, shared values and integers together: what one step made, the next one keeps. Counted in the file."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.optimize.conftest import run

import litesmith
from litesmith import Recipe
from litesmith.errors import RecipeError
from litesmith.model import Model
from litesmith.optimize import SCHEMES, cluster, prune, quantize, unpack_sparse
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
