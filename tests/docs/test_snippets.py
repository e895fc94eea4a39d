# SPDX-License-Identifier: Apache-2.0
"""Every snippet of the documentation runs, and prints what it says.

A ```python block is a program. In a ```console block a line with `$ ` is a command; lines below it are compared with
its output, where `…` stands for anything. The blocks of a page run in order in one empty folder.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SETUP = re.compile(r"^(git|cd|make|pip|python -m venv|sudo|apt)\b")  # what a reader does once, before the first verb


@pytest.mark.parametrize("page", [p for p in PAGES if BLOCK.search(p.read_text())], ids=lambda p: p.stem)
def test_the_snippets_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for language, code in BLOCK.findall(page.read_text()):
        if language == "python":
            with contextlib.redirect_stdout(io.StringIO()):
                exec(compile(code, str(page), "exec"), {"__name__": "__main__"})
        else:
            _run_console(code, tmp_path)


def _run_console(code: str, folder: Path) -> None:
    for entry in re.split(r"^\$ ", code, flags=re.MULTILINE)[1:]:
        command, _, expected = entry.partition("\n")
        if SETUP.match(command):
            continue
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        environment = {**os.environ, "PATH": path, "COLUMNS": "80"}
        run = subprocess.run(
            command, shell=True, cwd=folder, capture_output=True, text=True, env=environment, check=False
        )
        assert run.returncode == 0, f"{command}\n{run.stdout}{run.stderr}"
        if expected.strip():
            pattern = r"\s*".join(re.escape(part.strip()) for part in expected.strip().split("…"))
            pattern = re.sub(r"(\\\s|\\n|\n)+", r"\\s+", pattern).replace(r"\s*", r".*?")
            assert re.search(pattern, run.stdout, re.DOTALL), f"{command} printed\n{run.stdout}\nnot\n{expected}"
