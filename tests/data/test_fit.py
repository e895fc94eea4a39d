# SPDX-License-Identifier: Apache-2.0
"""Samples are brought into the shape and type of a model's inputs, or refused with the setting that helps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from litesmith.data import Dataset, InputSpec
from litesmith.errors import DataError
from litesmith.model import Model, Quantization, Signature, Subgraph, Tensor


def spec(*shape: int, name: str = "input", dtype: str = "float32", **quantization: Any) -> InputSpec:
    return InputSpec(name, shape, np.dtype(dtype), **quantization)


def data(*shape: int, dtype: str = "float32", preprocess: str | None = None) -> Dataset:
    return Dataset.from_arrays(np.ones((5, *shape), dtype), preprocess=preprocess)


@pytest.mark.parametrize(
    ("sample", "model", "fitted", "batch"),
    [
        ((8, 8, 3), (1, 8, 8, 3), (1, 8, 8, 3), (5, 8, 8, 3)),
        ((8, 8, 3), (-1, 8, 8, 3), (1, 8, 8, 3), (5, 8, 8, 3)),
        ((8, 8, 3), (-1, -1, -1, 3), (1, 8, 8, 3), (5, 8, 8, 3)),
        ((1, 8, 8, 3), (1, 8, 8, 3), (1, 8, 8, 3), (5, 8, 8, 3)),
        ((28, 28), (1, 28, 28, 1), (1, 28, 28, 1), (5, 28, 28, 1)),
        ((28, 28, 1), (1, 28, 28), (1, 28, 28), (5, 28, 28)),
        ((28, 28, 1), (-1, 28, 28), (1, 28, 28), (5, 28, 28)),
        ((640,), (640,), (640,), (5, 640)),
        ((640,), (1, 640), (1, 640), (5, 640)),
        ((7,), (-1, -1), (1, 7), (5, 7)),
        ((1, 7), (-1, -1), (1, 7), (5, 7)),
        ((), (1,), (1,), (5,)),
        ((), (), (), (5,)),
        ((1,), (), (), (5,)),
    ],
)
def test_axes_of_one_are_added_or_dropped(
    sample: tuple[int, ...], model: tuple[int, ...], fitted: tuple[int, ...], batch: tuple[int, ...]
) -> None:
    bound = data(*sample).bind([spec(*model)])

    assert bound[0].inputs["input"].shape == fitted
    assert [s.x.shape for s in bound] == [fitted] * 5
    assert next(bound.batches(5)).x.shape == batch


@pytest.mark.parametrize(
    ("sample", "model", "hint"),
    [
        ((3, 8, 8), (1, 8, 8, 3), "the sample is NCHW (3, 8, 8): set source_layout=NCHW"),
        ((8, 8, 3), (1, 3, 8, 8), "set layout=NCHW"),
        ((9, 9, 3), (1, 8, 8, 3), "add resize=8x8 to"),
        ((9, 9, 3), (1, 8, 6, 1), "add channels=gray resize=8x6 to"),
        ((8, 8), (1, 8, 8, 3), "add channels=rgb to"),
        ((8, 8, 1), (1, 8, 8, 3), "add channels=rgb to"),
        ((9, 9, 3), (1, 3, 8, 8), "add resize=8x8 layout=NCHW to"),
        ((8, 8, 3), (4, 8, 8, 3), "batches of 4: set its batch to 1"),
        ((15_000,), (1, 16_000), "set length=16000"),
        ((28, 28), (1, 784), "store it reshaped to (1, 784)"),
        ((7,), (1, 2, 3, 4, 5), "check that this data belongs to this model"),
        ((8, 8, 4), (1, 8, 8, 3), "add channels=rgb to"),
    ],
)
def test_wrong_shapes_come_with_a_hint(sample: tuple[int, ...], model: tuple[int, ...], hint: str) -> None:
    with pytest.raises(DataError) as caught:
        data(*sample).bind([spec(*model)])

    message = str(caught.value)
    assert message.startswith("sample 0 of the given arrays: wrong shape for input 'input'")
    assert f"the model takes {model}, and the sample is {sample}" in message
    assert hint in message


def test_the_hints_work() -> None:
    data(3, 8, 8, preprocess="source_layout=NCHW").bind([spec(1, 8, 8, 3)])
    data(8, 8, 3, preprocess="layout=NCHW").bind([spec(1, 3, 8, 8)])
    data(9, 9, 3, preprocess="channels=gray resize=8x6").bind([spec(1, 8, 6, 1)])
    data(9, 9, 3, preprocess="resize=8x8 layout=NCHW").bind([spec(1, 3, 8, 8)])
    data(8, 8, preprocess="channels=rgb").bind([spec(1, 8, 8, 3)])
    data(15_000, preprocess="length=16000").bind([spec(1, 16_000)])
    data(8, dtype="uint8", preprocess="dtype=float32").bind([spec(8)])
    data(8, preprocess="dtype=int8").bind([spec(8, dtype="int8")])


@pytest.mark.parametrize(
    ("have", "want"),
    [
        *(
            ("float64", "float32"),
            ("float16", "float32"),
            ("float32", "float16"),
            ("int64", "int32"),
            ("uint8", "int32"),
        ),
        *(("uint64", "int8"), ("bool", "bool"), ("int16", "int16"), ("<U3", "O"), ("S3", "O")),
    ],
)
def test_types_that_mean_the_same_are_converted(have: str, want: str) -> None:
    sample = data(4, dtype=have).bind([spec(1, 4, dtype=want)])[0].x

    assert sample.dtype == want or want == "O"
    assert np.array_equal(sample[0], data(4, dtype=have)[0].x)


@pytest.mark.parametrize(
    ("have", "want", "hint"),
    [
        ("uint8", "float32", "raw 0…255 values: declare what the model was trained on"),
        ("int32", "float32", "add dtype=float32"),
        ("bool", "float32", "add dtype=float32"),
        ("float32", "int8", "add dtype=int8 to the preprocessing to round"),
        ("<U3", "float32", "store the samples as float32"),
        ("float32", "bool", "store the samples as bool"),
    ],
)
def test_wrong_types_come_with_a_hint(have: str, want: str, hint: str) -> None:
    with pytest.raises(DataError, match="sample 0 of the given arrays: wrong dtype for input 'input'") as caught:
        data(4, dtype=have).bind([spec(1, 4, dtype=want)])

    assert hint in str(caught.value)


def test_integers_that_do_not_fit_are_refused() -> None:
    with pytest.raises(DataError, match=r"values 0 … 300 that do not fit"):
        Dataset.from_arrays(np.array([[0, 300]])).bind([spec(1, 2, dtype="int8")])
    with pytest.raises(DataError, match=r"up to 1e\+30 do not fit into float16"):
        Dataset.from_arrays(np.array([[0, -1e30]])).bind([spec(1, 2, dtype="float16")])


def test_floats_for_a_quantized_input_are_quantized() -> None:
    values = np.array([[-1.0, 0.0, 0.24, 0.26, 1e6]], np.float32)
    quantized = Dataset.from_arrays(values).bind([spec(1, 5, dtype="int8", scale=0.5, zero_point=3)])[0].x

    assert quantized.dtype == np.int8
    assert quantized.tolist() == [[1, 3, 3, 4, 127]]
    stored = Dataset.from_arrays(quantized).bind([spec(1, 5, dtype="int8", scale=0.5, zero_point=3)])
    assert np.array_equal(stored[0].x, quantized)
    with pytest.raises(DataError, match=r"takes int8, and the sample is uint8; give floats \(declare scale=…"):
        data(5, dtype="uint8").bind([spec(1, 5, dtype="int8", scale=0.5)])


def test_arrays_go_to_inputs_by_name() -> None:
    ids, mask = np.zeros((3, 7), np.int64), np.ones((3, 7), np.int64)
    dataset = Dataset.from_arrays({"mask": mask, "ids": ids, "unused": ids})
    bound = dataset.bind(
        [spec(1, 7, name="serving_default_ids:0", dtype="int32"), spec(1, 7, name="mask", dtype="int32")]
    )

    assert bound.inputs == ("serving_default_ids:0", "mask")
    assert bound[0].inputs["mask"].tolist() == [[1] * 7]
    assert bound[0].inputs["serving_default_ids:0"].tolist() == [[0] * 7]
    with pytest.raises(DataError, match=r"no samples for the input 'types' \(there is mask, ids, unused\)"):
        dataset.bind([spec(1, 7, name="ids"), spec(1, 7, name="types")])
    with pytest.raises(DataError, match="no samples for the input 'other'"):
        dataset.bind([spec(1, 7, name="other")])
    with pytest.raises(DataError, match="no inputs"):
        dataset.bind([])


def test_only_the_named_inputs_are_preprocessed() -> None:
    arrays = {"image": np.ones((2, 4, 4, 3), np.uint8), "age": np.ones((2, 1), np.float32)}
    dataset = Dataset.from_arrays(arrays, preprocess="resize=2x2 scale=2 inputs=image")

    assert dataset[0].inputs["image"].tolist() == np.full((2, 2, 3), 2).tolist()
    assert dataset[0].inputs["age"].tolist() == [1]
    with pytest.raises(DataError, match="resize needs an image"):
        Dataset.from_arrays(arrays, preprocess="resize=2x2")[0]
    with pytest.raises(DataError, match="inputs=picture: the given arrays has image, age"):
        Dataset.from_arrays(arrays, preprocess="inputs=picture scale=2")


def test_a_model_is_enough() -> None:
    tensors = (
        Tensor("a:0", (1, 2), "int8", quantization=Quantization((0.5,), (1,)), shape_signature=(-1, 2)),
        Tensor("b:0", (1, 3), "float32"),
    )
    model = Model((Subgraph(tensors=tensors, inputs=(0, 1)),))
    dataset = Dataset.from_arrays({"b": np.ones((4, 3)), "a": np.ones((4, 2))})

    bound = dataset.bind(model)
    assert bound.inputs == ("a:0", "b:0")
    assert bound[0].inputs["a:0"].tolist() == [[3, 3]]
    signed = Model(model.subgraphs, (Signature("serve", (("b", 1), ("a", 0)), ()),))
    assert dataset.bind(signed).inputs == ("b", "a")
    assert dataset.bind(tensors).inputs == ("a:0", "b:0")
    dataset.check(model)


def test_anything_with_name_shape_and_dtype_is_an_input() -> None:
    class Input:
        name, shape, dtype = "x", [1, 4], "float32"

    assert data(4).bind([Input()])[0].x.shape == (1, 4)


def test_later_samples_are_checked_when_they_are_read() -> None:
    shapes = [(4, 4, 3), (4, 4, 3), (5, 4, 3)]
    dataset = Dataset.open(lambda: [np.zeros(shape, np.float32) for shape in shapes]).bind([spec(1, 4, 4, 3)])

    dataset[:2].check()
    with pytest.raises(DataError, match=r"sample 2 of function .*the sample is \(5, 4, 3\)"):
        list(dataset)


def test_check_lists_every_problem_and_stops_at_five() -> None:
    x = np.zeros((100, 3), np.float32)
    x[[3, 70]] = np.nan
    with pytest.raises(DataError, match=r"2 of 100 samples cannot be used:\nsample 3 of .*\nsample 70 of"):
        Dataset.from_arrays(x).check()
    x[10:20] = np.inf
    with pytest.raises(DataError, match=r"12 of 100(.*\n){6}… and 7 more"):
        Dataset.from_arrays(x).check([spec(1, 3)])
    with pytest.raises(DataError, match="5 of 5 samples"):
        data(4).check([spec(1, 3)])
    data(4).check([spec(1, 4)])
    data(4).check()


def test_a_value_that_is_not_finite_is_found() -> None:
    x = np.zeros((50, 2, 3))
    x[41, 1, 2] = -np.inf
    dataset = Dataset.from_arrays(x)

    for read in (lambda: list(dataset), lambda: dataset[41], lambda: list(dataset.batches(50))):
        with pytest.raises(DataError, match=r"sample 41 of the given arrays: x\[1, 2\] is -inf \(1 of 6 values so\)"):
            read()


@pytest.mark.parametrize("sample", [(10,), (1, 10)])
def test_a_fixed_batch_is_told(sample: tuple[int, ...]) -> None:
    with pytest.raises(DataError, match="the model is fixed to batches of 4: set its batch to 1"):
        data(*sample).bind([spec(4, 10)])
