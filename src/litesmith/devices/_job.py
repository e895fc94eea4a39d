# SPDX-License-Identifier: Apache-2.0
"""The job itself, on the device: `python -m litesmith.devices._job` in the job's folder calls one public function.

It reads ``job.json`` and leaves ``outcome.json``: the result, or the error with the name of its class. Anything else, a
crash say, leaves none.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import litesmith
from litesmith.data import Dataset
from litesmith.errors import LitesmithError
from litesmith.runtime import load_custom_op


def _main() -> None:
    call = json.loads(Path("job.json").read_text(encoding="utf-8"))
    sys.argv = call["command"]
    try:
        for spec in call["custom_ops"]:
            load_custom_op(spec)
        outcome = {"result": _call(call["verb"], call["models"], call["options"], call["data"])}
    except LitesmithError as error:
        outcome = {"error": type(error).__name__, "message": str(error)}
    part = Path("outcome.json.part")
    part.write_text(json.dumps(outcome), encoding="utf-8")
    part.rename("outcome.json")


def _call(verb: str, models: list[str], options: dict[str, Any], data: dict[str, Any] | None) -> Any:
    given = {} if data is None else {"data": Dataset.open(data.pop("file"), **data)}
    return json.loads(getattr(litesmith, verb)(*models, **options, **given).to_json())


if __name__ == "__main__":
    _main()
