# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from litesmith.accuracy import AccuracyComparison, Evaluation, compare_accuracy, evaluate
from litesmith.data import Dataset
from litesmith.errors import DataError, UsageError
from litesmith.model import Builder, Model

CIFAR = "scale=1/255 mean=.485,.456,.406 std=.229,.224,.225"


@pytest.fixture(scope="module")
def kws(assets: Path) -> Path:
    return assets / "mlperf_tiny"


def same_predictions(first: Evaluation, second: Evaluation) -> None:
    assert first.predictions is not None
    assert second.predictions is not None
    assert first.predictions.names == second.predictions.names
    for name in first.predictions.names:
        np.testing.assert_array_equal(first.predictions[name], second.predictions[name])


def own_mean(outputs: Any, labels: Any) -> Any:
    return (outputs.reshape(len(labels), -1).argmax(axis=1) == labels).astype(float)


def own_number(outputs: Any, labels: Any) -> float:
    return float(np.mean(own_mean(outputs, labels)))


def test_known_accuracies_of_keyword_spotting(kws: Path) -> None:
    data = kws / "kws_test800.npz"
    result = evaluate(kws / "kws_dscnn_int8.tflite", data, against=kws / "kws_dscnn_float.tflite")
    assert result.value == 719 / 800  # MLPerf's own file: int8 in, int8 out, no signature
    assert result.drop is not None
    assert result.drop.value == 731 / 800
    assert result.drop.drop == pytest.approx(12 / 800)
    assert result.drop.lost is not None
    assert result.drop.won is not None
    assert result.drop.lost - result.drop.won == 12
    assert not result.drop.significant
    assert result.low < result.value < result.high
    assert result.ties is not None
    assert result.ties.samples == 3
    assert any("tie at the top" in note for note in result.notes)


def test_without_xnnpack_the_integers_are_nearly_the_same(kws: Path) -> None:
    data = kws / "kws_test800.npz"
    results = [evaluate(kws / "kws_dscnn_int8.tflite", data, kernels=k) for k in ("delegate", "builtin")]
    assert [r.kernels for r in results] == ["delegate", "builtin"]
    assert abs(results[0].value - results[1].value) <= 0.005


@pytest.mark.parametrize(("model", "right"), [("resnet_float", 9825), ("lstm_float", 9853)])
def test_known_accuracies_of_mnist(assets: Path, model: str, right: int) -> None:
    # The LSTM keeps its state between runs; each sample has to start from zero.
    result = evaluate(assets / "mnist" / f"{model}.tflite", assets / "mnist" / "test.npz", preprocess="scale=1/255")
    assert result.value == right / 10000


@pytest.mark.parametrize(
    ("model", "preprocess", "normalize"),
    [
        ("cifar10/resnet20_float.tflite", CIFAR, lambda x: (x / 255 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]),
        ("cifar10/resnet56_float.tflite", CIFAR, lambda x: (x / 255 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]),
        ("mlperf_tiny/ic_resnet8_float.tflite", "dtype=float32", lambda x: x),
    ],
)
def test_the_predictions_are_those_of_the_interpreter(
    assets: Path, model: str, preprocess: str, normalize: Any
) -> None:
    from ai_edge_litert.interpreter import Interpreter

    stored = np.load(assets / "cifar10" / "test.npz")
    images, labels = stored["x"][:60], stored["y"][:60]
    interpreter = Interpreter(str(assets / model), num_threads=1)
    interpreter.allocate_tensors()
    (given,), (back,) = interpreter.get_input_details(), interpreter.get_output_details()
    expected = []
    for image in images:
        interpreter.set_tensor(given["index"], normalize(image.astype(np.float64))[None].astype(np.float32))
        interpreter.invoke()
        expected.append(int(interpreter.get_tensor(back["index"]).argmax()))
    result = evaluate(assets / model, Dataset.from_arrays(images, labels, preprocess=preprocess))
    assert result.predictions is not None
    assert result.predictions["prediction"].tolist() == expected
    assert result.value == np.mean(expected == labels)
    assert result.value > 0.8


def test_processes_do_not_change_the_result(kws: Path) -> None:
    data = kws / "kws_test800.npz"
    one, two = (evaluate(kws / "kws_dscnn_int8.tflite", data, metric="top2", processes=n) for n in (1, 2))
    assert replace(one, processes=2, seconds=0) == replace(two, seconds=0)
    same_predictions(one, two)


