# SPDX-License-Identifier: Apache-2.0
"""What a search refuses before it tries anything: seeds, outputs and addresses that cannot be."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from tests.tune.conftest import OPTIONS, Command, quick_tune

from litesmith import samples
from litesmith.errors import UsageError
from litesmith.tune import plan
from litesmith.tune._tune import ask

DATA = samples.path("fashion-test.npz")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"seed": -5}, "must be 0 or more, not -5"),
        ({"model_output": "foo"}, "no output 'foo'; its outputs are: logits"),
    ],
)
def test_a_question_that_cannot_be_asked_is_refused_before_a_trial(
    options: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=words):
        quick_tune(tmp_path / "run", **options)
    with pytest.raises(UsageError, match=words):
        plan(samples.path(), DATA, preprocess="scale=1/255", **options)

    assert not (tmp_path / "run").exists()


def test_the_output_may_be_named() -> None:
    question, _ = ask(samples.path(), DATA, "scale=1/255", model_output="logits")

    assert question.output == "logits"


def test_the_command_line_refuses_a_seed_at_once(litesmith: Command) -> None:
    done = litesmith("tune", samples.path(), "--data", "missing.npz", *OPTIONS, "--seed", -5)

    assert done.returncode == 2
    assert "--seed must be 0 or more, not -5" in done.stderr


@pytest.mark.parametrize("address", ["banana", "http://banana", "tcp://banana", "tcp://a:b:c", "tcp://:8786", ""])
def test_what_is_no_address_of_a_scheduler_is_refused_at_once(address: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"^{re.escape(repr(address))} is no address.*such as tcp://"):
        quick_tune(tmp_path / "run", cluster=address)
