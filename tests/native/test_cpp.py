# SPDX-License-Identifier: Apache-2.0
"""The C++ unit tests pass on every tier this machine has, and on Arm under emulation."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from conftest import build_native


def test_the_unit_tests_pass() -> None:
    done = subprocess.run([str(build_native() / "litesmith_unit_tests")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_the_unit_tests_pass_on_arm() -> None:
    compiler = "aarch64-linux-gnu-g++"
    for tool in (compiler, "qemu-aarch64"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    folder = build_native(
        "aarch64",
        "-DCMAKE_SYSTEM_NAME=Linux",
        "-DCMAKE_SYSTEM_PROCESSOR=aarch64",
        f"-DCMAKE_CXX_COMPILER={compiler}",
        "-DCMAKE_EXE_LINKER_FLAGS=-static",
        "-DCMAKE_BUILD_TYPE=Debug",
        target="litesmith_unit_tests",
    )
    command = ["qemu-aarch64", "-cpu", "max", str(folder / "litesmith_unit_tests"), "--no-fork"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "skipped" not in done.stdout  # the emulated processor has the tier


@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_the_unit_tests_pass_with_sanitizers(sanitizer: str) -> None:
    folder = build_native(
        sanitizer.replace(",", "-"), f"-DLITESMITH_SANITIZE={sanitizer}", target="litesmith_unit_tests"
    )
    done = subprocess.run([str(folder / "litesmith_unit_tests")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert "Sanitizer" not in done.stderr, done.stderr[-4000:]
    assert "runtime error" not in done.stderr, done.stderr[-4000:]
