# SPDX-License-Identifier: Apache-2.0
"""Clustering: as many values as asked for, counted in the written file; zeros kept; k-means that minimizes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.optimize.conftest import are_shared, run, sqnr_db

import litesmith
from litesmith.errors import DataError, OptimizeError, UsageError
from litesmith.model import Model
from litesmith.optimize import ClusterCoverage, cluster, file_sizes, prune, quantize, unpack_sparse
from litesmith.optimize._cluster_kmeans import STARTS, kmeans, nearest

Array = np.ndarray[Any, Any]


@pytest.fixture
def pictures() -> list[Array]:
    random = np.random.default_rng(0)
    smooth = random.standard_normal((40, 1, 4, 4, 3)).repeat(3, 2).repeat(3, 3)  # neighbours are alike, as in pictures
    return list((smooth + 0.2 * random.standard_normal(smooth.shape)).astype(np.float32))


def written_weights(model: Model, name: str) -> Array:
    graph = unpack_sparse(Model.from_bytes(model.to_bytes())).main
    op = next(op for op in graph.operators if graph.tensors[op.outputs[0]].name == name)
    return np.asarray(graph.tensors[op.inputs[1]].array())


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("fit", [False, True])
@pytest.mark.parametrize("clusters", [2, 16])
def test_so_many_values_in_the_file(net: Model, pictures: list[Array], start: str, fit: bool, clusters: int) -> None:
    result = cluster(net, clusters=clusters, start=start, data=pictures if fit else None)
    assert {layer.name for layer in result.coverage.clustered} == {"expand", "dw", "project", "down"}
    for layer in result.coverage.clustered:
        unique = len(np.unique(written_weights(result.model, layer.name)))
        assert unique == layer.unique[1] <= clusters
    run(result.model, pictures[:1])


def uneven(model: Model) -> Model:
    """The model with channels of very different sizes in its convolutions."""
    graph = model.main
    tensors = list(graph.tensors)
    for op in graph.operators:
        if op.kind == "CONV_2D":
            values = tensors[op.inputs[1]].array()
            sizes = np.geomspace(0.05, 4, len(values), dtype=np.float32).reshape(-1, 1, 1, 1)
            tensors[op.inputs[1]] = tensors[op.inputs[1]].with_array(values * sizes)
    return replace(model, subgraphs=(replace(graph, tensors=tuple(tensors)),), source=None)


@pytest.mark.parametrize("fit", [False, True])
def test_per_channel(net: Model, pictures: list[Array], fit: bool) -> None:
    rules = ["skip:DEPTHWISE_CONV_2D", "8:down"]
    data = pictures if fit else None
    result = cluster(uneven(net), clusters=4, per_channel=True, rules=rules, data=data)
    for layer in result.coverage.clustered:
        rows = written_weights(result.model, layer.name)
        most = max(len(np.unique(row)) for row in rows.reshape(len(rows), -1))
        assert most == layer.largest_unique <= (8 if layer.name == "down" else 4)
        assert layer.unique[1] >= 12
        fractions = np.frexp(rows[rows != 0])[0]  # all channels share them: that is why it compresses
        assert len(np.unique(np.abs(fractions))) <= (16 if layer.name == "down" else 8)
    assert "skip" in next(layer.reason for layer in result.coverage.layers if layer.name == "dw")


def test_more_values_and_data_bring_it_closer(net: Model, pictures: list[Array]) -> None:
    reference = run(net, pictures[30:])

    def closeness(**options: Any) -> float:
        return sqnr_db(reference, run(cluster(net, **options).model, pictures[30:]))

    assert closeness(clusters=32) > closeness(clusters=8) + 5
    assert closeness(clusters=8, data=pictures[:30]) > closeness(clusters=8) + 3
    rough, reference = uneven(net), run(uneven(net), pictures[30:])
    layers, channels = (
        sqnr_db(reference, run(cluster(rough, clusters=8, per_channel=own).model, pictures[30:]))
        for own in (False, True)
    )
    assert channels > layers + 1


def test_zeros_stay_zeros(net: Model, pictures: list[Array]) -> None:
    for store in ("dense", "sparse"):
        pruned = prune(net, sparsity=0.7, store=store)
        result = cluster(pruned.model, clusters=8, data=pictures)
        for layer in result.coverage.clustered:
            assert layer.zeros[0] == layer.zeros[1]
            assert layer.unique[1] <= 9
        assert any(op.kind == "DENSIFY" for op in result.model.main.operators) == (store == "sparse")


@pytest.mark.parametrize("fit", [False, True])
def test_signatures_go_on_to_share_their_weights(twins: Model, fit: bool) -> None:
    samples = list(np.random.default_rng(0).standard_normal((10, 1, 8, 8, 3)).astype(np.float32))
    result = cluster(twins, clusters=8, data=samples if fit else None)
    assert [layer.unique[1] for layer in result.coverage.layers if layer.name in ("one", "two")] == [8] * 4
    assert are_shared(result.model)
    assert any("clustered by their weights alone" in note for note in result.coverage.notes) == fit


def test_clustered_files_compress() -> None:
    model = litesmith.samples.model()
    before, after = file_sizes(model), file_sizes(cluster(model, clusters=32, all_layers=True).model)
    assert after.raw == pytest.approx(before.raw, rel=0.01)
    assert max(after.gzip, after.zstd, after.brotli) <= before.raw / 3


def test_the_same_seed_gives_the_same_file(net: Model, pictures: list[Array]) -> None:
    first, second = (cluster(net, clusters=8, data=pictures, seed=7).model.to_bytes() for _ in range(2))
    assert first == second


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"clusters": 1}, UsageError, "2 clusters or more, not 1"),
        ({"start": "middle"}, UsageError, "no start 'middle'"),
        ({"rules": ["skip:nothing"]}, OptimizeError, "matches no layer"),
        ({"rules": ["2.5:CONV_2D"]}, UsageError, "not 2.5"),
        ({"rules": ["skip:CONV_2D", "skip:DEPTHWISE_CONV_2D"]}, OptimizeError, "no layer to cluster"),
        ({"data": []}, DataError, "no samples"),
    ],
)
def test_bad_input_is_explained(net: Model, options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        cluster(net, **options)


def test_integers_say_how(net: Model, pictures: list[Array]) -> None:
    with pytest.raises(OptimizeError, match="clustering needs float weights.*quantize afterwards"):
        cluster(quantize(net, data=pictures, recover=()).model)


def test_the_report_round_trips(net: Model) -> None:
    coverage = cluster(net, clusters=8, sizes=True).coverage
    assert ClusterCoverage.from_json(coverage.to_json()) == coverage


@pytest.mark.parametrize("start", STARTS)
def test_kmeans_finds_clusters_that_are_there(start: str) -> None:
    random = np.random.default_rng(0)
    centers = np.array([-4.0, -1.0, 0.5, 3.0])
    values = (centers[:, None] + 0.05 * random.standard_normal((4, 200))).ravel()
    found = kmeans(values, 4, start=start, seed=1)
    assert np.allclose(found, centers, atol=0.05)
    assert (nearest(values, found) == np.repeat(np.arange(4), 200)).all()


def test_kmeans_is_a_fixed_point_of_lloyd() -> None:
    values = np.random.default_rng(0).standard_normal(5000)
    weights = np.random.default_rng(1).random(5000)
    found = kmeans(values, 16, weights=weights)
    codes = nearest(values, found)
    means = np.array([np.average(values[codes == c], weights=weights[codes == c]) for c in range(len(found))])
    assert len(found) == 16
    assert np.abs(means - found).max() < 0.02
    assert kmeans(np.array([1.0, 1.0, 2.0]), 5).tolist() == [1.0, 2.0]
