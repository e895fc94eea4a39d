# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib
import io
from typing import Any

import numpy as np
import pytest

from litesmith.accuracy._classification import RankedCurve, f1_of_counts, top_k
from litesmith.accuracy._decode import best_path
from litesmith.accuracy._detection import MeanAveragePrecision, _evaluate
from litesmith.accuracy._metric import Observed
from litesmith.accuracy._named import METRICS, metric_named
from litesmith.accuracy._regression import Cosine, MeanSquaredError
from litesmith.accuracy._text import CharacterErrorRate, ExactMatch, TextF1, WordErrorRate
from litesmith.errors import UsageError


def observed(outputs: Any, labels: Any) -> Observed:
    return Observed({"y": np.asarray(outputs)}, labels, None, {"x": np.zeros((len(outputs), 1))})


def score(metric: Any, *batches: Observed) -> float:
    parts = [metric.observe(batch) for batch in batches]
    return float(metric.scorer({name: np.concatenate([p[name] for p in parts]) for name in parts[0]})(None))


def test_ties_go_to_the_lowest_class_and_are_counted() -> None:
    scores = np.array([[3, 3, 1], [3, 3, 1], [1, 3, 2], [2, 2, 2]], float)[:, None]
    kept = top_k(scores, np.array([[0], [1], [1], [2]]), 1)
    assert kept["prediction"].tolist() == [0, 0, 1, 0]
    assert kept["score"].tolist() == [1, 0, 1, 0]
    assert kept["tied"].tolist() == [True, True, False, True]
    assert kept["score_low"].tolist() == [0, 0, 1, 0]
    assert kept["score_high"].tolist() == [1, 1, 1, 1]


def test_ties_across_the_cut_of_top_2() -> None:
    scores = np.array([[5, 4, 4, 1], [5, 4, 3, 1]], float)[:, None]
    kept = top_k(scores, np.array([[2], [2]]), 2)
    assert kept["tied"].tolist() == [True, False]
    assert (kept["score"].tolist(), kept["score_high"].tolist()) == ([0, 0], [1, 0])


@pytest.mark.parametrize("k", [1, 3, 7])
def test_top_k_is_sorting(k: int) -> None:
    random = np.random.default_rng(0)
    scores, right = random.normal(size=(200, 1, 10)), random.integers(0, 10, (200, 1))
    best = np.argsort(-scores[:, 0], axis=1, kind="stable")[:, :k]
    assert top_k(scores, right, k)["score"].tolist() == [float(r in b) for r, b in zip(right[:, 0], best, strict=True)]


def test_top1_of_positions_is_the_share_of_pixels() -> None:
    metric = metric_named("top1", labels=None, class_names=None)
    outputs = np.eye(3)[np.array([[[0, 1], [2, 2]], [[1, 1], [1, 1]]])]
    labels = np.array([[[0, 1], [2, 0]], [[1, 1], [1, 1]]])
    kept = metric.observe(observed(outputs, labels))
    assert kept["score"].tolist() == [0.75, 1]
    assert metric.successes(kept) is None


@pytest.mark.parametrize("average", ["macro", "micro", "weighted"])
def test_f1_of_counts_is_scikit_learns(average: str) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    random = np.random.default_rng(0)
    label, prediction = random.integers(0, 5, 300), random.integers(0, 6, 300)
    counts = np.bincount(label * 6 + prediction, minlength=36).reshape(6, 6).astype(float)
    assert f1_of_counts(counts, average) == pytest.approx(metrics.f1_score(label, prediction, average=average))


def test_weighted_curve_is_scikit_learns() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    random = np.random.default_rng(0)
    right, values = random.integers(0, 2, 500).astype(bool), random.integers(0, 20, 500) / 20
    weights = random.integers(0, 4, 500)
    expected = metrics.roc_auc_score(right, values, sample_weight=weights)
    assert RankedCurve(right, values).area(weights) == pytest.approx(expected)


def test_auc_of_two_classes_and_of_a_reconstruction() -> None:
    pytest.importorskip("sklearn")
    auc = metric_named("auc", labels=None, class_names=None)
    assert score(auc, observed([[0.1, 0.9], [0.6, 0.4], [0.2, 0.8], [0.9, 0.1]], np.array([1, 1, 0, 0]))) == 0.75
    given = np.zeros((4, 5), np.float32)
    back = given + np.array([3, 2, 1, 2.5])[:, None]
    anomaly = Observed({"y": back}, np.array([1, 0, 0, 1]), None, {"x": given})
    assert score(auc, anomaly) == 1


