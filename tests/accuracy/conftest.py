# SPDX-License-Identifier: Apache-2.0
"""Models that a quantizer of the field made."""

from __future__ import annotations

import contextlib
import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from litesmith.model import Model


def quantize_by_aeq(path: Path, samples: Any, recipe_name: str) -> Model:
    """Quantize a model with ai-edge-quantizer, which prints and warns as it goes."""
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        warnings.simplefilter("ignore")
        quantizer = pytest.importorskip("ai_edge_quantizer.quantizer")
        recipe = pytest.importorskip("ai_edge_quantizer.recipe")
        work = quantizer.Quantizer(str(path))
        work.load_quantization_recipe(getattr(recipe, recipe_name)())
        signature = Model.load(path).signatures[0]
        name = signature.inputs[0][0]
        ranges = work.calibrate({signature.key: [{name: s[None]} for s in samples]}) if len(samples) else None
        return Model.from_bytes(bytes(work.quantize(ranges).quantized_model))


@pytest.fixture(scope="session")
def kws_float(assets: Path) -> Path:
    """Keyword spotting in float."""
    return assets / "mlperf_tiny" / "kws_dscnn_float.tflite"


@pytest.fixture(scope="session")
def kws_int8(assets: Path, kws_float: Path) -> Model:
    """The same in int8."""
    samples = np.load(assets / "mlperf_tiny" / "kws_calib200.npz")["x"]
    return quantize_by_aeq(kws_float, samples, "static_wi8_ai8")
