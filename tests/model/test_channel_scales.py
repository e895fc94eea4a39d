# SPDX-License-Identifier: Apache-2.0
"""Rescaled channels compute the same, and the record of it survives the file."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from litesmith.model import Buffer, Builder, Metadata, Model
from litesmith.model._channel_scales import NAME, ChannelScales, recorded, rescaled
from litesmith.runtime import Session


def test_the_model_computes_the_same_and_remembers() -> None:
    b = Builder(seed=2)
    x = b.conv2d(b.input("x", (1, 8, 8, 3)), 6, kernel=3, activation="RELU")
    x = b.depthwise_conv2d(x, activation="RELU")
    model = b.build({"y": b.conv2d(x, 4)})
    first = ChannelScales.nearest(0, [0], [1], np.array([1, 2, 0.5, 8, 0.1, 1]))
    second = ChannelScales.nearest(0, [1], [2], np.array([3, 1, 1, 0.2, 1, 100]))
    changed = Model.from_bytes(rescaled(model, [first, second]).to_bytes())

    assert recorded(changed) == (first, second)
    np.testing.assert_allclose(first.scales, [1, 2, 0.5, 8, 0.1, 1], rtol=0.05)
    assert (
        changed.main.tensors[changed.main.operators[1].inputs[1]]
        != model.main.tensors[model.main.operators[1].inputs[1]]
    )
    sample = np.random.default_rng(0).standard_normal((1, 8, 8, 3)).astype(np.float32)
    with Session(model) as before, Session(changed) as after:
        np.testing.assert_allclose(after(sample)["y"], before(sample)["y"], rtol=1e-4, atol=1e-5)


def test_what_changes_nothing_leaves_no_record() -> None:
    b = Builder()
    model = b.build({"y": b.conv2d(b.input("x", (1, 4, 4, 2)), 2)})
    assert rescaled(model, [ChannelScales(0, (0,), (), (0, 0))]) is model
    assert recorded(model) == ()


@pytest.mark.parametrize("content", [b"[1]", b"1", b'{"a": 1}', b"[{}]", b"no JSON"])
def test_a_record_of_another_kind_is_none(content: bytes) -> None:
    b = Builder()
    model = b.build({"y": b.op("NEG", b.input("x", (2,)))})
    assert recorded(replace(model, metadata=(Metadata(NAME, Buffer(content)),))) == ()
