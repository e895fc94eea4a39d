# SPDX-License-Identifier: Apache-2.0
"""Which devices there are: a URL, or a name from the devices file.

The file is TOML, a table for each device:

    [pi]
    url = "ssh://pi@raspberry"      # what `ssh` understands: names of ~/.ssh/config too
    tags = ["pi4", "quiet"]         # what Dask workers announce, see `Device.dask_resources`
    python = "python3"              # the Python there
    runtime = "private"             # or "installed": that Python has ai-edge-litert and numpy already
    folder = "~/.cache/litesmith"   # where Litesmith keeps its things there
    lock = "/tmp/litesmith-device.lock"   # whoever holds it measures; the same file for all users of the device
    grace_s = 60                    # how long a job outlives a lost connection
    ssh_config = "lab.conf"         # instead of ~/.ssh/config

    [phone]
    url = "adb://0123456789"
    benchmark_model = "/opt/benchmark_model"   # LiteRT's own, built for the phone
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from litesmith.errors import DeviceError, UsageError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_URL = re.compile(
    r"(?P<transport>ssh|adb|local)://(?:(?P<user>[^@/\s:]+)@)?(?P<host>\[[^\]\s]+\]|[^@/\s:]*)(?::(?P<port>\d+))?/?"
)
_RUNTIMES = ("private", "installed")
_PATHS = ("ssh_config", "benchmark_model")


@dataclass(frozen=True)
class Device:
    """A machine that measures for this one.

    Example:
        >>> Device("pi", "ssh://pi@raspberry:2222").address
        ('ssh', 'pi', 'raspberry', 2222)
    """

    name: str
    url: str
    tags: tuple[str, ...] = ()
    python: str | None = None
    runtime: str = "private"
    folder: str = "~/.cache/litesmith"
    lock: str = "/tmp/litesmith-device.lock"  # noqa: S108  (there on purpose: all users of the device must find it)
    grace_s: float = 60.0
    ssh_config: str | None = None
    benchmark_model: str | None = None

    def __post_init__(self) -> None:
        if self.runtime not in _RUNTIMES:
            raise UsageError(
                f"device {self.name!r}: runtime must be one of {', '.join(_RUNTIMES)}, not {self.runtime!r}"
            )
        if not isinstance(self.grace_s, (int, float)) or not self.grace_s >= 1:
            raise UsageError(f"device {self.name!r}: grace_s must be 1 or more, not {self.grace_s!r}")
        _ = self.address

    @property
    def address(self) -> tuple[str, str | None, str, int | None]:
        """Transport, user, host and port of the URL."""
        match = _URL.fullmatch(self.url)
        if match is None:
            raise UsageError(
                f"device {self.name!r}: {self.url!r} is not an address; write ssh://user@host:port, adb://serial or local://"
            )
        transport, user, host, port = match.group("transport", "user", "host", "port")
        if any(word and word.startswith("-") for word in (user, host)) or (transport == "ssh" and not host):
            raise UsageError(f"device {self.name!r}: {self.url!r} names no host")
        if port and not 0 < int(port) < 65536:
            raise UsageError(f"device {self.name!r}: there is no port {port}")
        return transport, user, host.strip("[]"), int(port) if port else None

    @property
    def python_command(self) -> list[str]:
        """The words that start its Python: `python3` unless told otherwise, on this machine the Python of this process."""
        if self.python is not None:
            return shlex.split(self.python)
        return [sys.executable] if self.address[0] == "local" else ["python3"]

    def dask_resources(self) -> dict[str, float]:
        """Return what a Dask worker that owns this device announces: one of its name, one of each of its tags.

        A worker is started with them, and a job that asks for one of them lands on a worker that has it, one at a time:

            dask worker tcp://scheduler:8786 --resources "device:pi=1 device:pi4=1"
            client.submit(measure, resources={"device:pi4": 1})

        Example:
            >>> Device("pi", "ssh://raspberry", tags=("pi4",)).dask_resources()
            {'device:pi': 1.0, 'device:pi4': 1.0}
        """
        return {f"device:{tag}": 1.0 for tag in (self.name, *self.tags)}


def devices_file() -> Path:
    """Return where the devices are listed unless told otherwise: litesmith/devices.toml in the configuration folder."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "litesmith" / "devices.toml"


def load(path: str | Path | None = None) -> dict[str, Device]:
    """Return the devices of a file by name; of the user's own file by default, which need not exist."""
    file = devices_file() if path is None else Path(path)
    try:
        with file.open("rb") as opened:
            tables = tomllib.load(opened)
    except FileNotFoundError:
        if path is None:
            return {}
        raise DeviceError(f"there is no devices file {file}") from None
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DeviceError(f"the devices file {file} cannot be read: {error}") from error
    return {name: _device(name, table, file) for name, table in tables.items()}


def find(device: str | Device, path: str | Path | None = None) -> Device:
    """Return the device that a URL or a name means.

    Args:
        device: `ssh://user@host:port`, `adb://serial`, `local://`, or a name in the devices file.
        path: The devices file; the user's own by default.
    """
    if isinstance(device, Device):
        return device
    if "://" in device:
        return Device(device.partition("://")[2].strip("/").rpartition("@")[2] or "local", device)
    known = load(path)
    if device not in known:
        names = ", ".join(known) or "none"
        raise UsageError(
            f"there is no device {device!r}; the devices file {path or devices_file()} has: {names}. "
            "An address works too: ssh://user@host"
        )
    return known[device]


def _device(name: str, table: Any, file: Path) -> Device:
    if not isinstance(table, Mapping) or not isinstance(table.get("url"), str):
        raise DeviceError(f'{file}: the device {name!r} needs a url, such as "ssh://user@host"')
    kinds = {field.name: field.type for field in fields(Device) if field.name != "name"}
    for key, value in table.items():
        if key not in kinds:
            raise DeviceError(f"{file}: the device {name!r} has an unknown key {key!r}; there are: {', '.join(kinds)}")
        fits = {
            "tags": isinstance(value, list) and all(isinstance(tag, str) for tag in value),
            "grace_s": isinstance(value, (int, float)) and not isinstance(value, bool),
        }.get(key, isinstance(value, str))
        if not fits:
            raise DeviceError(f"{file}: the device {name!r} has {key} = {value!r}, which is not of its kind")
    paths = {key: str(file.parent / Path(table[key]).expanduser()) for key in _PATHS if key in table}
    try:
        return Device(name, **{**table, "tags": tuple(table.get("tags", ())), **paths})
    except UsageError as error:
        raise DeviceError(f"{file}: {error}") from None
