# SPDX-License-Identifier: Apache-2.0
"""What the devices are: ask each what it says of itself, find its wheels, and remove what Litesmith keeps there."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from litesmith.devices._connection import ANSWER_S, connect
from litesmith.devices._device import Device, find
from litesmith.devices._wheels import find_wheels
from litesmith.errors import DeviceError
from litesmith.result import Result


@dataclass(frozen=True)
class DeviceFacts:
    """What a device says of itself before anything is installed there."""

    name: str
    url: str
    host: str
    cpu: str
    cores: int
    architecture: str
    libc: str
    python: str
    memory_bytes: int
    free_bytes: int
    folder: str


def check(device: str | Device, devices_file: str | Path | None = None) -> DeviceFacts:
    """Connect to a device and return what it says of itself; nothing is written there."""
    target = find(device, devices_file)
    with connect(target) as connection:
        connection.send(ask="facts")
        told, here = connection.receive(ANSWER_S), connection.here
    return DeviceFacts(
        target.name, target.url, here["host"], told["cpu"], told["cores"], here["architecture"], here["libc"],
        here["python"], told["memory_bytes"], told["free_bytes"], here["folder"],
    )  # fmt: skip


@dataclass(frozen=True)
class ListedDevice:
    """A device, what it said of itself when it was asked, and the wheels that its runtime would be installed from."""

    name: str
    url: str
    tags: tuple[str, ...]
    facts: DeviceFacts | None = None
    wheels: tuple[str, ...] = ()
    error: str = ""


@dataclass(frozen=True)
class DeviceList(Result, kind="device-list", schema=1):
    """What ``inventory`` found."""

    devices: tuple[ListedDevice, ...]


def inventory(devices: Sequence[str | Device], *, ask: bool = False, wheels: bool = False) -> DeviceList:
    """List devices; with ``ask``, connect to all at once and ask what they are.

    With ``wheels``, also let pip find, here, which wheels fit the system and the Python of each.

    Example:
        >>> [entry.tags for entry in inventory([Device("pi", "ssh://raspberry", tags=("pi4",))]).devices]
        [('pi4',)]
    """

    def one(device: Device) -> ListedDevice:
        listed = ListedDevice(device.name, device.url, device.tags)
        if not (ask or wheels) or device.address[0] == "adb":
            return listed
        try:
            listed = replace(listed, facts=(facts := check(device)))
            return replace(listed, wheels=_wheels_of(facts)) if wheels else listed
        except DeviceError as error:
            return replace(listed, error=str(error))

    with ThreadPoolExecutor(max(1, len(devices))) as pool:
        return DeviceList(tuple(pool.map(one, [find(device) for device in devices])))


def _wheels_of(facts: DeviceFacts) -> tuple[str, ...]:
    name, _, version = facts.libc.partition(" ")
    if name != "glibc":
        raise DeviceError(f"device {facts.name!r} has the C library {facts.libc or 'unknown'!r}; the wheels need glibc")
    return find_wheels(facts.architecture, facts.python, version)


def clean(device: str | Device, devices_file: str | Path | None = None) -> None:
    """Remove everything that Litesmith keeps on a device; refused while a job runs there."""
    with connect(find(device, devices_file)) as connection:
        connection.send(ask="clean")
        connection.receive(ANSWER_S)
