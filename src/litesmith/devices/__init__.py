# SPDX-License-Identifier: Apache-2.0
"""Machines that measure for this one: over ssh, with nothing installed there but a private folder."""

from litesmith.devices._android import AndroidBench, AndroidRun
from litesmith.devices._benchmark_model import RunStatistics, ToolOperator, ToolOutput
from litesmith.devices._device import Device, devices_file, find, load
from litesmith.devices._inventory import DeviceFacts, DeviceList, ListedDevice, check, clean, inventory
from litesmith.devices._remote import DeviceResult, DeviceResults, read, run, run_all
from litesmith.devices._wheels import find_wheels

__all__ = [
    "AndroidBench",
    "AndroidRun",
    "Device",
    "DeviceFacts",
    "DeviceList",
    "DeviceResult",
    "DeviceResults",
    "ListedDevice",
    "RunStatistics",
    "ToolOperator",
    "ToolOutput",
    "check",
    "clean",
    "devices_file",
    "find",
    "find_wheels",
    "inventory",
    "load",
    "read",
    "run",
    "run_all",
]
