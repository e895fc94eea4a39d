# SPDX-License-Identifier: Apache-2.0
"""Which wheels a device would get, found here: pip resolves for its system and its Python, and downloads nothing."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile

from litesmith.devices._parcel import requirements
from litesmith.errors import DeviceError

_OLDEST_GLIBC_MINOR = 17  # manylinux2014
TIME_LIMIT_S = 120


def find_wheels(architecture: str, python: str, glibc: str) -> tuple[str, ...]:
    """Return the file names of the wheels that Litesmith's runtime would be installed from.

    Args:
        architecture: Of the device, as `uname -m` says: "aarch64", "x86_64".
        python: Version of its Python.
        glibc: Version of its C library.

    Raises:
        DeviceError: There are no wheels for it, or pip cannot reach the package index.
    """
    version = ".".join(python.split(".")[:2])
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--ignore-installed", "--report", "-"]
    command += ["--disable-pip-version-check", "--no-input", "--only-binary=:all:", "--python-version", version]
    command += [word for tag in _tags(architecture, glibc) for word in ("--platform", tag)]
    with tempfile.TemporaryDirectory(prefix="litesmith-") as folder:
        command += ["--target", folder, *requirements()]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=TIME_LIMIT_S, check=False)  # noqa: S603
        except subprocess.TimeoutExpired:
            raise DeviceError(f"pip found no wheels within {TIME_LIMIT_S} s") from None
    if done.returncode:
        reasons = [line for line in done.stderr.splitlines() if "ERROR" in line] or done.stderr.splitlines() or ["?"]
        raise DeviceError(
            f"there are no wheels of {', '.join(requirements())} for {architecture}, Python {version} and glibc {glibc}: "
            f"{reasons[-1].removeprefix('ERROR: ')}"
        )
    installs = json.loads(done.stdout)["install"]
    return tuple(sorted(entry["download_info"]["url"].rpartition("/")[2] for entry in installs))


def _tags(architecture: str, glibc: str) -> list[str]:
    """Return the platform tags that such a system takes, the best first.

    Example:
        >>> _tags("aarch64", "2.19")
        ['manylinux_2_19_aarch64', 'manylinux_2_18_aarch64', 'manylinux_2_17_aarch64', 'manylinux2014_aarch64']
    """
    found = re.match(r"2\.(\d+)", glibc)
    if found is None:
        raise DeviceError(f"{glibc!r} is not a version of glibc that wheels are made for")
    minors = range(int(found[1]), _OLDEST_GLIBC_MINOR - 1, -1)
    return [*(f"manylinux_2_{minor}_{architecture}" for minor in minors), f"manylinux2014_{architecture}"]
