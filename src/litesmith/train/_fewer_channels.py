# SPDX-License-Identifier: Apache-2.0
"""Fewer channels before training: a narrower model that the float one then teaches."""

from __future__ import annotations

from litesmith.data import Dataset
from litesmith.model import Model
from litesmith.optimize._channels import channels


def keep_work(model: Model, share: float, data: Dataset, *, seed: int = 0) -> Model:
    """Return the model with channels removed until this share of its multiply-accumulates is left, layers refitted."""
    return channels(model, max_macs=share, data=data, multiple=4, seed=seed).model
