# SPDX-License-Identifier: Apache-2.0
"""What is sent to a device: Litesmith itself as a zip, equal bytes for equal code, and the names of what it needs."""

from __future__ import annotations

import functools
import hashlib
import io
import re
import zipfile
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import litesmith
from litesmith.runtime._native import delegate_path, has_library

_SUFFIXES = (".py", ".toml", ".j2")
_NEEDED = ("ai-edge-litert", "numpy", "tomli")
"""What the verbs that run on a device import; the rest of Litesmith's dependencies stay at home."""


@dataclass(frozen=True)
class Parcel:
    """Bytes to send, and a name that stands for exactly these."""

    name: str
    data: bytes


@functools.cache
def package(*, kernels: bool = False) -> Parcel:
    """Return this Litesmith: its code, its tables and its version, without the samples.

    Args:
        kernels: With the library of its own kernels, if there is one: for a device of this machine's kind.
    """
    home = Path(litesmith.__file__).parent
    files = {
        f"litesmith/{path.relative_to(home).as_posix()}": path.read_bytes()
        for path in home.rglob("*")
        if path.suffix in _SUFFIXES and path.is_file()
    }
    if kernels and has_library():
        library = Path(delegate_path())
        files[f"litesmith/runtime/{library.name}"] = library.read_bytes()
    about = f"Metadata-Version: 2.1\nName: litesmith\nVersion: {litesmith.__version__}\n"
    files[f"litesmith-{litesmith.__version__}.dist-info/METADATA"] = about.encode()
    data = _zipped(files)
    return Parcel(f"{litesmith.__version__}-{hashlib.sha256(data).hexdigest()[:16]}", data)


@functools.cache
def pip() -> Parcel:
    """Return the pip of this machine, for a device that has none: pip runs from a zip."""
    try:
        distribution = metadata.distribution("pip")
    except metadata.PackageNotFoundError:
        raise litesmith.LitesmithError(
            "neither the device nor this machine has pip; install it on one of them"
        ) from None
    files = {
        str(file): Path(str(distribution.locate_file(file))).read_bytes()
        for file in distribution.files or ()
        if str(file).startswith("pip/") and "__pycache__" not in str(file)
    }
    return Parcel("pip", _zipped(files))


def requirements() -> tuple[str, ...]:
    """Return what has to be installed on a device, as Litesmith's own metadata asks for it."""
    wanted = metadata.requires("litesmith") or []
    return tuple(sorted(need for need in wanted if re.split(r"[^\w.-]", need, maxsplit=1)[0].lower() in _NEEDED))


def runtime_name() -> str:
    """Return a name that changes with the requirements."""
    return hashlib.sha256("\n".join(requirements()).encode()).hexdigest()[:16]


def _zipped(files: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(files):
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), files[name], zipfile.ZIP_DEFLATED)
    return stream.getvalue()
