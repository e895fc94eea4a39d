# SPDX-License-Identifier: Apache-2.0
"""The page of a result that has none of its own: its plain values as facts, its lists as tables."""

from __future__ import annotations

import dataclasses
from typing import Any

from litesmith.report._page import Page, Section, table
from litesmith.result import Result

_SHOWN_SAMPLES = 5


def any_page(result: Result) -> Page:
    """Return a page of whatever a result holds."""
    facts, sections = [], []
    for field in dataclasses.fields(result):  # type: ignore[arg-type]
        value, title = getattr(result, field.name), field.name.replace("_", " ")
        if isinstance(value, (tuple, list)) and value and dataclasses.is_dataclass(value[0]):
            sections.append(_list_section(title, value))
        elif dataclasses.is_dataclass(value):
            facts += [(f"{title}: {name}", text) for name, text in _flat(value)]
        else:
            facts.append((title, _text(value)))
    return Page(
        title=f"Result: {result.kind}",
        summary=f"A result of kind {result.kind}, with all that it holds.",
        facts=tuple((name, text) for name, text in facts if text),
        sections=tuple(sections),
    )


def _list_section(title: str, values: Any) -> Section:
    rows = [dict(_flat(value)) for value in values]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    return Section(title, table=table(columns, [[row.get(c, "") for c in columns] for row in rows]))


def _flat(value: Any) -> list[tuple[str, str]]:
    found = []
    for field in dataclasses.fields(value):
        inner, name = getattr(value, field.name), field.name.replace("_", " ")
        if dataclasses.is_dataclass(inner):
            found += [(f"{name} {key}", text) for key, text in _flat(inner)]
        else:
            found.append((name, _text(inner)))
    return found


def _text(value: Any) -> str:
    if value is None or value == "":
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, dict):
        return ", ".join(f"{key} {_text(item)}" for key, item in value.items())
    if isinstance(value, (tuple, list)):
        if len(value) > _SHOWN_SAMPLES and all(isinstance(v, (int, float)) for v in value):
            return f"{len(value)} values, {_text(float(min(value)))} to {_text(float(max(value)))}"
        return ", ".join(_text(item) if not dataclasses.is_dataclass(item) else str(item) for item in value)
    return str(value)
