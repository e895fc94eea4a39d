# SPDX-License-Identifier: Apache-2.0
"""What a device needs: the parcel, the wheels for its system, and the private folder they are installed in once."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import zipfile
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import pytest
from tests.devices.conftest import assert_nothing_is_left

from litesmith.devices import Device, check, find_wheels, run
from litesmith.devices._parcel import package, pip, requirements
from litesmith.errors import DeviceError, UsageError
from litesmith.measure import Bench


def _index() -> bool:
    """Whether pip reaches a package index."""
    probe = [sys.executable, "-m", "pip", "index", "versions", "tqdm"]
    return subprocess.run(probe, capture_output=True, check=False, timeout=60).returncode == 0


@pytest.fixture(scope="module")
def index() -> None:
    if not _index():
        pytest.skip("pip reaches no package index here")


def test_the_parcel_is_code_and_tables_alone_and_always_the_same() -> None:
    names = zipfile.ZipFile(io.BytesIO(package().data)).namelist()
    package.cache_clear()

    assert "litesmith/devices/_job.py" in names
    assert "litesmith/targets/rules/edgetpu.toml" in names
    assert not [name for name in names if name.endswith((".npz", ".tflite", ".pyc"))]
    assert len(package().data) < 2_000_000
    first = package()
    package.cache_clear()
    assert package() == first


def test_only_the_runtime_is_needed_there() -> None:
    assert {need.split("=")[0].split(">")[0] for need in requirements()} <= {"ai-edge-litert", "numpy", "tomli"}
    assert len(requirements()) >= 2


@pytest.mark.usefixtures("index")
def test_all_that_runs_there_needs_no_more_than_that(tiny: Path, tmp_path: Path) -> None:
    """Whatever else Litesmith stands on is made impossible to import, here and in the processes that it starts."""
    needed = {re.split(r"[^\w.-]", need)[0].lower() for need in metadata.requires("litesmith") or ()}
    others = needed - {"ai-edge-litert", "numpy", "tomli"}
    barred = {name for name, homes in metadata.packages_distributions().items() if others & {h.lower() for h in homes}}
    (tmp_path / "sitecustomize.py").write_text(
        f"import sys\nbarred = {barred!r}\n"
        "class Bar:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] in barred: raise ImportError(f'{name} is not on a device')\n"
        "sys.meta_path.insert(0, Bar())\n"
    )
    assert "scipy" in barred
    code = (
        "import sys, litesmith\nassert 'Bar' in {type(f).__name__ for f in sys.meta_path}\n"
        f"model, data, short = {str(tiny)!r}, litesmith.samples.dataset(), {{'seconds': 0.02}}\n"
        "litesmith.bench(model, runs=3)\n"
        "litesmith.profile(model, runs=3)\n"
        "litesmith.threads(model, counts=[1], **short)\n"
        "litesmith.copies(model, **short)\n"
        "own = litesmith.samples.model()\n"
        "litesmith.accelerators(own, only=['builtin'], runs=3, data=data, samples=5, **short)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr


def test_an_arm_board_gets_wheels_of_its_own() -> None:
    python = "3.13.1"
    wheels = find_wheels("aarch64", python, "2.36")
    tag = "cp" + "".join(python.split(".")[:2])

    assert any(w.startswith("ai_edge_litert-") and w.endswith("aarch64.whl") and tag in w for w in wheels)
    assert all(w.endswith(("aarch64.whl", "none-any.whl")) for w in wheels)


@pytest.mark.usefixtures("index")
@pytest.mark.parametrize(
    ("architecture", "python", "glibc"),
    [("armv7l", "3.11", "2.36"), ("aarch64", "3.11", "2.19")],
)
def test_a_board_that_there_are_no_wheels_for_is_told(architecture: str, python: str, glibc: str) -> None:
    with pytest.raises(DeviceError, match=f"no wheels of .* for {architecture}, Python {python} and glibc {glibc}"):
        find_wheels(architecture, python, glibc)


@pytest.mark.usefixtures("index")
def test_the_runtime_is_installed_in_the_private_folder_once_even_without_pip_there(
    board: Device, tiny: Path, tmp_path: Path
) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    bare = replace(board, python=str(tmp_path / "bare" / "bin" / "python"), runtime="private", grace_s=60)
    said: list[str] = []

    first = run("bench", tiny, device=bare, say=said.append, runs=3, memory=False)
    second = run("bench", tiny, device=bare, say=said.append, runs=3, memory=False)

    assert isinstance(first, Bench)
    assert isinstance(second, Bench)
    assert [text for text in said if "no pip" in text] == ["board has no pip; sending ours"]
    assert len([text for text in said if text.startswith("installing ai-edge-litert")]) == 1
    assert len(list((Path(bare.folder) / "runtimes").iterdir())) == 1
    assert pip().data
    assert_nothing_is_left(bare)


def test_a_runtime_that_cannot_be_installed_is_told_and_nothing_is_left(
    board: Device, tiny: Path, tmp_path: Path
) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    (site,) = (tmp_path / "bare" / "lib").glob("python*/site-packages")
    (site / "pip").mkdir()
    (site / "pip" / "__init__.py").touch()
    (site / "pip" / "__main__.py").write_text(
        "import sys\nif 'install' in sys.argv: sys.exit('ERROR: No matching distribution found for ai-edge-litert')\n"
    )
    bare = replace(board, python=str(tmp_path / "bare" / "bin" / "python"), runtime="private")

    with pytest.raises(
        DeviceError, match=r"pip could not install ai-edge-litert.* for Python 3.* on .*: ERROR: No matching"
    ):
        run("bench", tiny, device=bare)
    assert not (Path(bare.folder) / "runtimes").exists()
    assert_nothing_is_left(bare)


def test_the_worker_on_an_arm_python(board: Device, tiny: Path) -> None:
    """The worker's part in Python, under an aarch64 Python that is given by path, in qemu-user say."""
    python = os.environ.get("LITESMITH_ARM64_PYTHON")
    if not python:
        pytest.skip("LITESMITH_ARM64_PYTHON names no aarch64 Python with numpy")
    arm = replace(board, python=python, grace_s=60)

    assert check(arm).architecture == "aarch64"
    with pytest.raises(UsageError, match="on device 'board': kernels must be"):
        run("bench", tiny, device=arm, kernels="quick", runs=1)
    assert_nothing_is_left(arm)
