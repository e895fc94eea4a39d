# SPDX-License-Identifier: Apache-2.0
"""What a Preprocess declares is what happens, measured against Pillow and plain NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from litesmith.data import Preprocess
from litesmith.data._transform import saturate, transform
from litesmith.errors import DataError

RANDOM = np.random.default_rng(0)
IMAGES = RANDOM.integers(0, 256, (3, 20, 30, 3), np.uint8)


def apply(samples: NDArray[Any], text: str) -> NDArray[Any]:
    return transform(samples, Preprocess.parse(text))


@pytest.mark.parametrize("method", ["nearest", "bilinear", "bicubic", "area", "lanczos"])
def test_resize_is_pillows(method: str) -> None:
    filters = {"area": "BOX"}
    resample = Image.Resampling[filters.get(method, method.upper())]
    expected = [np.asarray(Image.fromarray(image).resize((11, 9), resample)) for image in IMAGES]

    assert np.array_equal(apply(IMAGES, f"resize=9x11 method={method}"), expected)


def test_one_size_sets_the_shorter_side() -> None:
    assert apply(IMAGES, "resize=10").shape == (3, 10, 15, 3)
    assert apply(np.swapaxes(IMAGES, 1, 2), "resize=10").shape == (3, 15, 10, 3)
    assert apply(IMAGES[:, :, :27], "resize=10").shape == (3, 10, 13, 3)  # 13.5 is rounded down


def test_resize_keeps_rank_and_any_number_of_channels() -> None:
    assert apply(IMAGES[..., 0], "resize=5x5").shape == (3, 5, 5)
    five = np.concatenate([IMAGES, IMAGES[..., :2]], axis=-1)
    resized = apply(five, "resize=5x5")
    assert resized.shape == (3, 5, 5, 5)
    assert np.array_equal(resized[..., 3:], resized[..., :2])
    assert np.array_equal(resized[..., :3], apply(IMAGES, "resize=5x5"))


def test_float_images_are_resized_in_float() -> None:
    floats = IMAGES.astype(np.float32) / 7
    resized = apply(floats, "resize=10x10")

    assert resized.dtype == np.float32
    assert np.allclose(
        resized * 7, apply(IMAGES, "resize=10x10"), atol=1
    )  # 8-bit images are rounded after each direction
    assert not np.array_equal(np.rint(resized), resized)


def test_crop_takes_the_centre() -> None:
    assert np.array_equal(apply(IMAGES, "crop=4x6"), IMAGES[:, 8:12, 12:18])
    assert np.array_equal(apply(IMAGES, "crop=20"), IMAGES[:, :, 5:25])


def test_crop_that_does_not_fit_says_so() -> None:
    with pytest.raises(DataError, match=r"crop=24x24 does not fit into the image, which is 20x30; add resize=24"):
        apply(IMAGES, "crop=24")


def test_mean_and_std_for_each_channel() -> None:
    mean, std = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)
    expected = (IMAGES - np.array(mean)) / np.array(std)
    result = apply(IMAGES, "mean=123.675,116.28,103.53 std=58.395,57.12,57.375")

    assert result.dtype == np.float32
    assert np.abs(result - expected).max() < 1e-6


def test_scale_and_offset_come_before_mean_and_std() -> None:
    result = apply(IMAGES, "scale=1/255 offset=0.1 mean=0.5 std=0.25")

    assert np.abs(result - ((IMAGES / 255 + 0.1) - 0.5) / 0.25).max() < 1e-6


def test_arithmetic_works_on_every_rank_and_type() -> None:
    for shape in [(4,), (4, 3), (4, 2, 3), (4, 2, 2, 2, 3), (4, 0, 3)]:
        for dtype in (np.uint8, np.int64, np.float16, np.float64, np.bool_):
            values = RANDOM.integers(0, 2, shape).astype(dtype)
            assert np.allclose(apply(values, "scale=2 offset=1"), values.astype(float) * 2 + 1)
    by_channel = apply(np.ones((4, 3), np.float32), "mean=1,2,3")
    assert np.array_equal(by_channel, np.tile([0, -1, -2], (4, 1)))


def test_double_precision_is_kept_when_asked_for() -> None:
    result = apply(np.array([[1.0]]), "scale=0.1 dtype=float64")

    assert result.dtype == np.float64
    assert result[0, 0] == 0.1


def test_wrong_number_of_channels_is_named() -> None:
    with pytest.raises(DataError, match=r"mean has 3 values.*the sample has 30 \(shape \(20, 30\)\)"):
        apply(IMAGES[..., 0], "mean=1,2,3")


def test_channels() -> None:
    assert np.array_equal(apply(IMAGES, "channels=bgr"), IMAGES[..., ::-1])
    assert np.array_equal(apply(IMAGES, "channels=rgb"), IMAGES)
    gray = apply(IMAGES, "channels=gray")
    assert np.array_equal(gray[..., 0], [np.asarray(Image.fromarray(image).convert("L")) for image in IMAGES])
    assert gray.shape == (3, 20, 30, 1)
    assert np.array_equal(apply(gray, "channels=gray"), gray)
    assert np.array_equal(apply(gray[..., 0], "channels=gray"), gray)
    assert np.array_equal(apply(gray[..., 0], "channels=rgb"), np.repeat(gray, 3, axis=-1))
    floats = apply(IMAGES.astype(np.float32), "channels=gray")
    assert np.abs(floats - gray).max() <= 0.51


def test_channels_of_a_five_channel_image_are_refused() -> None:
    with pytest.raises(DataError, match="source_layout=NCHW"):
        apply(np.zeros((1, 3, 20, 30), np.uint8), "channels=gray")


def test_layouts() -> None:
    planar = np.moveaxis(IMAGES, -1, 1)
    assert np.array_equal(apply(planar, "source_layout=NCHW"), IMAGES)
    assert np.array_equal(apply(IMAGES, "layout=NCHW"), planar)
    assert np.array_equal(apply(planar, "source_layout=NCHW layout=NCHW"), planar)
    normalized = apply(planar, "source_layout=NCHW layout=NCHW mean=1,2,3")
    assert np.array_equal(normalized[:, 2], planar[:, 2].astype(np.float32) - 3)
    assert apply(IMAGES, "layout=NCHW").flags.c_contiguous


def test_image_steps_refuse_what_is_no_image() -> None:
    with pytest.raises(DataError, match=r"resize needs an image.*float32 \(7,\).*inputs=NAME"):
        apply(np.zeros((2, 7), np.float32), "resize=4")
    with pytest.raises(DataError, match="channels=gray"):
        apply(IMAGES[..., 0], "layout=NCHW")
    with pytest.raises(DataError, match="need numbers"):
        apply(np.array([["a"]]), "scale=2")


def test_length_cuts_or_fills_with_zeros() -> None:
    waves = np.arange(6, dtype=np.float32).reshape(2, 3)

    assert np.array_equal(apply(waves, "length=2"), waves[:, :2])
    assert np.array_equal(apply(waves, "length=5"), [[0, 1, 2, 0, 0], [3, 4, 5, 0, 0]])
    assert apply(waves[..., np.newaxis], "length=5").shape == (2, 5, 1)
    with pytest.raises(DataError, match="needs audio"):
        apply(IMAGES, "length=5")


def test_integers_are_rounded_and_saturated() -> None:
    assert apply(IMAGES, "offset=-128 dtype=int8").dtype == np.int8
    assert np.array_equal(apply(IMAGES, "offset=-128 dtype=int8"), IMAGES.astype(int) - 128)
    assert saturate(np.array([-1e9, -0.6, 0.4, 1e30]), np.dtype("int8")).tolist() == [-128, -1, 0, 127]
    assert saturate(np.array([-5, 300]), np.dtype("uint8")).tolist() == [0, 255]
    assert saturate(np.array([1e30]), np.dtype("int64"))[0] > 2**62
    assert saturate(np.array([True]), np.dtype("int8")).tolist() == [1]


def test_many_at_once_is_the_same_as_one_by_one() -> None:
    text = "channels=gray resize=12 crop=10x8 scale=1/255 mean=0.5 layout=NCHW dtype=float16"
    together = apply(IMAGES, text)

    assert np.array_equal(together, np.concatenate([apply(image[np.newaxis], text) for image in IMAGES]))
    assert together.shape == (3, 1, 10, 8)
    assert together.dtype == np.float16
