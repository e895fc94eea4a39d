# SPDX-License-Identifier: Apache-2.0
"""Recovery: equalization changes nothing in float, and the defaults keep the sample's accuracy where careless int8 loses."""

from __future__ import annotations

import numpy as np
import pytest

from litesmith import evaluate, samples
from litesmith.errors import UsageError
from litesmith.model import Builder, Model
from litesmith.optimize import quantize
from litesmith.optimize._quantize import DEFAULT_RECOVERY, RECOVERY_MODULES
from litesmith.runtime import Session


def test_the_defaults_keep_what_careless_int8_loses() -> None:
    model, train, test = samples.model(), samples.dataset("train").take(200), samples.dataset("test").take(1500)
    real = evaluate(model, test).value
    careless = evaluate(quantize(model, data=train, recover=()).model, test).value
    careful = evaluate(quantize(model, data=train).model, test).value

    assert real - careful <= 0.005
    assert real - careless >= 0.01


def test_equalization_changes_nothing_in_float() -> None:
    from importlib import import_module

    from litesmith.optimize._quantize import Request

    module = import_module(RECOVERY_MODULES["equalize"])
    request = Request("int8", (), "float", True, "minmax", "percentile", None, "same", False, 0)
    chance = np.random.default_rng(0)
    b = Builder()
    x = b.input("x", (1, 8, 8, 3))
    spread = np.exp(chance.normal(0, 2, 16)).astype(np.float32)
    weight = chance.standard_normal((16, 3, 3, 3)).astype(np.float32) * spread[:, None, None, None]
    y = b.conv2d(x, 16, kernel=3, activation="RELU", weight=weight)
    z = b.conv2d(y, 16, name="second")
    model = b.build({"y": b.op("ADD", y, z)})
    data = [chance.standard_normal((1, 8, 8, 3)).astype(np.float32) for _ in range(8)]
    changed = module.apply(model, request, None, data)

    assert isinstance(changed, Model)
    with Session(model) as before, Session(changed) as after:
        for sample in data:
            expected = before(sample)["y"]
            assert np.allclose(after(sample)["y"], expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())


def test_passes_have_names() -> None:
    assert set(DEFAULT_RECOVERY) <= set(RECOVERY_MODULES)
    with pytest.raises(UsageError, match="no recovery pass"):
        quantize(samples.model(), scheme="float16", recover=("magic",))