def test_processes_refuse_what_cannot_be_sent(kws: Path) -> None:
    def local(outputs: Any, labels: Any) -> Any:
        return own_mean(outputs, labels)

    with pytest.raises(DataError, match="cannot be sent to other processes"):
        evaluate(kws / "kws_dscnn_float.tflite", kws / "kws_test800.npz", metric=local, processes=2)


def test_limit_draws_by_the_seed(kws: Path) -> None:
    model, data = kws / "kws_dscnn_float.tflite", kws / "kws_test800.npz"
    results = [evaluate(model, data, limit=100, seed=seed) for seed in (0, 0, 1)]
    assert results[0].samples == 100
    same_predictions(results[0], results[1])
    assert results[0].value != results[2].value


def test_agreement_needs_no_labels(kws: Path) -> None:
    samples = np.load(kws / "kws_test800.npz")["x"]
    result = evaluate(
        kws / "kws_dscnn_int8.tflite",
        Dataset.from_arrays(samples),
        metric="agreement",
        reference=kws / "kws_dscnn_float.tflite",
    )
    assert 0.85 < result.value < 1
    assert result.reference == "kws_dscnn_float.tflite"
    itself = evaluate(
        kws / "kws_dscnn_float.tflite",
        Dataset.from_arrays(samples[:50]),
        metric="mse",
        reference=kws / "kws_dscnn_float.tflite",
    )
    assert itself.value == 0


def test_several_metrics_of_one_model(kws: Path) -> None:
    model, data = kws / "kws_dscnn_float.tflite", Dataset.open(kws / "kws_test800.npz")[:200]
    top1 = evaluate(model, data)
    assert evaluate(model, data, metric="top3").value > top1.value
    assert evaluate(model, data, metric=own_mean).value == top1.value
    number = evaluate(model, data, metric=own_number, resamples=50)
    assert number.value == top1.value
    assert number.low < number.value < number.high
    assert number.interval == "bootstrap, 50 draws"


@pytest.mark.parametrize(("metric", "package"), [("f1", "sklearn"), ("auc", "sklearn")])
def test_metrics_of_libraries(kws: Path, metric: str, package: str) -> None:
    pytest.importorskip(package)
    data = Dataset.open(kws / "kws_test800.npz")
    result = evaluate(
        kws / "kws_dscnn_int8.tflite", data, metric=metric, against=kws / "kws_dscnn_float.tflite", resamples=200
    )
    assert result.low < result.value < result.high
    assert result.drop is not None
    assert result.drop.test.startswith("paired bootstrap")
    assert result.drop.drop_low < result.drop.drop < result.drop.drop_high


def test_words_from_classes(kws: Path) -> None:
    pytest.importorskip("jiwer")
    samples = np.load(kws / "kws_test800.npz")
    names = tuple(f"word{i}" for i in range(12))
    data = Dataset.from_arrays(samples["x"][:100], samples["y"][:100], class_names=names)
    top1 = evaluate(kws / "kws_dscnn_float.tflite", data)
    wer = evaluate(kws / "kws_dscnn_float.tflite", data, metric="wer")
    assert wer.value == pytest.approx(1 - top1.value)
    assert not wer.higher_is_better


def test_json_and_predictions(kws: Path, tmp_path: Path) -> None:
    float_model, data = kws / "kws_dscnn_float.tflite", Dataset.open(kws / "kws_test800.npz")[:64]
    result = evaluate(kws / "kws_dscnn_int8.tflite", data, against=float_model)
    again = Evaluation.from_json(result.to_json())
    assert again == result
    assert again.predictions is None
    assert result.predictions is not None
    saved = np.load(result.predictions.save(tmp_path / "predictions.npz"))
    np.testing.assert_array_equal(saved["prediction"], result.predictions["prediction"])
    assert saved["prediction"].shape == (64,)
    with pytest.raises(UsageError, match="there is no 'text' of each sample"):
        result.predictions["text"]


