# SPDX-License-Identifier: Apache-2.0
"""The shape of the package: what imports what, how fast it imports, what it shows."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import litesmith

SOURCE = Path(litesmith.__file__).parent
ORDER = (
    "model", "zoo", "data", "runtime", "accuracy", "measure", "optimize", "targets", "train", "devices", "tune",
    "report", "samples", "cli",
)  # fmt: skip
"""A folder imports only what stands to its left."""


def _imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{a.name}" for a in node.names)]
        found.update(n.split(".")[1] for n in names if n.startswith("litesmith.") and "." in n)
    return found & set(ORDER)


@pytest.mark.parametrize("folder", ORDER)
def test_a_folder_imports_only_what_stands_to_its_left(folder: str) -> None:
    allowed = {*ORDER[: ORDER.index(folder)], folder}
    if folder == "runtime":
        allowed.discard("data")
    for path in (SOURCE / folder).rglob("*.py"):
        assert not _imports(path) - allowed, f"{path.relative_to(SOURCE)} reaches to the right"


def test_every_folder_is_in_the_order() -> None:
    folders = {p.name for p in SOURCE.iterdir() if p.is_dir() and any(p.glob("*.py"))}

    assert folders <= set(ORDER)


def test_import_is_light() -> None:
    code = (
        "import sys, time; start = time.process_time(); import litesmith; spent = time.process_time() - start;"
        "heavy = {'torch', 'dask', 'ai_edge_litert', 'scipy', 'rich', 'PIL', 'plotly'} & set(sys.modules);"
        "print(spent, *heavy)"
    )
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(5)]
    seconds, *heavy = min(run.stdout.split() for run in runs)

    assert float(seconds) < 0.150
    assert not heavy


def test_the_public_names_exist() -> None:
    names = litesmith.__all__

    assert set(names) == set(litesmith._HOMES)
    for name in names:
        assert getattr(litesmith, name) is not None
    assert set(names) <= set(dir(litesmith))


def test_every_folder_has_the_names_it_shows() -> None:
    for folder in (f for f in ORDER if (SOURCE / f / "__init__.py").exists()):
        module = importlib.import_module(f"litesmith.{folder}")
        for name in getattr(module, "__all__", []):
            assert hasattr(module, name), f"{folder}.{name}"


def test_every_source_file_says_its_licence_and_its_idea() -> None:
    for path in SOURCE.rglob("*.py"):
        text = path.read_text()
        assert text.startswith("# SPDX-License-Identifier: Apache-2.0\n"), path
        assert ast.get_docstring(ast.parse(text)), f"{path} has no docstring"
