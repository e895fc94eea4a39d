# SPDX-License-Identifier: Apache-2.0
"""What results depend on besides their inputs: this version of the code, the versions below it, and the machine."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
from pathlib import Path

from litesmith.machine import package_version
from litesmith.measure import machine_facts
from litesmith.optimize import Recipe
from litesmith.runtime import delegate_path
from litesmith.runtime._native import has_library

_FOLDERS = ("model", "zoo", "data", "runtime", "accuracy", "measure", "optimize", "targets")
"""Whose code decides what a file is, how it scores, and how its latency is found."""
_CODE = (".py", ".toml")  # rules and catalogues are TOML
_MAKERS = ("pillow", "scipy", "soundfile")
"""Packages that read samples and make files, besides those in the facts of every machine."""


@functools.cache
def stamp() -> str:
    """Return a hash that changes with the code, its native library, the versions of packages, and the kind of machine."""
    digest = hashlib.sha256()
    _read_code(digest, *_FOLDERS)
    if has_library():
        digest.update(Path(delegate_path()).read_bytes())
    facts = machine_facts()
    versions = {**facts.versions, **_versions(*_MAKERS, "torch")}  # which recipes of learned rounding use as well
    digest.update(repr((facts.identity, sorted(versions.items()))).encode())
    return digest.hexdigest()


@functools.cache
def training_stamp() -> str:
    """Return the same of what trained files depend on besides."""
    digest = hashlib.sha256(importlib.metadata.version("torch").encode())
    _read_code(digest, "train")
    return digest.hexdigest()


def makers(recipe: str) -> dict[str, str]:
    """Return the versions of the packages that make a file by a recipe, besides those in the facts of the machine.

    Example:
        >>> sorted(makers("int8"))
        ['pillow', 'scipy', 'soundfile']
    """
    steps = Recipe.parse(recipe)
    learns = steps.trains or any("rounding" in str(step.options.get("recover")) for step in steps.steps)
    return _versions(*_MAKERS, *(["torch"] if learns else []))


def _versions(*packages: str) -> dict[str, str]:
    return {name: found for name in packages if (found := package_version(name))}


def _read_code(digest: hashlib._Hash, *folders: str) -> None:
    import litesmith

    root = Path(litesmith.__file__).parent
    for folder in folders:
        for path in sorted(path for path in (root / folder).rglob("*") if path.suffix in _CODE):
            digest.update(f"{path.relative_to(root)}\n".encode())
            digest.update(path.read_bytes())
