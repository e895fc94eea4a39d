# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.accuracy.conftest import quantize_by_aeq

from litesmith import samples, zoo
from litesmith.accuracy import LayerReport, diagnose, evaluate
from litesmith.accuracy._correspond import correspond
from litesmith.data import Dataset
from litesmith.errors import DataError, UsageError
from litesmith.model import Builder, Model, Quantization
from litesmith.model._channel_scales import ChannelScales, rescaled
from litesmith.model._expose import expose
from litesmith.optimize import Recipe, channels, fold, quantize
from litesmith.optimize._recipe import quantize_arguments


@pytest.fixture(scope="module")
def data(assets: Path) -> Dataset:
    return Dataset.from_arrays(np.load(assets / "mlperf_tiny" / "kws_test800.npz")["x"][:32])


@pytest.fixture(scope="module")
def good(kws_int8: Model) -> Model:
    """The int8 model with room for its scores, which ai-edge-quantizer clips."""
    return with_scale(kws_int8, 10, 2)


@pytest.fixture(scope="module")
def report(kws_float: Path, kws_int8: Model, data: Dataset) -> LayerReport:
    return diagnose(kws_float, kws_int8, data)


def with_scale(model: Model, operator: int, factor: float) -> Model:
    """Return the model with a coarser or finer scale at the output of an operator."""
    graph = model.main
    index = graph.operators[operator].outputs[0]
    tensors = list(graph.tensors)
    tensors[index] = replace(tensors[index], quantization=_times(tensors[index].quantization, factor))
    for reader in graph.consumers()[index]:  # a bias counts in steps of input times weights
        if len(graph.operators[reader].inputs) < 3:
            continue
        bias = graph.operators[reader].inputs[2]
        stored = tensors[bias].with_array(np.rint(tensors[bias].array() / factor).astype(np.int32))
        tensors[bias] = replace(stored, quantization=_times(tensors[bias].quantization, factor))
    return model.with_main(replace(graph, tensors=tuple(tensors)))


def _times(quantization: Quantization | None, factor: float) -> Quantization:
    assert quantization is not None
    return replace(quantization, scale=tuple(scale * factor for scale in quantization.scale))


def renamed(model: Model) -> Model:
    tensors = tuple(replace(tensor, name=f"{number}") for number, tensor in enumerate(model.main.tensors))
    return model.with_main(replace(model.main, tensors=tensors))


def test_every_layer_is_compared(report: LayerReport, kws_int8: Model) -> None:
    assert [layer.index for layer in report.layers] == list(range(len(kws_int8.main.operators)))
    assert report.unmatched == ()
    assert sum(layer.share for layer in report.layers) == pytest.approx(1)
    assert all(layer.sqnr_db > 3 for layer in report.layers)
    assert report.worst[0].share == max(layer.share for layer in report.layers)


def test_a_good_layer_diverges_little(kws_float: Path, good: Model, data: Dataset) -> None:
    layers = diagnose(kws_float, good, data).layers
    assert all(0 <= layer.kl < 0.1 for layer in layers)
    assert all(layer.isolated_kl is not None and 0 <= layer.isolated_kl < 0.02 for layer in layers)
    assert layers[0].kl == layers[0].isolated_kl  # nothing before it has an error


def test_the_last_layer_is_the_output(report: LayerReport) -> None:
    (output,) = report.outputs
    assert report.layers[-1].sqnr_db == pytest.approx(output.sqnr_db, abs=1e-4)
    assert report.layers[-1].cosine == pytest.approx(output.cosine, abs=1e-5)
    assert output.kl is not None
    assert 0 < output.kl < 1
    assert output.agreement is not None
    assert 0.8 < output.agreement <= 1


def test_the_first_layer_has_no_errors_but_its_own(kws_float: Path, kws_int8: Model, data: Dataset) -> None:
    first = diagnose(kws_float, kws_int8, data).layers[0]  # of a model so small, each sample is also run alone
    assert first.isolated_sqnr_db == pytest.approx(first.sqnr_db, abs=1e-6)


