# SPDX-License-Identifier: Apache-2.0
"""What a finished trial and a measurement of the zoo are kept by: everything that makes a file, or times it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import litesmith
from litesmith.runtime._native import has_library
from litesmith.tune._stamp import makers

PACKAGE = Path(litesmith.__file__).parent


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the package with its native library, to change."""
    target = tmp_path_factory.mktemp("site") / "litesmith"
    shutil.copytree(PACKAGE, target, ignore=shutil.ignore_patterns("__pycache__", "samples"))
    if has_library():
        library = Path(litesmith.delegate_path())
        shutil.copy(library, target / "runtime" / library.name)
    return target


def _stamp(package: Path) -> str:
    packages = sysconfig.get_paths()["purelib"]
    paths = [str(package.parent), *(path for path in sys.path if path.endswith("site-packages")), packages]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONDONTWRITEBYTECODE": "1"}
    code = "import litesmith; from litesmith.tune._stamp import stamp; print(litesmith.__file__, stamp())"
    command = [sys.executable, "-S", "-c", code]  # without what an editable installation does to imports
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    place, found = done.stdout.split()
    assert Path(place).parent == package
    return found


@pytest.fixture(scope="module")
def unchanged(copy: Path) -> str:
    """Return the stamp of the copy as it is."""
    found = _stamp(copy)
    assert _stamp(copy) == found
    return found


@pytest.mark.parametrize(
    "changed",
    [
        "targets/_fix.py",
        "targets/rules/xnnpack.toml",
        "zoo/catalogue.toml",
        "measure/_timing.py",
        "runtime/liblitesmith_delegate.so",
    ],
)
def test_the_stamp_changes_with_what_makes_and_times_files(copy: Path, unchanged: str, changed: str) -> None:
    if changed.endswith(".so") and not has_library():
        pytest.skip("this installation has no native library")
    file = copy / changed
    content = file.read_bytes()
    file.write_bytes(content + b"\n")
    try:
        assert _stamp(copy) != unchanged
    finally:
        file.write_bytes(content)


def test_the_makers_of_a_file_are_those_that_its_recipe_uses() -> None:
    pytest.importorskip("torch", reason="the extra train is not installed")

    assert set(makers("channels(0.8) → int8")) == {"pillow", "scipy", "soundfile"}
    for learned in ("train(int8, epochs=1)", "int8(rounding, bias)"):
        assert makers(learned).keys() == {"pillow", "scipy", "soundfile", "torch"}