def test_compare_accuracy_of_models_and_of_evaluations(kws: Path) -> None:
    data = Dataset.open(kws / "kws_test800.npz")
    first, second = (evaluate(kws / f"kws_dscnn_{name}.tflite", data) for name in ("float", "int8"))
    compared = compare_accuracy(first, second)
    assert compared.drop.drop == pytest.approx(12 / 800)
    assert AccuracyComparison.from_json(compared.to_json()) == compared
    assert compare_accuracy(second, first).drop.drop == pytest.approx(-12 / 800)
    whole = compare_accuracy(kws / "kws_dscnn_float.tflite", kws / "kws_dscnn_int8.tflite", data)
    assert whole.drop == compared.drop
    with pytest.raises(UsageError, match="no predictions to pair"):
        compare_accuracy(first, Evaluation.from_json(second.to_json()))
    with pytest.raises(UsageError, match="cannot be paired"):
        compare_accuracy(first, evaluate(kws / "kws_dscnn_int8.tflite", data, limit=10))


def dense(weights: list[list[float]]) -> Model:
    builder = Builder()
    x = builder.input("x", (1, len(weights[0])))
    return builder.build({"y": builder.fully_connected(x, len(weights), weight=np.array(weights, np.float32))})


@pytest.mark.parametrize(
    ("options", "labels", "error", "message"),
    [
        ({}, None, DataError, "needs labels, and the dataset has none"),
        ({}, [0, 1, 2, 3], DataError, r"labels are 0 … 3, and the model has 3 classes .* label_offset=1"),
        ({}, [0.5, 1.5, 1.0, 0.0], DataError, "the labels are float64, not class numbers"),
        ({"metric": "top5"}, [0, 1, 2, 0], UsageError, "top-5 is always right: the model has 3 classes"),
        ({"metric": "agreement"}, [0, 1, 2, 0], UsageError, "compares with another model; give it as reference"),
        ({"metric": "mse"}, [0, 1, 2, 0], UsageError, "has 3 values a sample, and the label has 1; for class numbers"),
        ({"metric": "wer"}, ["a", "b", "a", "b"], UsageError, "say how it becomes text with decode"),
        ({"metric": "map"}, [0, 1, 2, 0], DataError, "holds no boxes: rows of ymin"),
        ({"output": "z"}, [0, 1, 2, 0], UsageError, "the model has no output 'z'; its outputs are"),
        ({"confidence": 95}, [0, 1, 2, 0], UsageError, "a confidence of 95 makes no sense"),
        ({"processes": 0}, [0, 1, 2, 0], UsageError, "processes must be 1 or more"),
    ],
)
def test_errors_say_what_to_do(options: dict[str, Any], labels: Any, error: type[Exception], message: str) -> None:
    data = Dataset.from_arrays(np.zeros((4, 2), np.float32), labels)
    with pytest.raises(error, match=message):
        evaluate(dense([[1, 0], [0, 1], [1, 1]]), data, **options)


def test_nan_names_the_sample() -> None:
    samples = np.array([[0, 0], [3e38, 3e38]], np.float32)
    with pytest.raises(DataError, match=r"is inf .* for sample 1; check that the preprocessing"):
        evaluate(dense([[1, 1], [0, 1], [1, 0]]), Dataset.from_arrays(samples, [0, 1]))


def test_references_of_another_shape_are_refused() -> None:
    data = Dataset.from_arrays(np.zeros((4, 2), np.float32))
    with pytest.raises(DataError, match=r"output 0 of the model is \[1, 3\] and that of the reference .* is \[1, 2\]"):
        evaluate(dense([[1, 0], [0, 1], [1, 1]]), data, metric="agreement", reference=dense([[1, 0], [0, 1]]))


def test_label_offset() -> None:
    data = Dataset.from_arrays(np.array([[1, 0], [0, 1]], np.float32), [0, 1])
    model = dense([[0, 0], [1, 0], [0, 1]])
    assert evaluate(model, data).value == 0
    assert evaluate(model, data, label_offset=1).value == 1


def test_a_model_that_remembers_takes_one_process(assets: Path) -> None:
    model = Model.load(assets / "corpus" / "21a7976a_hey_jarvis.tflite")
    shape = model.main.tensors[model.main.inputs[0]].shape
    data = Dataset.from_arrays(np.zeros((4, *shape[1:]), np.float32))
    with pytest.raises(UsageError, match="keeps resource variables .* use processes=1"):
        evaluate(model, data, metric="mse", reference=model, processes=2)
    result = evaluate(model, data, metric="mse", reference=model)
    assert any("depends on their order" in note for note in result.notes)
