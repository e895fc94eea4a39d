# SPDX-License-Identifier: Apache-2.0
"""The facts of a machine that a measurement depends on; they travel inside every result."""

from __future__ import annotations

import functools
import os
import platform
import re
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

FEATURES = (
    "sse4_2", "avx", "avx2", "fma", "f16c", "avx512f", "avx512_vnni", "avx512_bf16", "avx_vnni", "amx_int8",
    "asimd", "asimddp", "asimdhp", "i8mm", "sve", "sve2",
)  # fmt: skip
"""The CPU features that LiteRT's and Litesmith's kernels choose by."""

PACKAGES = ("litesmith", "ai-edge-litert", "numpy")


@dataclass(frozen=True)
class MachineFacts:
    """What a measurement depends on besides the model."""

    cpu: str
    architecture: str
    cores: int
    features: tuple[str, ...]
    memory_bytes: int
    governor: str  # of CPU 0; empty where the system does not tell
    load: tuple[float, ...]  # of the last 1, 5 and 15 minutes
    virtual: bool
    kernel: str
    python: str
    versions: dict[str, str]

    @property
    def identity(self) -> tuple[str, str, int, str]:
        """What must agree for two results to be comparable."""
        return self.cpu, self.architecture, self.cores, self.governor


def machine_facts() -> MachineFacts:
    """Return the facts of this machine, now."""
    cpuinfo = _read("/proc/cpuinfo")
    flags = set((_field(cpuinfo, "flags") or _field(cpuinfo, "Features")).split())
    return MachineFacts(
        cpu=_cpu_name(cpuinfo),
        architecture=platform.machine(),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        features=tuple(f for f in FEATURES if f in flags),
        memory_bytes=_memory_bytes(),
        governor=_read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").strip(),
        load=tuple(round(value, 2) for value in os.getloadavg()),
        virtual="hypervisor" in flags,
        kernel=f"{platform.system()} {platform.release()}",
        python=sys.version.split()[0],
        versions=versions(),
    )


@functools.cache
def versions() -> dict[str, str]:
    """Return the versions of the packages that a result depends on."""
    return {name: found for name in PACKAGES if (found := package_version(name))}


def package_version(name: str) -> str | None:
    """Return the version of an installed package, None when it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""  # not Linux, or not told to us: the fact stays empty


def _field(cpuinfo: str, name: str) -> str:
    match = re.search(rf"^{name}\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    return match[1].strip() if match else ""


def _cpu_name(cpuinfo: str) -> str:
    name = _field(cpuinfo, "model name") or _read("/proc/device-tree/model").strip("\0\n") or platform.processor()
    family, model = _field(cpuinfo, "cpu family"), _field(cpuinfo, "model")
    return f"{name} (family {family} model {model})" if family and model else name or "unknown"


def _memory_bytes() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return 0
