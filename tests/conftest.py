# SPDX-License-Identifier: Apache-2.0
"""What all tests share: where the real models and data are, and the skip when they are not there."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
ASSETS = Path(os.environ.get("LITESMITH_ASSETS", REPOSITORY.parent / "shared" / "assets"))

# A shell that runs the tests in the background has Ctrl-C ignored by them and by every program that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def assets() -> Path:
    """The folder of real models and data; skips the test where it is absent."""
    if not ASSETS.is_dir():
        pytest.skip(f"no folder of real models at {ASSETS}; set LITESMITH_ASSETS to it")
    return ASSETS
