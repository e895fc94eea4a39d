# SPDX-License-Identifier: Apache-2.0
"""A look into the winner: each layer is compared with what was quantized, and what cannot be compared is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from litesmith import samples
from litesmith.model import Builder
from litesmith.tune import Budget, Tuned
from litesmith.tune._jobs import Explain
from litesmith.tune._journal import Journal
from litesmith.tune._question import Question
from litesmith.tune._search import Search
from litesmith.tune._tune import ask
from litesmith.tune._workers import LocalWorkers

PLAIN = "int8(minmax, recover=, samples=20)"


@pytest.fixture(scope="module")
def question() -> Question:
    return ask(samples.path(), samples.path("fashion-test.npz"), "scale=1/255", limit=64)[0]


def _stranger() -> bytes:
    """A model that has nothing in common with the sample."""
    net = Builder()
    return net.build({"y": net.op("RELU", net.input("x", (1, 8)))}).to_bytes()


@pytest.mark.parametrize(
    "recipe",
    [
        PLAIN,
        f"channels(max_macs=0.9, repair=no) → {PLAIN}",
        f"fold → {PLAIN}",
        f"prune(0.5, magnitude) → {PLAIN} → sparse",
        "dynamic",
        "weights8",
        "float16",
    ],
)
def test_layers_are_compared_with_what_was_quantized(question: Question, recipe: str) -> None:
    found = Explain(question.made(recipe), recipe).answer(question)

    assert found.not_compared == ""
    shares = [layer.error_share for layer in found.layers if layer.error_share is not None]
    assert len(shares) > 20
    assert sum(shares) == pytest.approx(1.0, abs=0.1)
    assert sum(layer.time_us for layer in found.layers) > 0


@pytest.mark.parametrize("recipe", ["", "relaxed", "prune(0.5, magnitude)"])
def test_without_quantization_there_is_nothing_to_compare(question: Question, recipe: str) -> None:
    found = Explain(question.made(recipe), recipe).answer(question)

    assert found.not_compared == ""
    assert all(layer.error_share is None for layer in found.layers)
    assert sum(layer.size_bytes for layer in found.layers) > 0


@pytest.mark.parametrize(
    ("recipe", "reason"), [("int8", "do not correspond"), ("train(channels=0.5) → float16", "not trained again")]
)
def test_sizes_and_times_stay_where_errors_cannot_be_found(question: Question, recipe: str, reason: str) -> None:
    found = Explain(_stranger(), recipe).answer(question)

    assert [layer.kind for layer in found.layers] == ["RELU"]
    assert reason in found.not_compared


def test_a_search_says_what_it_does_not_know_of_a_file(question: Question, tmp_path: Path) -> None:
    workers, journal = LocalWorkers(question, 1), Journal(tmp_path / "trials.jsonl")
    try:
        search = Search(question, workers, workers, journal, tmp_path, Budget(max_drop=0.5), key="k")
        search.baseline()
        (trial,) = search.run("asked for", [PLAIN])
        coverage = search.coverage(trial)
        assert coverage is not None
        assert coverage.conversions == {"QUANTIZE": 1, "DEQUANTIZE": 1}
        assert search.coverage(search.trials[0]) is None
        assert search.left_out == []

        (tmp_path / "files" / f"{trial.file}.tflite").write_bytes(_stranger())
        assert search.layers(trial)
        assert search.left_out[0][0] == f"the error of each layer of {trial.name}"
        next((tmp_path / "files").glob("*.coverage.json")).unlink()
        assert search.coverage(trial) is None
        assert search.left_out[1][0] == f"the coverage of {trial.name}"
    finally:
        workers.close()
        journal.close()


def test_the_result_has_the_coverage_of_the_winner_and_the_float_model_layer_by_layer(finished: Tuned) -> None:
    kinds = [operator.kind for operator in samples.model().main.operators]

    assert finished.winner is not None
    assert finished.coverage is not None
    assert finished.coverage.scheme == finished.winner.recipe.split("(")[0]
    assert [layer.kind for layer in finished.float_layers] == kinds
    assert sum(layer.time_us for layer in finished.float_layers) > 0
    assert all(layer.error_share is None for layer in finished.float_layers)


def test_results_from_before_there_was_a_coverage_are_read(finished: Tuned) -> None:
    document = json.loads(finished.to_json())
    del document["coverage"], document["float_layers"]
    read = Tuned.from_json(json.dumps(document))

    assert (read.coverage, read.float_layers) == (None, ())
    assert read.trials == finished.trials
