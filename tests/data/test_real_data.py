# SPDX-License-Identifier: Apache-2.0
"""Real data for real models: it opens, fits, splits, and is preprocessed as published."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from litesmith.data import Dataset
from litesmith.errors import DataError
from litesmith.model import Model

IMAGENET = "resize=256 crop=224 mean=123.675,116.28,103.53 std=58.395,57.12,57.375"


@pytest.mark.parametrize(
    ("model", "data", "preprocess"),
    [
        ("cifar10/resnet20_float", "cifar10/test.npz", "scale=1/255 mean=.485,.456,.406 std=.229,.224,.225"),
        ("mlperf_tiny/ic_resnet8_float", "cifar10/test.npz", "dtype=float32"),
        ("mlperf_tiny/kws_dscnn_float", "mlperf_tiny/kws_test800.npz", ""),
        ("mlperf_tiny/kws_dscnn_int8", "mlperf_tiny/kws_calib200.npz", ""),
        ("mnist/lstm_float", "mnist/test.npz", "scale=1/255"),
        ("mnist/resnet_float", "mnist/test.npz", "scale=1/255"),
        ("vision/mobilenet_v2_float", "vision/photos", IMAGENET),
        ("vision/mobilenet_v1_0.25_224_float", "vision/photos", "mean=127.5 std=127.5"),
        ("mlperf_tiny/vww_mobilenetv1_float", "vision/photos", "resize=96x96 scale=1/255"),
    ],
)
def test_the_data_fits_its_model(assets: Path, model: str, data: str, preprocess: str) -> None:
    dataset = Dataset.open(assets / data, preprocess=preprocess)
    bound = dataset.bind(Model.load(assets / f"{model}.tflite"))
    sample = bound.take(20)[0].x

    assert sample.shape[0] == 1
    assert sample.dtype in (np.float32, np.int8)
    bound.take(200).check()


def test_raw_pixels_are_not_taken_for_floats(assets: Path) -> None:
    with pytest.raises(DataError, match=r"sample 0 of .*test\.npz: wrong dtype.*scale=1/255"):
        Dataset.open(assets / "cifar10/test.npz").bind(Model.load(assets / "cifar10/resnet20_float.tflite"))


def test_quantized_features_are_the_published_ones(assets: Path) -> None:
    """MLPerf Tiny ships these features both as floats and quantized for its int8 model."""
    model = Model.load(assets / "mlperf_tiny/kws_dscnn_int8.tflite")
    floats = next(Dataset.open(assets / "mlperf_tiny/kws_calib200.npz").bind(model).batches(200)).x
    stored = next(Dataset.open(assets / "mlperf_tiny/kws_calib200.npz", inputs=["x_int8"]).bind(model).batches(200)).x

    assert floats.dtype == stored.dtype == np.int8
    assert np.abs(floats.astype(int) - stored).max() <= 1
    assert (floats == stored).mean() > 0.999


def test_a_photo_is_prepared_as_published(assets: Path) -> None:
    dataset = Dataset.open(assets / "vision/photos", preprocess=IMAGENET)
    with Image.open(assets / "vision/photos" / dataset[7].key) as photo:
        resized = np.asarray(photo.convert("RGB").resize((256, 256), Image.Resampling.BILINEAR))
    expected = (resized[16:240, 16:240] - np.array([123.675, 116.28, 103.53])) / np.array([58.395, 57.12, 57.375])

    assert np.abs(dataset[7].x - expected).max() < 1e-5


def test_cifar_splits_the_same_in_every_order(assets: Path) -> None:
    dataset = Dataset.open(assets / "cifar10/test.npz")
    parts = dataset.split(calibrate=0.2, search=0.4, held_out=0.4)
    again = dataset.shuffled(3).split(calibrate=0.2, search=0.4, held_out=0.4)

    assert sum(map(len, parts.values())) == 10_000
    for name, part in parts.items():
        assert part.fingerprint() == again[name].fingerprint()
    # Pinned: lock files and journals rely on it across versions and machines.
    assert {name: len(part) for name, part in parts.items()} == {"calibrate": 2005, "search": 4009, "held_out": 3986}
