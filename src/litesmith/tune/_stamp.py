# SPDX-License-Identifier: Apache-2.0
"""What results depend on besides their inputs: this version of the code, the versions below it, and the machine."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
from pathlib import Path

from litesmith.measure import machine_facts

_FOLDERS = ("model", "zoo", "data", "runtime", "accuracy", "optimize")
"""Whose code decides what a file is and how it scores."""


@functools.cache
def stamp() -> str:
    """Return a hash that changes with the code, the versions of packages, and the kind of machine."""
    digest = hashlib.sha256()
    _read_code(digest, *_FOLDERS)
    facts = machine_facts()
    digest.update(repr((facts.identity, sorted(facts.versions.items()))).encode())
    return digest.hexdigest()


@functools.cache
def training_stamp() -> str:
    """Return the same of what trained files depend on besides."""
    digest = hashlib.sha256(importlib.metadata.version("torch").encode())
    _read_code(digest, "train")
    return digest.hexdigest()


def _read_code(digest: hashlib._Hash, *folders: str) -> None:
    import litesmith

    root = Path(litesmith.__file__).parent
    for folder in folders:
        for path in sorted((root / folder).glob("*.py")):
            digest.update(path.read_bytes())
