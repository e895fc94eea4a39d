# SPDX-License-Identifier: Apache-2.0
"""The job itself, on the device: `python -m litesmith.devices._job` in the job's folder calls one public function.

It reads ``job.json`` and leaves ``outcome.json``: the result, or the error with the name of its class, and the warnings.
Anything else, a crash say, leaves none.
"""

from __future__ import annotations

import contextlib
import json
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import litesmith
from litesmith.data import Dataset
from litesmith.errors import LitesmithError
from litesmith.runtime import LitesmithWarning, load_custom_op


def _main() -> None:
    call = json.loads(Path("job.json").read_text(encoding="utf-8"))
    sys.argv = call["command"]
    with _heard() as said:
        try:
            for spec in call["custom_ops"]:
                load_custom_op(spec)
            outcome = {"result": _call(call["verb"], call["models"], call["options"], call["data"])}
        except LitesmithError as error:
            outcome = {"error": type(error).__name__, "message": str(error)}
    outcome["warnings"] = list(dict.fromkeys(said))
    part = Path("outcome.json.part")
    part.write_text(json.dumps(outcome), encoding="utf-8")
    part.rename("outcome.json")


@contextlib.contextmanager
def _heard() -> Iterator[list[str]]:
    """Collect Litesmith's warnings, which are for the person who asked; all others go to the log."""
    said: list[str] = []
    with warnings.catch_warnings():
        show = warnings.showwarning

        def hear(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
            if issubclass(category, LitesmithWarning):
                said.append(str(message))
            else:
                show(message, category, *where, **more)

        warnings.simplefilter("always", LitesmithWarning)
        warnings.showwarning = hear
        yield said


def _call(verb: str, models: list[str], options: dict[str, Any], data: dict[str, Any] | None) -> Any:
    given = {} if data is None else {"data": Dataset.open(data.pop("file"), **data)}
    return json.loads(getattr(litesmith, verb)(*models, **options, **given).to_json())


if __name__ == "__main__":
    _main()