def test_isolated_error_is_what_the_operator_does_alone(kws_float: Path, kws_int8: Model, data: Dataset) -> None:
    # The second layer's input, rounded by hand, through the quantized operator alone.
    from ai_edge_litert.interpreter import Interpreter

    layer = diagnose(kws_float, kws_int8, data[:4]).layers[1]
    float_graph, graph = Model.load(kws_float).main, kws_int8.main
    operator = graph.operators[1]
    given, back = operator.inputs[0], operator.outputs[0]
    alone = kws_int8.with_main(replace(graph, operators=(operator,), inputs=(given,), outputs=(back,)))
    quantized = Interpreter(model_content=replace(alone, signatures=()).to_bytes())
    inner = (float_graph.operators[1].inputs[0], float_graph.operators[1].outputs[0])
    real = Interpreter(model_content=replace(expose(Model.load(kws_float), inner), signatures=()).to_bytes())
    quantized.allocate_tensors()
    real.allocate_tensors()
    signal = noise = 0.0
    for sample in data[:4]:
        real.set_tensor(float_graph.inputs[0], sample.x[None])
        real.invoke()
        x = real.get_tensor(float_graph.operators[1].inputs[0])
        expected = real.get_tensor(float_graph.operators[1].outputs[0])
        quantized.set_tensor(quantized.get_input_details()[0]["index"], _integers(x, graph.tensors[given]))
        quantized.invoke()
        stored = quantized.get_tensor(quantized.get_output_details()[0]["index"])
        signal += float(np.square(expected).sum())
        noise += float(np.square(_reals(stored, graph.tensors[back]) - expected).sum())
    assert layer.isolated_sqnr_db == pytest.approx(10 * math.log10(signal / noise), abs=0.05)


def _integers(values: Any, tensor: Any) -> Any:
    scale, zero = tensor.quantization.scale[0], tensor.quantization.zero_point[0]
    return np.clip(np.rint(values / np.float32(scale)) + zero, -128, 127).astype(np.int8)


def _reals(stored: Any, tensor: Any) -> Any:
    return (stored.astype(np.float32) - tensor.quantization.zero_point[0]) * tensor.quantization.scale[0]


def test_graphs_correspond_without_names(kws_float: Path, kws_int8: Model) -> None:
    model = Model.load(kws_float)
    by_name = correspond(model, kws_int8)
    assert correspond(model, renamed(kws_int8)) == by_name
    assert correspond(renamed(model), kws_int8).matches == by_name.matches


