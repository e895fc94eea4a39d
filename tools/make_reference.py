# SPDX-License-Identifier: Apache-2.0
"""Write docs/reference/ from the code: the help of every verb, and the docstring of every public name.

    python tools/make_reference.py

A test compares the pages with what this makes, so they cannot drift.
"""

from __future__ import annotations

import importlib
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import litesmith
from litesmith.cli._app import VERBS

REFERENCE = Path(__file__).resolve().parent.parent / "docs" / "reference"
NOTE = "Written by `python tools/make_reference.py` from the code.\n"


def verb_help(*words: str) -> str:
    environment = {**os.environ, "COLUMNS": "96", "NO_COLOR": "1", "TERM": "dumb"}
    command = [sys.executable, "-m", "litesmith", *words, "--help"]
    text = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    return re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE).strip("\n")


def command_page() -> str:
    parts = ["# Command line\n", NOTE, f"```text\n{verb_help()}\n```\n"]
    for verb in VERBS:
        parts.append(f"## litesmith {verb}\n\n```text\n{verb_help(verb)}\n```\n")
    parts.append(f"## litesmith zoo build\n\n```text\n{verb_help('zoo', 'build')}\n```\n")
    return "\n".join(parts)


def python_page() -> str:
    parts = ["# Python\n", NOTE]
    for name in sorted(litesmith.__all__, key=str.casefold):
        value = getattr(litesmith, name)
        if inspect.ismodule(value):
            parts.append(f"## litesmith.{name}\n\n{_text(value)}\n")
            parts += [_entry(f"litesmith.{name}.{inner}", getattr(value, inner)) for inner in value.__all__]
        else:
            parts.append(_entry(f"litesmith.{name}", value))
    model = importlib.import_module("litesmith.model")
    parts.append(f"## litesmith.model\n\n{_text(model)}\n")
    parts += [_entry(f"litesmith.model.{name}", getattr(model, name)) for name in model.__all__ if name != "Model"]
    return "\n".join(parts)


def _entry(name: str, value: object) -> str:
    signature = ""
    if inspect.isclass(value) or inspect.isroutine(value):
        try:
            signature = re.sub(r" at 0x[0-9a-f]+", "", str(inspect.signature(value)))
        except ValueError:
            signature = "(…)"
    elif not callable(value):
        return f"### {name}\n"
    return f"### {name}\n\n```text\n{name.split('.')[-1]}{signature}\n```\n\n{_text(value)}\n"


def _text(value: object) -> str:
    """Return the docstring with its example indented as code."""
    return re.sub(r"^(\s*>>> )", r"\1", inspect.getdoc(value) or "", flags=re.MULTILINE)


PAGES = {"command-line.md": command_page, "python.md": python_page}


def main() -> None:
    REFERENCE.mkdir(parents=True, exist_ok=True)
    for name, make in PAGES.items():
        (REFERENCE / name).write_text(make(), encoding="utf-8")
        print(REFERENCE / name)


if __name__ == "__main__":
    main()
