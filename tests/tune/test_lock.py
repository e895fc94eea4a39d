# SPDX-License-Identifier: Apache-2.0
"""What is refused when a lock is read: files that are none, and fields that are missing, of another type or impossible."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.tune.conftest import Command

from litesmith import samples
from litesmith.errors import UsageError
from litesmith.tune import Tuned, gate, reproduce

REMOVED = object()


def _damaged(finished: Tuned, place: str, value: object, folder: Path) -> Path:
    """Write the lock of a search with another value at a place such as trial.timing.threads."""
    document = json.loads((Path(finished.folder) / "litesmith.lock").read_text())
    *outer, last = place.split(".")
    fields: dict[str, Any] = document
    for name in outer:
        fields = fields[name]
    if value is REMOVED:
        del fields[last]
    else:
        fields[last] = value
    path = folder / "bad.lock"
    path.write_text(json.dumps(document))
    return path


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        ("seed", "a", "seed must be a whole number, not 'a'"),
        ("seed", 1.5, "seed must be a whole number, not 1.5"),
        ("seed", -5, "seed must be 0 or more, not -5"),
        ("origin", "here", "origin must be an object, not 'here'"),
        ("origin.model", 5, "origin.model must be text, not 5"),
        ("winner_hash", REMOVED, "winner_hash is missing"),
        ("label_offset", True, "label_offset must be a whole number, not True"),
        ("drop_bound", "little", "drop_bound must be a number, not 'little'"),
        ("budget.max_size_bytes", -3, "max_size_bytes must be above 0, not -3"),
        ("trial.score", None, "trial.score is missing"),
        ("trial.threads", "ab", "trial.threads must be a list, not 'ab'"),
        ("trial.timing.threads", "many", "trial.timing.threads must be a whole number, not 'many'"),
        ("trial.timing.threads", 0, "trial.timing.threads must be 1 or more, not 0"),
        ("trial.timing.median_ms", "nan", "trial.timing.median_ms must be above 0, not nan"),
        ("machine.versions", [], "machine.versions must be an object, not []"),
    ],
)
def test_a_damaged_lock_is_refused_with_the_field_and_its_value(
    finished: Tuned, tmp_path: Path, place: str, value: object, words: str
) -> None:
    path = _damaged(finished, place, value, tmp_path)
    for use in (gate, reproduce):
        with pytest.raises(
            UsageError, match=f"{re.escape(str(path))}.*{re.escape(words)}.*as `litesmith tune` left it"
        ):
            use(path)


def test_a_file_that_is_no_lock_is_refused_in_one_line(litesmith: Command) -> None:
    for words in (("gate", samples.path()), ("tune", "--from", samples.path())):
        done = litesmith(*words)

        assert done.returncode == 2
        assert "fashion.tflite is not a Lock: it is not JSON" in done.stderr
        assert "Traceback" not in done.stderr
