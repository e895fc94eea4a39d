# SPDX-License-Identifier: Apache-2.0
"""Recovery: the defaults keep the sample's accuracy where careless int8 loses, and each pass says what it gained."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tests.optimize.conftest import are_shared, make_twins, run, sqnr_db

from litesmith import evaluate, samples
from litesmith.errors import OptimizeError, UsageError
from litesmith.model import Builder, Model
from litesmith.optimize import Coverage, calibrate, quantize
from litesmith.optimize._channel_groups import channel_groups
from litesmith.optimize._equalize import apply as equalize_pass
from litesmith.optimize._recovery import OutputMeter, default_passes
from litesmith.optimize._request import Request

Array = np.ndarray[Any, Any]


def uneven() -> Model:
    """Return a net whose hidden channels differ in size by orders of magnitude, and can be rescaled."""
    chance = np.random.default_rng(0)
    b = Builder()
    spread = np.exp(chance.normal(0, 2, 16)).astype(np.float32)
    first = chance.standard_normal((16, 3, 3, 3)).astype(np.float32) * spread[:, None, None, None]
    second = chance.standard_normal((8, 1, 1, 16)).astype(np.float32) / spread
    hidden = b.conv2d(b.input("x", (1, 8, 8, 3)), 16, kernel=3, activation="RELU", weight=first, bias=False)
    return b.build({"y": b.conv2d(hidden, 8, weight=second, name="second")})


def draw(count: int, seed: int) -> list[Array]:
    return list(np.random.default_rng(seed).standard_normal((count, 1, 8, 8, 3)).astype(np.float32))


def test_the_defaults_keep_what_careless_int8_loses() -> None:
    model, train, test = samples.model(), samples.dataset("train").take(200), samples.dataset("test").take(1500)
    real = evaluate(model, test).value
    careless = evaluate(quantize(model, data=train, recover=()).model, test).value
    careful = quantize(model, data=train)

    assert real - evaluate(careful.model, test).value <= 0.005
    assert real - careless >= 0.01
    first = careful.coverage.recovery[0]
    assert (first.name, first.kept) == ("equalize", True)
    assert first.before_db is not None
    assert first.after_db is not None
    assert first.after_db > first.before_db + 5
    assert Coverage.from_json(careful.coverage.to_json()) == careful.coverage


def test_equalization_changes_nothing_in_float_and_much_in_int8() -> None:
    model, unseen = uneven(), draw(8, 1)
    assert channel_groups(model.main)
    expected = run(model, unseen)
    changed = equalize_pass(model, Request("int8"), draw(8, 0))

    assert sqnr_db(expected, run(changed, unseen)) > 100
    plain, equalized = (quantize(model, data=draw(8, 0), recover=names).model for names in ((), ("equalize",)))
    assert sqnr_db(expected, run(equalized, unseen)) > sqnr_db(expected, run(plain, unseen)) + 6


def test_what_a_pass_gained_is_what_the_outputs_gained() -> None:
    model, data = uneven(), draw(8, 0)
    (report,) = quantize(model, data=data, recover=("equalize",)).coverage.recovery
    expected = run(model, data)
    for names, stated in (((), report.before_db), (("equalize",), report.after_db)):
        got = run(quantize(model, data=data, recover=names).model, data)
        assert stated == pytest.approx(sqnr_db(expected, got), abs=1e-3)
    assert "equalize" in str(report)


def test_a_default_pass_that_does_not_help_is_left_out() -> None:
    b = Builder()
    weight = np.diag([127, 64, 32]).astype(np.float32)  # exact in int8, as are the samples: nothing is left to gain
    model = b.build({"y": b.fully_connected(b.input("x", (1, 3)), 3, weight=weight, bias=np.zeros(3, np.float32))})
    data = [np.array([[1, 0, 0]], np.float32), np.array([[0, 1, 0]], np.float32), np.array([[0, 0, 1]], np.float32)]
    coverage = quantize(model, data=data).coverage
    assert not any(report.kept and (report.after_db or 0) < (report.before_db or 0) for report in coverage.recovery)


def test_trimming_cuts_large_weights_where_the_others_gain_by_it() -> None:
    chance = np.random.default_rng(3)
    weight = chance.standard_normal((8, 400)).astype(np.float32)
    weight[:, 0] = 12.0  # steps three times as coarse, for an input that is hardly ever there
    b = Builder()
    model = b.build({"y": b.fully_connected(b.input("x", (1, 400)), 8, weight=weight, bias=np.zeros(8, np.float32))})
    data = list(chance.standard_normal((32, 1, 400)).astype(np.float32))
    for sample in data:
        sample[:, 0] = 0
    options = {"scheme": "int8w4", "data": data, "head": "same"}
    (report,) = quantize(model, recover=("trim",), **options).coverage.recovery
    assert report.name == "trim"
    assert (report.after_db or 0) > (report.before_db or 0) + 1

    again = quantize(model, recover=(), weight_ranges="mse", **options).model
    assert quantize(model, recover=("trim",), **options).model.to_bytes() == again.to_bytes()


def test_probabilities_are_compared_by_their_logarithm() -> None:
    b = Builder()
    model = b.build({"y": b.op("SOFTMAX", b.input("x", (1, 3)), beta=1.0)})
    meter = OutputMeter(model, [np.array([[9, 0, 1]], np.float32)])
    assert meter.sqnr_db(model) == pytest.approx(200)
    other = b.build({"y": b.op("SOFTMAX", b.input("z", (1, 3)), beta=0.5)})
    found = meter.sqnr_db(other)
    assert found is not None
    assert found < 20


def test_a_generator_is_enough() -> None:
    model = uneven()

    def stream() -> Iterator[Array]:
        yield from draw(8, 0)

    once, listed = quantize(model, data=stream()), quantize(model, data=draw(8, 0))
    assert once.model.to_bytes() == listed.model.to_bytes()
    assert once.ranges is not None
    assert once.ranges.samples == 8


def test_weights_of_several_signatures_stay_shared_and_as_they_are(twins: Model) -> None:
    plain, equalized = (quantize(twins, data=draw(8, 0), recover=names) for names in ((), ("equalize",)))
    assert are_shared(equalized.model)
    assert equalized.model.to_bytes() == plain.model.to_bytes()
    assert any("equalize leaves 8 layers alone, first #0 CONV_2D 'stem'" in n for n in equalized.coverage.notes)


def test_what_one_signature_makes_of_weights_the_others_take() -> None:
    model = make_twins(6)  # which the samples do not fit
    small = quantize(model, scheme="weights4", data=draw(8, 0), recover=("gptq",)).model
    weights = [op.inputs[1] for op in model.main.operators]
    first, second = (graph.tensors for graph in small.subgraphs)
    assert [first[w].buffer for w in weights] == [second[w].buffer for w in weights]
    assert are_shared(small)


def _labels() -> Model:
    """Return a net that says which channel is the largest, as an integer."""
    b = Builder()
    model = uneven()
    weights = [model.main.tensors[op.inputs[1]].array() for op in model.main.operators]
    hidden = b.conv2d(b.input("x", (1, 8, 8, 3)), 16, kernel=3, activation="RELU", weight=weights[0], bias=False)
    scores = b.conv2d(hidden, 8, weight=weights[1], name="second")
    return b.build({"y": b.op("ARG_MAX", scores, np.array(3, np.int32), name="label", output_type="INT32")})


def test_integer_outputs_are_measured_by_the_floats_behind_them() -> None:
    coverage = quantize(_labels(), data=draw(8, 0)).coverage
    first = coverage.recovery[0]
    assert (first.name, first.kept) == ("equalize", True)
    assert (first.after_db or 0) > (first.before_db or 0) + 3 > 3


def test_what_cannot_be_measured_is_left_out() -> None:
    b = Builder()
    zero = np.zeros((4, 3), np.float32)
    y = b.fully_connected(b.input("x", (1, 3)), 4, weight=zero, bias=np.zeros(4, np.float32))
    model = b.build({"y": b.fully_connected(y, 4, bias=np.zeros(4, np.float32))})
    coverage = quantize(model, data=[np.ones((1, 3), np.float32)]).coverage
    assert [report.kept for report in coverage.recovery] == [False] * 4
    assert "cannot be measured" in str(coverage.recovery[0])


def test_given_ranges_are_not_replaced_in_silence() -> None:
    model, data = uneven(), draw(8, 0)
    ranges = calibrate(model, data)
    for name in ("equalize", "clip"):
        with pytest.raises(UsageError, match=f"do not hold after {name}.*give data"):
            quantize(model, ranges=ranges, recover=(name,))
        assert any("replaced" in n for n in quantize(model, ranges=ranges, data=data, recover=(name,)).coverage.notes)
    assert not quantize(model, ranges=ranges, data=data, recover=("bias",)).coverage.notes


def test_the_defaults_follow_the_scheme() -> None:
    assert default_passes(Request("int8")) == ("equalize", "clip", "trim", "bias")
    assert default_passes(Request("int8", method="mse")) == ("equalize", "trim", "bias")
    assert default_passes(Request("int8", weight_ranges="octav")) == ("equalize", "clip", "bias")
    assert default_passes(Request("int8w4")) == ("equalize", "clip", "gptq", "bias")
    assert default_passes(Request("weights4")) == ("equalize", "gptq", "bias")
    assert default_passes(Request("int16x8")) == ("equalize", "gptq", "bias")
    assert default_passes(Request("dynamic")) == ("gptq",)
    assert default_passes(Request("float16")) == ()


def test_passes_have_names_and_need_samples() -> None:
    with pytest.raises(UsageError, match="no recovery pass"):
        quantize(samples.model(), scheme="float16", recover=("magic",))
    with pytest.raises(OptimizeError, match="needs samples"):
        quantize(samples.model(), recover=("bias",))


def test_equalize_acts_on_the_layers_that_rules_make_integers() -> None:
    model, data = uneven(), draw(16, 1)
    whole, mixed, first = (
        quantize(model, scheme=scheme, rules=rules, data=data, head="same", recover=("equalize",))
        for scheme, rules in (("int8", ()), ("float", ("int8:CONV_2D",)), ("float", ("int8:#0",)))
    )
    plain = quantize(model, scheme="float", rules=("int8:CONV_2D",), data=data, recover=()).model
    expected = run(model, data)

    assert mixed.coverage.recovery[0].changed == whole.coverage.recovery[0].changed > 0
    assert first.coverage.recovery[0].changed > 0, "what the layer writes is rounded"
    assert sqnr_db(expected, run(mixed.model, data)) > sqnr_db(expected, run(plain, data)) + 3
    halves = quantize(model, scheme="float", rules=("float16:CONV_2D",), data=data, recover=("equalize",))
    assert halves.coverage.recovery[0].changed == 0
