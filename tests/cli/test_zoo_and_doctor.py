# SPDX-License-Identifier: Apache-2.0
"""`litesmith zoo` and `litesmith doctor`."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Command

from litesmith.measure import Diagnosis
from litesmith.model import Model


def test_the_list_has_the_published_figures(litesmith: Command) -> None:
    done = litesmith("zoo")
    entries = json.loads(litesmith("zoo", "--json").stdout)

    assert done.returncode == 0, done.stderr
    assert "mobilenet_v2" in done.stdout
    assert {"mobilenet_v1", "mobilenet_v2", "resnet_50", "mobilebert"} <= {e["family"] for e in entries} | {
        e["name"] for e in entries
    }
    assert all(e["source"] for e in entries)


def test_build_writes_a_model(litesmith: Command, tmp_path: Path) -> None:
    done = litesmith("zoo", "build", "mobilenet_v2", "--width", 0.5, "--resolution", 96, "-o", "m.tflite")

    assert done.returncode == 0, done.stderr
    model = Model.load(tmp_path / "m.tflite")
    model.verify()
    assert model.main.tensors[model.main.inputs[0]].shape == (1, 96, 96, 3)


def test_a_wrong_name_is_told_with_the_right_one(litesmith: Command) -> None:
    done = litesmith("zoo", "build", "mobilnet_v2", "-o", "m.tflite")

    assert done.returncode == 2
    assert "mobilenet_v2" in done.stderr


def test_doctor_tells_people_and_programs(litesmith: Command) -> None:
    done = litesmith("doctor")
    result = Diagnosis.from_json(litesmith("doctor", "--json").stdout)

    assert done.returncode == 0, done.stderr
    assert result.healthy
    assert result.machine.cores >= 1
    for finding in result.findings:
        assert finding.name in done.stdout
        assert finding.present or finding.detail


def test_version_and_help(litesmith: Command) -> None:
    assert litesmith("--version").stdout.startswith("litesmith ")
    assert "inspect" in litesmith("--help").stdout
