# SPDX-License-Identifier: Apache-2.0
"""PyTorch is an extra: the one place that says so when it is missing."""

from __future__ import annotations

import importlib.util

from litesmith.errors import MissingExtraError


def require_torch(purpose: str) -> None:
    """Raise where PyTorch is not installed."""
    if importlib.util.find_spec("torch") is None:
        raise MissingExtraError("torch", "train", purpose)
