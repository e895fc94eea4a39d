# SPDX-License-Identifier: Apache-2.0
"""Ranges that were kept give the same model again, and those of another model or of a slip of the hand are refused."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from litesmith import evaluate, samples
from litesmith.errors import OptimizeError, UsageError
from litesmith.model import Buffer, Builder, Metadata, Model
from litesmith.optimize import Ranges, calibrate, quantize
from litesmith.optimize._recovery import OutputMeter
from litesmith.train._metadata import InputMeaning, with_metadata

Array = np.ndarray[Any, Any]


def test_ranges_that_were_kept_give_the_accuracy_again() -> None:
    model, data, test = samples.model(), samples.dataset("train").take(60), samples.dataset("test").take(500)
    first = quantize(model, data=data)
    assert "equalize" in {report.name for report in first.coverage.recovery if report.kept}
    assert first.ranges is not None
    kept = Ranges.from_json(first.ranges.to_json())
    again = quantize(model, ranges=kept)
    meter = OutputMeter(model, data)
    was, now = meter.sqnr_db(first.model), meter.sqnr_db(again.model)

    assert kept == first.ranges == again.ranges
    assert was is not None
    assert now is not None
    assert now > was - 3, "what is left is the correction of biases, which needs data"
    assert evaluate(again.model, test).value >= evaluate(first.model, test).value - 0.02
    assert any("rescaled" in note for note in again.coverage.notes)


def test_ranges_of_another_model_are_refused(convnet: Model, images: list[Array]) -> None:
    ranges = calibrate(convnet, images)
    tensors = convnet.main.tensors
    first = ranges.entries[0].tensor
    renamed = tuple(replace(t, name="other") if i == first else t for i, t in enumerate(tensors))
    with pytest.raises(OptimizeError, match=f"tensor {first} of subgraph 0 is 'image' there, and is 'other' here"):
        quantize(convnet.with_main(replace(convnet.main, tensors=renamed)), ranges=ranges)
    longer = convnet.with_main(replace(convnet.main, tensors=(*tensors, replace(tensors[0], name="more"))))
    with pytest.raises(OptimizeError, match=f"it has {len(tensors)} tensors, this one {len(tensors) + 1}"):
        quantize(longer, ranges=ranges)
    with pytest.raises(OptimizeError, match="does not exist here"):
        quantize(samples.model(), ranges=replace(ranges, entries=(replace(ranges.entries[0], tensor=10**6),)))
    scales = quantize(samples.model(), data=samples.dataset("train").take(8), recover=("equalize",)).ranges
    assert scales is not None
    with pytest.raises(OptimizeError, match="channel_scales"):
        quantize(convnet, ranges=replace(ranges, channel_scales=scales.channel_scales))


@pytest.mark.parametrize("wrong", [{"low": 3.0, "high": 1.0}, {"low": "nan"}, {"seen_high": "inf"}])
def test_ranges_edited_by_a_slip_are_refused(convnet: Model, images: list[Array], wrong: dict[str, Any]) -> None:
    document = json.loads(calibrate(convnet, images).to_json())
    document["entries"][1].update(wrong)
    with pytest.raises(OptimizeError, match=f"{document['entries'][1]['name']}.*no range"):
        quantize(convnet, ranges=Ranges.from_json(json.dumps(document)))


# ------------------------------------------------------------------------------------------- without data


def pixel_net(inputs: int = 1) -> Model:
    """Return a net for pixels of 0 to 255."""
    b = Builder("pixels", seed=2)
    images = [b.input(f"image{number or ''}", (1, 8, 8, 3)) for number in range(inputs)]
    layers = [
        b.conv2d(b.op("MUL", image, np.full((1,), 1 / 255, np.float32)), 8, kernel=3, name=f"c{n}")
        for n, image in enumerate(images)
    ]
    x = layers[0] if inputs == 1 else b.op("ADD", *layers, name="sum")
    return b.build({"y": b.conv2d(b.op("RELU", x, name="relu"), 4, name="last")})


def pixels(count: int = 8) -> list[Array]:
    return list(np.random.default_rng(0).uniform(0, 255, (count, 1, 8, 8, 3)).astype(np.float32))


def closeness(model: Model, made: Model) -> float:
    found = OutputMeter(model, pixels()).sqnr_db(made)
    assert found is not None
    return found


def test_the_range_of_the_input_can_be_said() -> None:
    model = pixel_net()
    assumed, said = quantize(model), quantize(model, input_range=(0, 255))
    named = quantize(model, input_range={"image": (0, 255)})

    assert any("'image' is assumed to be normalized" in note and "-6 and 6" in note for note in assumed.coverage.notes)
    assert any("'image' is taken to lie between 0 and 255, as was said" in note for note in said.coverage.notes)
    assert closeness(model, assumed.model) < 3
    assert closeness(model, said.model) > 20
    assert named.model.to_bytes() == said.model.to_bytes()


def test_several_inputs_are_said_by_name() -> None:
    model = pixel_net(2)
    notes = quantize(model, input_range={"image1": (0, 255)}).coverage.notes
    assert any("'image1' is taken to lie between 0 and 255" in note for note in notes)
    assert any("'image' is assumed to be normalized" in note for note in notes)
    with pytest.raises(UsageError, match="which input.*image, image1"):
        quantize(model, input_range=(0, 255))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"input_range": (3, 1)}, "3 to 1 is no range of the input 'image'"),
        ({"input_range": {"photo": (0, 1)}}, "no float input 'photo'; the float inputs are: image"),
        ({"input_range": (0, 1), "data": pixels(2)}, "without data"),
        ({"input_range": (0, 1), "scheme": "dynamic"}, "the scheme dynamic"),
    ],
)
def test_ranges_of_inputs_that_make_no_sense(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        quantize(pixel_net(), **options)


def test_the_metadata_of_the_file_tell_the_range() -> None:
    model = pixel_net()
    told = with_metadata(model, ("a",), InputMeaning("image", 3, (0.0,), (1.0,)), name="pixels")
    normalized = with_metadata(model, ("a",), InputMeaning("image", 3, (127.5,), (127.5,)), name="pixels")
    made = quantize(told)

    assert any("between 0 and 255, as the file's metadata say" in note for note in made.coverage.notes)
    assert closeness(model, made.model) > 20
    assert any("between -1 and 1, as the file's metadata say" in note for note in quantize(normalized).coverage.notes)
    assert any("between 0 and 9, as was said" in n for n in quantize(told, input_range=(0, 9)).coverage.notes)


def test_damaged_metadata_tell_nothing() -> None:
    model = with_metadata(pixel_net(), ("a",), InputMeaning("image", 3, (0.0,), (1.0,)), name="pixels")
    data = bytes(model.metadata[-1].buffer.data)
    random = np.random.default_rng(0)
    for length in (8, 20, len(data) // 2, len(data)):
        spoiled = bytearray(data[:length])
        for place in random.integers(8, max(length, 9), 6):
            spoiled[place % length] = 255
        spoiled[4:8] = b"M001"
        entry = Metadata(model.metadata[-1].name, Buffer(bytes(spoiled)))
        assert quantize(replace(model, metadata=(entry,)), check=False).coverage.notes
