# SPDX-License-Identifier: Apache-2.0
"""The state of a training on disk: written whole or not at all, so that a kill at any moment leaves one that works."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch

from litesmith.errors import UsageError


def save(path: Path, state: dict[str, Any]) -> None:
    """Write the state beside its place, then move it there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with beside.open("wb") as stream:
            torch.save(state, stream)
            stream.flush()
            os.fsync(stream.fileno())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)  # on a full disk it would keep the space that the rest of the work needs
        raise


def load(path: Path, identity: str) -> dict[str, Any] | None:
    """Return the state of an earlier run of the same training, None where there is none."""
    if not path.exists():
        return None
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises all kinds for a damaged file
        raise UsageError(f"the checkpoint {path} cannot be read ({error}); delete it to start anew") from error
    if state.get("identity") != identity:
        raise UsageError(
            f"the checkpoint {path} belongs to another training (other model, data or settings); delete it, or give "
            "another folder"
        )
    return state