def test_mean_squared_error_and_cosine() -> None:
    batch = observed([[1.0, 2.0], [0.0, 0.0]], np.array([[1.0, 0.0], [0.0, 0.0]]))
    assert score(MeanSquaredError(), batch) == 1
    assert score(Cosine(), batch) == pytest.approx((1 / np.sqrt(5) + 1) / 2)


def test_word_and_character_errors() -> None:
    pytest.importorskip("jiwer")
    said = np.array([["the cat sat"], ["hello word"], ["more"]], object)
    labels = np.array(["the cat sat", "hello world", ""])
    assert score(WordErrorRate(), observed(said, labels)) == pytest.approx(2 / 5)
    assert score(CharacterErrorRate(), observed(said, labels)) == pytest.approx(5 / 22)


def test_exact_match_and_f1_forgive_case_articles_and_punctuation() -> None:
    said = np.array([["The Red car!"], ["blue"]], object)
    labels = np.array(["red car", "a dark blue|navy"])
    assert score(ExactMatch(), observed(said, labels)) == 0.5
    assert score(TextF1(), observed(said, labels)) == pytest.approx((1 + 2 / 3) / 2)


def test_best_path_merges_repeats_but_not_across_blanks() -> None:
    frames = np.eye(4)[[0, 1, 1, 0, 1, 2, 2, 3]]
    assert best_path(frames, symbols=("<blank>", "a", "b", " ")) == "aab "
    with pytest.raises(UsageError, match="4 scores a frame, and there are 2 symbols"):
        best_path(frames, symbols=("a", "b"))


def _boxes(random: np.random.Generator, images: int) -> dict[str, np.ndarray[Any, Any]]:
    there, found = np.empty(images, object), np.empty(images, object)
    for i in range(images):
        count = int(random.integers(0, 5))
        corner, size = random.uniform(0, 0.6, (count, 2)), random.uniform(0.1, 0.4, (count, 2))
        classes = random.integers(0, 3, count)
        there[i] = np.column_stack([corner, corner + size, classes, np.zeros(count)])
        moved = there[i][:, :4] + random.normal(0, 0.02, (count, 4))
        extra = random.uniform(0, 0.5, (2, 4)) + np.array([0, 0, 0.5, 0.5])
        rows = np.vstack([moved, extra])
        kinds = np.concatenate([classes, random.integers(0, 3, 2)])
        found[i] = np.column_stack([rows, random.uniform(0, 1, len(rows)), kinds])
    return {"there": there, "found": found}


@pytest.mark.parametrize("at_half", [True, False])
def test_weighted_average_precision_is_pycocotools(at_half: bool) -> None:
    pytest.importorskip("pycocotools")
    seen = _boxes(np.random.default_rng(0), 30)
    metric = MeanAveragePrecision(at_half=at_half)
    scored = metric.scorer(seen)
    assert 0.2 < scored(None) < 1
    assert scored(np.ones(30, np.int64)) == pytest.approx(scored(None), abs=1e-9)
    with contextlib.redirect_stdout(io.StringIO()):  # the number that pycocotools itself prints
        evaluated = _evaluate(seen, at_half=at_half)
        evaluated.accumulate()
    assert scored(None) == pytest.approx(float(np.mean(evaluated.eval["precision"])))
    weights = np.random.default_rng(1).integers(0, 3, 30)
    repeated = {name: np.repeat(array, weights) for name, array in seen.items()}
    assert scored(weights) == pytest.approx(metric.scorer(repeated)(None), abs=1e-9)


def test_boxes_from_the_four_outputs_of_post_processing() -> None:
    pytest.importorskip("pycocotools")
    outputs = {
        "boxes": np.array([[[[0, 0, 1, 1], [0, 0, 0.5, 0.5], [0, 0, 0, 0]]]], np.float32),
        "classes": np.array([[[2, 0, 0]]], np.float32),
        "scores": np.array([[[0.9, 0.8, 0]]], np.float32),
        "count": np.array([[2]], np.float32),
    }
    labels = np.empty(1, object)
    labels[0] = [[0, 0, 1, 1, 2], [0, 0, 0.5, 0.5, 0]]
    metric = metric_named("mAP@0.5", labels=labels, class_names=None)
    assert score(metric, Observed(outputs, labels, None, {})) == pytest.approx(1)


def test_names_of_metrics() -> None:
    for name in METRICS:
        if ":" not in name:
            assert metric_named(name, labels=None, class_names=None).name == name
    assert metric_named("f1", labels=np.array(["a b"]), class_names=None).__class__ is TextF1
    with pytest.raises(UsageError, match="there is no metric 'topp'; choose one of top1"):
        metric_named("topp", labels=None, class_names=None)
    with pytest.raises(UsageError, match="decode is for metrics of text and boxes"):
        metric_named("top1", labels=None, class_names=None, decode="json:loads")
