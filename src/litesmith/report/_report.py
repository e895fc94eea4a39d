# SPDX-License-Identifier: Apache-2.0
"""The page of any result, from the value, its file, or the folder of a search."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from litesmith.errors import UsageError
from litesmith.report._any import any_page
from litesmith.report._page import Page, write, write_plots
from litesmith.result import Result

_PAGES = {
    "tune": ("_tune", "tune_page"),
    "choose": ("_choose", "choose_page"),
    "advice": ("_advise", "advice_page"),
    "profile": ("_profile", "profile_page"),
    "layer-report": ("_layers", "layers_page"),
    "bench": ("_bench", "bench_page"),
    "coverage": ("_coverage", "coverage_page"),
    "train": ("_train", "train_page"),
}
"""Kinds of results with a page of their own: the module that makes it, and the function."""
_HOMES = ("measure", "accuracy", "optimize", "train", "tune", "runtime", "devices")


def page_of(result: Result) -> Page:
    """Return the page of a result."""
    module, name = _PAGES.get(result.kind, ("", ""))
    if not module:
        return any_page(result)
    make: Callable[[Any], Page] = getattr(importlib.import_module(f"litesmith.report.{module}"), name)
    return make(result)


def report(source: Result | str | Path, output: str | Path | None = None, *, plots: str | Path | None = None) -> Path:
    """Write the page of a result, one self-contained HTML file, and return its path.

    Args:
        source: a result, the `.json` of one, or the folder of a search.
        output: the `.html` to write; by default beside the source.
        plots: a folder to write each plot to, as SVG and PNG.

    Example:
        >>> import litesmith, tempfile
        >>> result = litesmith.bench(litesmith.samples.model(), runs=5, memory=False)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     litesmith.report(result, f"{folder}/bench.html").name
        'bench.html'
    """
    if isinstance(source, Result):
        result, place = source, Path(f"{source.kind}.html")
    else:
        path = Path(source)
        path = path / "tune.json" if path.is_dir() else path
        result, place = read_result(path), path.with_suffix(".html")
    page = page_of(result)
    if plots is not None:
        write_plots(page, plots)
    return write(page, place if output is None else output)


def read_result(path: Path) -> Result:
    """Read a result of whatever kind from its JSON file."""
    try:
        text = path.read_text(encoding="utf-8")
        document = json.loads(text)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"{path} is not the JSON of a result: {error}") from error
    kind = document.get("kind") if isinstance(document, dict) else None
    for home in _HOMES:
        importlib.import_module(f"litesmith.{home}")
    classes = Result.kinds()
    if not isinstance(kind, str) or kind not in classes:
        raise UsageError(f"{path} holds no result: its kind is {kind!r}, and there are {', '.join(sorted(classes))}")
    return classes[kind].from_json(text)
