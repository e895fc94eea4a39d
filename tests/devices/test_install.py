# SPDX-License-Identifier: Apache-2.0
"""What a device needs: the parcel, the wheels for its system, and the private folder they are installed in once."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import pytest
from tests.devices.conftest import assert_nothing_is_left

import litesmith
from litesmith.devices import Device, check, find_wheels, run
from litesmith.devices._parcel import package, pip, requirements
from litesmith.errors import DeviceError, UsageError
from litesmith.measure import Bench, Profile
from litesmith.model import Builder, Quantization
from litesmith.runtime import LITESMITH, LitesmithWarning, native_tier


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


needs_kernels = pytest.mark.skipif(not native_tier(), reason="Litesmith was installed without its kernels")


@pytest.fixture(scope="module")
def int16(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of int16 operators, for which Litesmith has kernels."""
    b = Builder("int16")
    scale = Quantization(scale=(0.001,), zero_point=(0,))
    x = b.input("x", (1, 64), "int16", quantization=scale)
    path = tmp_path_factory.mktemp("models") / "int16.tflite"
    b.build({"y": b.op("MUL", x, x, quantization=scale, dtype="int16")}).save(path)
    return path


@pytest.fixture
def foreign(tmp_path: Path) -> Device:
    """This machine with a Python that has the runtime and no Litesmith."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "there"], check=True)
    (site,) = (tmp_path / "there" / "lib").glob("python*/site-packages")
    for entry in Path(sysconfig.get_paths()["purelib"]).iterdir():
        if "litesmith" not in entry.name and entry.suffix != ".pth" and not (site / entry.name).exists():
            (site / entry.name).symlink_to(entry)
    folders = {"folder": str(tmp_path / "device"), "lock": str(tmp_path / "lock")}
    return Device("there", "local://", python=f"{tmp_path}/there/bin/python", runtime="installed", **folders)


@pytest.fixture
def stranger(foreign: Device) -> Device:
    """The same, and it says that it is a machine of another architecture."""
    words = ["setarch", "linux32", str(foreign.python)]
    if shutil.which(words[0]) is None or subprocess.run([*words, "-c", ""], check=False).returncode:
        pytest.skip("setarch does not work here")
    return replace(foreign, python=" ".join(words))


def kernels_of(profile: object) -> set[str]:
    assert isinstance(profile, Profile)
    return {operator.delegate for operator in profile.operators}


@needs_kernels
def test_litesmiths_kernels_go_along_to_a_machine_like_this_one(foreign: Device, int16: Path) -> None:
    assert kernels_of(run("profile", int16, device=foreign, runs=3)) == {LITESMITH}
    assert_nothing_is_left(foreign)


@needs_kernels
def test_a_device_without_litesmiths_kernels_says_so_here(stranger: Device, int16: Path) -> None:
    assert check(stranger).architecture != check(replace(stranger, python=sys.executable)).architecture
    said = "has int16 or pruned operators, which run on slow kernels: this Litesmith has no native delegate"
    with pytest.warns(LitesmithWarning, match=f"on device 'there': the model .* {said}") as heard:
        profile = run("profile", int16, device=stranger, runs=3)
    with pytest.warns(LitesmithWarning, match=f"on device 'there': {re.escape(str(int16))} {said}"):
        run("bench", int16, device=stranger, runs=3, memory=False)

    assert len(heard) == 1
    assert heard[0].filename == __file__, "the line that asked"
    assert LITESMITH not in kernels_of(profile)


@needs_kernels
def test_an_installation_there_has_kernels_of_its_own(stranger: Device, int16: Path, tmp_path: Path) -> None:
    (site,) = (tmp_path / "there" / "lib").glob("python*/site-packages")
    (site / f"litesmith-{litesmith.__version__}.dist-info").mkdir()
    (site / "litesmith" / "runtime").mkdir(parents=True)
    library = Path(litesmith.delegate_path())
    (site / "litesmith" / "runtime" / library.name).symlink_to(library)

    assert kernels_of(run("profile", int16, device=stranger, runs=3)) == {LITESMITH}


def test_a_user_without_a_name_can_ask() -> None:
    """As in a container that was started with --user."""
    if os.getuid():
        pytest.skip("only root can be somebody else")
    program = "import os; from litesmith.devices._errand import _user; os.setuid(54321); print(_user())"

    done = subprocess.run([sys.executable, "-c", program], env={}, capture_output=True, text=True, check=False)

    assert done.stdout == "user 54321\n", done.stderr


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
