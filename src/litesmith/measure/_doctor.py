# SPDX-License-Identifier: Apache-2.0
"""What this machine can do for Litesmith, what is missing, and how to get it."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from litesmith.machine import MachineFacts, machine_facts, package_version
from litesmith.result import Result
from litesmith.runtime._accelerators import known_accelerators, vulkan_driver

_ONE_OF_EACH = ("xnnpack", "litesmith", "webgpu", "openvino-cpu", "openvino-gpu", "openvino-npu")


@dataclass(frozen=True)
class Finding:
    """One thing looked for: whether it is there, what was found, and how to get it."""

    group: str
    name: str
    present: bool
    detail: str
    remedy: str = ""


@dataclass(frozen=True)
class Diagnosis(Result, kind="doctor", schema=1):
    """What ``doctor`` found."""

    machine: MachineFacts
    findings: tuple[Finding, ...]

    @property
    def healthy(self) -> bool:
        """Whether the runtime works; everything else is optional."""
        return all(finding.present for finding in self.findings if finding.group == "runtime")


def doctor() -> Diagnosis:
    """Look at this machine: runtime, CPU, accelerators, extras, device tools.

    Example:
        >>> doctor().healthy
        True
    """
    machine = machine_facts()
    findings = (*_runtime(), *_cpu(machine), *_accelerators(), *_extras(), *_devices(), *_quiet(machine))
    return Diagnosis(machine, findings)


def _runtime() -> list[Finding]:
    from litesmith.runtime import why_not_litert

    version = package_version("ai-edge-litert")
    if version is None:
        return [Finding("runtime", "LiteRT", False, "not installed", "pip install ai-edge-litert")]
    problem = why_not_litert()
    detail = f"{version}, C API checked" if not problem else f"{version}; {problem}; Litesmith uses the Interpreter"
    remedy = "" if not problem else "install the version in Litesmith's constraints.txt"
    return [Finding("runtime", "LiteRT", True, detail, remedy)]


def _cpu(machine: MachineFacts) -> list[Finding]:
    wide = {"avx512_vnni", "avx_vnni"} & set(machine.features)
    arm = "asimddp" in machine.features
    int8 = ", ".join(sorted(wide)) or ("dot product" if arm else "")
    return [
        Finding("cpu", "8-bit dot products", bool(int8), int8 or "none: int8 runs on wider multiplications"),
        Finding("cpu", "cores for threads", machine.cores > 1, f"{machine.cores}"),
    ]


def _accelerators() -> list[Finding]:
    found = []
    for accelerator in known_accelerators():
        if accelerator.name in _ONE_OF_EACH:
            reason, remedy = accelerator.why_absent()
            driver = vulkan_driver() if accelerator.name == "webgpu" else None
            detail = f"Vulkan by {driver.stem}" if driver else "there; `litesmith accelerators` measures it"
            found.append(Finding("accelerators", accelerator.title, not reason, reason or detail, remedy))
    return found


def _extras() -> list[Finding]:
    extras = {
        "metrics": ("scikit-learn", "AUC, F1, mAP and word error rate"),
        "train": ("torch", "checkpoints for the zoo"),
    }
    return [
        Finding(
            "extras",
            extra,
            (found := package_version(package)) is not None,
            f"{package} {found}" if found else f"not installed: {purpose}",
            "" if found else f"pip install 'litesmith[{extra}]'",
        )
        for extra, (package, purpose) in extras.items()
    ]


def _devices() -> list[Finding]:
    tools = {"ssh": "openssh-client", "adb": "adb"}
    return [
        Finding(
            "devices",
            tool,
            (path := shutil.which(tool)) is not None,
            path or "not found",
            "" if path else f"install it, on Debian: apt install {package}",
        )
        for tool, package in tools.items()
    ]


def _quiet(machine: MachineFacts) -> list[Finding]:
    """What makes timings honest or noisy."""
    busy = machine.load[0] > 0.5 * machine.cores
    slow = machine.governor not in ("", "performance")
    energy = Path("/sys/class/powercap/intel-rapl:0/energy_uj")
    return [
        Finding(
            "measuring",
            "quiet machine",
            not busy,
            f"load {machine.load[0]:.2f} on {machine.cores} cores",
            "stop other programs before you measure" if busy else "",
        ),
        Finding(
            "measuring",
            "steady clock",
            not slow,
            machine.governor or ("not told (virtual machine)" if machine.virtual else "not told"),
            "sudo cpupower frequency-set -g performance" if slow else "",
        ),
        Finding(
            "measuring",
            "energy (RAPL)",
            os.access(energy, os.R_OK),
            "readable"
            if os.access(energy, os.R_OK)
            else "no permission"
            if energy.exists()
            else "this CPU does not tell",
            f"sudo chmod a+r {energy}" if energy.exists() and not os.access(energy, os.R_OK) else "",
        ),
    ]
