# SPDX-License-Identifier: Apache-2.0
"""Preprocess: every value survives its text, dict and TOML form, and nonsense is refused in words."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from litesmith.data import Preprocess
from litesmith.errors import UsageError

counts = st.integers(1, 100_000)
sizes = counts | st.tuples(counts, counts)
finite = st.floats(allow_nan=False, allow_infinity=False)
numbers = st.lists(finite, min_size=1, max_size=4).map(tuple)
nonzero_numbers = st.lists(finite.filter(bool), min_size=1, max_size=4).map(tuple)
names = st.text(st.characters(exclude_categories=("Z", "C"), exclude_characters=","), min_size=1)
preprocesses = st.builds(
    Preprocess,
    source_layout=st.sampled_from(["NHWC", "NCHW"]),
    channels=st.none() | st.sampled_from(["rgb", "bgr", "gray"]),
    resize=st.none() | sizes,
    method=st.sampled_from(["nearest", "bilinear", "bicubic", "area", "lanczos"]),
    crop=st.none() | sizes,
    sample_rate=st.none() | counts,
    length=st.none() | counts,
    scale=st.none() | nonzero_numbers,
    offset=st.none() | numbers,
    mean=st.none() | numbers,
    std=st.none() | nonzero_numbers,
    layout=st.sampled_from(["NHWC", "NCHW"]),
    dtype=st.none() | st.sampled_from(["float32", "float16", "int8", "uint8", "int32", "bool"]),
    inputs=st.lists(names, max_size=3).map(tuple),
)


@given(preprocesses)
def test_every_form_reads_back_as_the_same_value(preprocess: Preprocess) -> None:
    assert Preprocess.parse(str(preprocess)) == preprocess
    assert Preprocess.from_dict(preprocess.to_dict()) == preprocess
    assert Preprocess.from_toml(preprocess.to_toml()) == preprocess
    assert str(Preprocess.parse(str(preprocess))) == str(preprocess)


@given(preprocesses, preprocesses)
def test_different_values_have_different_texts(one: Preprocess, other: Preprocess) -> None:
    assert (str(one) == str(other)) == (one == other)


def test_the_text_form() -> None:
    p = Preprocess.parse("scale=1/255 resize=224x320 layout=NCHW channels=bgr mean=1,2,3 inputs=left,right")

    assert p == Preprocess(
        scale=(1 / 255,), resize=(224, 320), layout="NCHW", channels="bgr", mean=(1, 2, 3), inputs=("left", "right")
    )
    assert str(p) == (
        "channels=bgr resize=224x320 scale=0.00392156862745098 mean=1.0,2.0,3.0 layout=NCHW inputs=left,right"
    )


def test_the_empty_one_is_false_and_has_an_empty_text() -> None:
    assert not Preprocess()
    assert str(Preprocess()) == ""
    assert Preprocess.parse("  ") == Preprocess.of(None) == Preprocess()
    assert Preprocess(crop=4)


def test_python_numbers_are_made_canonical() -> None:
    assert Preprocess(mean=127).mean == (127.0,)  # type: ignore[arg-type]
    assert Preprocess(resize=[2, 3]).resize == (2, 3)  # type: ignore[arg-type]
    assert hash(Preprocess(mean=[1, 2])) == hash(Preprocess(mean=(1.0, 2.0)))  # type: ignore[arg-type]
    assert Preprocess.of({"crop": 3}) == Preprocess.of("crop=3") == Preprocess.of(Preprocess(crop=3))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("resize", "name=value"),
        ("resize=", "name=value"),
        ("resize=0", "above 0"),
        ("resize=-3", "above 0"),
        ("resize=2x3x4", "height and width"),
        ("resize=big", "resize=224 or 224x320"),
        ("crop=1.5", "crop=224"),
        ("crop=2 crop=3", "twice"),
        ("mean=a,b", "mean=1/255"),
        ("mean=nan", "finite"),
        ("scale=1/0", "not like scale=1/255"),
        ("std=0", "std=0"),
        ("std=1,0,1", "std=0"),
        ("channels=cmyk", "rgb, bgr, gray"),
        ("layout=HWC", "NHWC, NCHW"),
        ("method=sharp", "bilinear"),
        ("dtype=float", "float32"),
        ("size=3", "resize, method, crop"),
        ("inputs=a,,b", "without spaces"),
    ],
)
def test_nonsense_is_refused(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Preprocess.parse(text)


@pytest.mark.parametrize(
    "values",
    [
        {"crop": True},
        {"crop": "224"},
        {"mean": "3"},
        {"mean": [True]},
        {"resize": [1, 2, 3]},
        {"inputs": [3]},
        {"a": 1},
    ],
)
def test_wrong_types_in_a_dict_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        Preprocess.from_dict(values)


def test_broken_toml_is_refused() -> None:
    with pytest.raises(UsageError, match="not TOML"):
        Preprocess.from_toml("crop = ")
