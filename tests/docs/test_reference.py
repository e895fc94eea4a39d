# SPDX-License-Identifier: Apache-2.0
"""The reference is what the code says: pages are compared with what the tool makes of it now."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
_spec = importlib.util.spec_from_file_location("make_reference", REPOSITORY / "tools" / "make_reference.py")
assert _spec is not None
assert _spec.loader is not None
make_reference = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(make_reference)


@pytest.mark.parametrize("name", make_reference.PAGES)
def test_the_page_is_up_to_date(name: str) -> None:
    written = (REPOSITORY / "docs" / "reference" / name).read_text(encoding="utf-8")

    assert written == make_reference.PAGES[name](), "run: python tools/make_reference.py"


def test_every_verb_is_a_public_function_with_a_page() -> None:
    import litesmith
    from litesmith.cli._app import VERBS

    page = (REPOSITORY / "docs" / "reference" / "command-line.md").read_text(encoding="utf-8")
    for verb in VERBS:
        assert f"## litesmith {verb}\n" in page
        assert hasattr(litesmith, verb), f"the verb {verb} has no public function litesmith.{verb}"


def test_every_verb_shows_an_example() -> None:
    page = (REPOSITORY / "docs" / "reference" / "command-line.md").read_text(encoding="utf-8")

    for section in page.split("\n## ")[1:]:
        assert "Example:" in section, section.splitlines()[0]