@pytest.mark.parametrize("recipe", ["dynamic_wi8_afp32", "weight_only_wi8_afp32"])
def test_quantized_weights_alone(kws_float: Path, data: Dataset, recipe: str) -> None:
    result = diagnose(kws_float, quantize_by_aeq(kws_float, (), recipe), data)
    weighted = [x for x in result.layers if x.kind in ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED")]
    assert len(weighted) == 10
    assert all(layer.dtype == "float32" and layer.quantized_low is None for layer in result.layers)
    assert all(x.size_bytes < 0.5 * x.float_bytes for x in weighted)
    assert result.outputs[0].sqnr_db > 20
    exact = [x for x in result.layers if x.isolated_sqnr_db == math.inf]
    assert {x.kind for x in exact} >= {"AVERAGE_POOL_2D", "SOFTMAX"}
    assert all(x.share == 0 for x in exact)
    assert result.worst[0].causes[0].kind == "weights"


def test_the_gain_in_float_is_measured(kws_float: Path, data: Dataset) -> None:
    """Undo the quantization of the worst layer's weights by hand: it is what was measured."""
    real, weights_only = Model.load(kws_float), quantize_by_aeq(kws_float, (), "weight_only_wi8_afp32")
    before = diagnose(real, weights_only, data, confirm=2)
    worst = before.worst[0]
    assert [x.float_gain_db is not None for x in before.worst[:3]] == [True, True, False]
    match = next(m for m in correspond(real, weights_only).matches if m.operator == worst.index)
    graph = weights_only.main
    target = graph.operators[worst.index].inputs[1]
    tensors = list(graph.tensors)
    original = real.main.tensors[real.main.operators[match.float_operator].inputs[1]]
    tensors[target] = replace(tensors[target], buffer=original.buffer)
    kept = tuple(o for o in graph.operators if target not in o.outputs)
    after = diagnose(real, weights_only.with_main(replace(graph, tensors=tuple(tensors), operators=kept)), data)
    assert worst.float_gain_db == pytest.approx(after.outputs[0].sqnr_db - before.outputs[0].sqnr_db, abs=0.01)


def test_an_integer_layer_in_float(kws_float: Path, good: Model, data: Dataset) -> None:
    worst = diagnose(kws_float, with_scale(good, 4, 64), data, confirm=1).worst[0]
    assert worst.index == 4
    assert worst.float_gain_db is not None
    assert abs(worst.float_gain_db) < 3  # its output is rounded to the bad scale still


@pytest.mark.parametrize(
    ("factor", "kind", "change"),
    [(0.2, "saturation", "wider range"), (64, "outlier", "ranges percentile"), (3000, "dead", "calibrate again")],
)
def test_a_wrong_scale_is_found_and_named(
    kws_float: Path, good: Model, data: Dataset, factor: float, kind: str, change: str
) -> None:
    result = diagnose(kws_float, with_scale(good, 4, factor), data)
    worst = result.worst[0]
    assert worst.index == 4
    assert worst.share > 0.3
    assert kind in {cause.kind for cause in worst.causes}
    assert worst.kl > 0.05
    assert worst.isolated_kl is not None
    assert worst.isolated_kl > 0.05
    assert worst.repair is not None
    assert change in worst.repair.change
    assert "operator 4 (CONV_2D)" in worst.repair.change
    # The scale that was right before is the repair.
    gained_db = diagnose(kws_float, good, data).outputs[0].sqnr_db - result.outputs[0].sqnr_db
    assert gained_db > 0.5
    assert worst.repair.gain_db > 0.2 * gained_db


def test_clipped_scores_are_found_behind_a_softmax(kws_float: Path, good: Model, data: Dataset) -> None:
    """The repair that is named, a wider range of the scores, is the one that helps."""
    before, after = diagnose(kws_float, with_scale(good, 10, 0.15), data), diagnose(kws_float, good, data)
    worst = before.worst[0]
    assert (worst.index, worst.kind, worst.causes[0].kind) == (10, "FULLY_CONNECTED", "saturation")
    assert before.layers[11].causes[0].kind == "ties"
    assert after.outputs[0].sqnr_db > before.outputs[0].sqnr_db + 3
    assert "saturation" not in {cause.kind for cause in after.layers[10].causes}


def dense_pair(scale: float) -> tuple[Model, Model]:
    """Return a float layer whose channels have unlike sizes, and its int8 version with one output scale."""
    weight = np.diag([100, 1, 1, 1, 1, 1]).astype(np.float32)
    float_builder, builder = Builder(), Builder()
    x = float_builder.input("x", (1, 6))
    real = float_builder.build({"y": float_builder.fully_connected(x, 6, weight=weight, bias=False)})
    given = builder.input("x", (1, 6), "int8", quantization=Quantization((1 / 127,), (0,)))
    result = builder.fully_connected(given, 6, weight=weight, bias=False)
    model = builder.build({"y": result})
    tensors = list(model.main.tensors)
    weights_at = model.main.operators[0].inputs[1]
    scales = tuple(float(s) for s in np.diag(weight) / 127)
    integers = tensors[weights_at].with_array(np.diag([127] * 6).astype(np.int8), "int8")
    tensors[weights_at] = replace(integers, quantization=Quantization(scales, (0,) * 6, 0))
    tensors[result.index] = replace(tensors[result.index], dtype="int8", quantization=Quantization((scale,), (0,)))
    operator = replace(model.main.operators[0], version=4)
    return real, model.with_main(replace(model.main, tensors=tuple(tensors), operators=(operator,)))


def test_channels_of_unlike_size_are_found() -> None:
    real, quantized = dense_pair(100 / 127)
    samples = np.random.default_rng(0).uniform(-1, 1, (64, 6)).astype(np.float32)
    (layer,) = diagnose(real, quantized, Dataset.from_arrays(samples)).layers
    causes = {cause.kind for cause in layer.causes}
    assert "channel-spread" in causes
    assert layer.share == 1


def test_the_repairs_are_options_of_quantize_and_help() -> None:
    """Each repair, added to the options that the model was made with, brings the outputs closer."""
    model, train = samples.model(), samples.dataset("train").take(64)
    test = samples.dataset("test").take(32)

    def measured(**options: Any) -> LayerReport:
        return diagnose(model, quantize(model, data=train, **options).model, test)

    before = measured(recover=())
    first = before.repairs[0]
    assert (first.recipe, first.option) == ("equalize", "--recover equalize")
    assert "channel-spread" in {cause.kind for cause in before.worst[0].causes}
    after = measured(recover=(first.recipe,))
    assert after.outputs[0].sqnr_db > before.outputs[0].sqnr_db + first.gain_db

    rules = [repair for repair in after.repairs if repair.recipe.startswith("int16x8:#")][:6]
    assert all(repair.option.startswith("--rule int16x8:#") for repair in rules)
    (step,) = Recipe.parse(" + ".join(["int8(equalize)", *(repair.recipe for repair in rules)])).steps
    assert measured(**quantize_arguments(step)).outputs[0].sqnr_db > after.outputs[0].sqnr_db + 0.3


def test_equalized_channels_are_compared_with_their_like() -> None:
    """Equalization rescales inner tensors; that is no error of the layers, and the outputs tell."""
    model, train = samples.model(), samples.dataset("train").take(64)
    quantized = quantize(model, data=train, recover=("equalize",)).model
    report = diagnose(model, Model.from_bytes(quantized.to_bytes()), samples.dataset("test").take(16))
    assert report.outputs[0].sqnr_db > 25
    assert min(layer.sqnr_db for layer in report.layers) > 15
    assert min(layer.isolated_sqnr_db or 0 for layer in report.layers) > 25


def test_a_change_that_several_layers_want_counts_for_all() -> None:
    model, train = samples.model(), samples.dataset("train").take(16)
    report = diagnose(model, quantize(model, data=train, recover=()).model, train)
    single = [repair for layer in report.layers for repair in layer.repairs if repair.recipe == "equalize"]
    joined = next(repair for repair in report.repairs if repair.recipe == "equalize")
    assert len(single) > 1
    assert joined.gain_db > max(repair.gain_db for repair in single)
    assert f"and {len(single) - 1} more" in joined.change
    assert [r.gain_db for r in report.repairs] == sorted((r.gain_db for r in report.repairs), reverse=True)


def test_time_is_joined_and_formats_agree(kws_float: Path, kws_int8: Model, data: Dataset, tmp_path: Path) -> None:
    result = diagnose(kws_float, kws_int8, data, samples=8, time_us={0: 12.5})
    assert (result.layers[0].time_us, result.layers[1].time_us) == (12.5, None)
    assert LayerReport.from_json(result.to_json()) == result
    rows = list(csv.DictReader(io.StringIO(result.to_csv(tmp_path / "layers.csv"))))
    assert [int(row["index"]) for row in rows] == [layer.index for layer in result.layers]
    assert float(rows[3]["sqnr_db"]) == result.layers[3].sqnr_db
    assert (tmp_path / "layers.csv").read_text(encoding="utf-8").startswith("index,kind,name")
    first = result.layers[0]
    assert first.repair is not None
    assert (float(rows[0]["kl"]), rows[0]["kernel"]) == (first.kl, first.repair.kernel)
    shown = json.loads(result.model_explorer_node_data())["main"]["results"]
    assert shown["0"]["value"] == pytest.approx(100 * first.share, abs=1e-3)
    blame, so_far, alone = result.plot().data
    assert len(blame.x) == len(result.layers)
    assert (so_far.y[0], alone.y[0]) == (first.sqnr_db, first.isolated_sqnr_db)


@pytest.fixture(scope="module")
def pictures() -> Dataset:
    return Dataset.from_arrays(np.random.default_rng(0).normal(size=(16, 32, 32, 3)).astype(np.float32))


@pytest.fixture(scope="module")
def thin() -> Model:
    return zoo.build("resnet_8")


def test_folded_layers_are_compared(thin: Model, pictures: Dataset) -> None:
    """Folding changes shapes, not values: each layer has the error that it has in the model as it was."""
    plain = diagnose(thin, quantize(thin, data=pictures, recover=()).model, pictures)
    folded = diagnose(thin, quantize(fold(thin).model, data=pictures, recover=()).model, pictures, confirm=1)
    assert (folded.unmatched, folded.narrower) == ((), ())
    assert folded.layers[0].shape == (1, 32, 8, 64)
    assert [layer.kind for layer in folded.layers] == [layer.kind for layer in plain.layers]
    for ours, theirs in zip(folded.layers, plain.layers, strict=True):
        assert ours.sqnr_db == pytest.approx(theirs.sqnr_db, abs=2)
        assert ours.isolated_sqnr_db == pytest.approx(theirs.isolated_sqnr_db, abs=2)
        assert ours.share == pytest.approx(theirs.share, abs=0.05)
    assert "give the folded float model" in folded.notes[0]
    assert plain.notes == ()


def test_folded_layers_in_float_are_exact(thin: Model, pictures: Dataset) -> None:
    report = diagnose(thin, fold(thin).model, pictures)
    assert len(report.layers) == len(thin.main.operators)
    assert min(layer.sqnr_db for layer in report.layers) > 90


def test_layers_with_fewer_channels_are_told_and_the_rest_is_compared(thin: Model, pictures: Dataset) -> None:
    narrow = channels(thin, keep=0.5, data=pictures, rules=["skip:#8"]).model
    quantized = quantize(narrow, data=pictures, recover=()).model
    report = diagnose(thin, quantized, pictures, confirm=1)
    alike = [
        new.name
        for one, other in zip(thin.main.operators, narrow.main.operators, strict=True)
        for old, new in [(thin.main.tensors[one.outputs[0]], narrow.main.tensors[other.outputs[0]])]
        if old.shape == new.shape
    ]
    assert 1 < len(alike) < len(thin.main.operators)
    assert [layer.name for layer in report.layers] == alike
    assert report.unmatched == ()
    assert len(report.narrower) + len(report.layers) == len(thin.main.operators)
    assert report.layers[-1].sqnr_db == pytest.approx(report.outputs[0].sqnr_db, abs=1e-4)
    assert "1 CONV_2D" in report.narrower
    assert "give the narrower float model" in report.notes[0]
    assert report.worst == ()  # a layer that reads fewer channels is not to blame for what they lost
    assert all(repair.gain_db == 0 for repair in report.repairs)
    expected = evaluate(quantized, pictures, metric="agreement", reference=thin).value
    assert report.outputs[0].agreement == expected


def test_channels_that_were_rescaled_after_they_were_removed(thin: Model, pictures: Dataset) -> None:
    """The record of equalization counts the channels and operators of the model that was quantized."""
    for changed in (channels(thin, keep=0.5, data=pictures).model, fold(thin).model):
        writer, reader = [i for i, op in enumerate(changed.main.operators) if op.kind == "CONV_2D"][1:3]
        width = changed.main.tensors[changed.main.operators[writer].outputs[0]].shape[-1]
        scaled = rescaled(changed, [ChannelScales(0, (writer,), (reader,), tuple(range(width)))])
        with pytest.raises(DataError, match="that is the narrower or folded float model"):
            diagnose(thin, quantize(scaled, data=pictures, recover=()).model, pictures)


def test_ties_agree_with_evaluate(kws_float: Path, kws_int8: Model, data: Dataset) -> None:
    result = diagnose(kws_float, kws_int8, data)
    scored = evaluate(kws_int8, data, metric="agreement", reference=kws_float)
    assert result.outputs[0].agreement == scored.value
    assert scored.ties is not None
    assert result.outputs[0].ties == scored.ties.share


def test_models_that_do_not_correspond(assets: Path, kws_float: Path, kws_int8: Model, data: Dataset) -> None:
    with pytest.raises(
        DataError, match=r"the inputs of the float one are \[1, 32, 32, 3\], those of the quantized one"
    ):
        diagnose(assets / "cifar10" / "resnet20_float.tflite", kws_int8, data)
    with pytest.raises(DataError, match="the first model computes in integers"):
        diagnose(kws_int8, kws_float, data)
    with pytest.raises(UsageError, match="both models are the same"):
        diagnose(kws_float, kws_float, data)
    other = Builder()
    x = other.input("input_1", (1, 49, 10, 1))
    y = other.op("SOFTMAX", other.fully_connected(x, 12), beta=1.0)
    with pytest.raises(DataError, match=r"do not correspond: only \d of 12 operators.*narrower or folded float model"):
        diagnose(other.build({"y": y}), renamed(kws_int8), data)
    with pytest.raises(UsageError, match="samples=0"):
        diagnose(kws_float, kws_int8, data, samples=0)
