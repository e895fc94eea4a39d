# SPDX-License-Identifier: Apache-2.0
"""`compat` and `devices` on the command line, and `--device` of the verbs that measure."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import Result
from tests.cli.conftest import Command
from typer.testing import CliRunner

from litesmith.cli._app import command_line
from litesmith.devices import DeviceList, DeviceResults
from litesmith.measure import Bench, Profile, Threads
from litesmith.model import Builder, Model
from litesmith.targets import TARGETS, Compatibility


@pytest.fixture
def devices(tmp_path: Path) -> Path:
    """A devices file with this machine under two names."""
    here = f'url = "local://"\npython = "{sys.executable}"\nruntime = "installed"\n'
    path = tmp_path / "devices.toml"
    path.write_text(
        f'[near]\n{here}folder = "{tmp_path / "near"}"\ntags = ["here"]\n\n[far]\n{here}folder = "{tmp_path / "far"}"\n'
    )
    return path


def invoke(*words: object) -> Result:
    """Run a command in this process, which is much faster."""
    return CliRunner().invoke(command_line(), [str(word) for word in words], catch_exceptions=False)


@pytest.mark.parametrize("target", TARGETS)
def test_compat_prints_a_verdict_in_80_columns_and_json(target: str, tiny: Path) -> None:
    shown = invoke("compat", tiny, "--target", target, "--operators")
    told = invoke("compat", tiny, "--target", target, "--json")

    found = Compatibility.from_json(told.stdout)
    assert shown.exit_code == told.exit_code == (0 if found.maps else 1), shown.output
    assert found.target == target
    assert max(map(len, shown.stdout.splitlines())) <= 80
    assert ("maps whole" in shown.stdout) == found.maps
    assert "rules: " in shown.stdout


def test_compat_fix_writes_a_file_that_maps(litesmith: Command, tmp_path: Path) -> None:
    b = Builder()
    x = b.input("x", (1, 1, 1, 8))
    b.build({"y": b.op("SQUEEZE", x, outputs=[((1, 8), "float32")], squeeze_dims=(1, 2))}).save(tmp_path / "m.tflite")

    before = litesmith("compat", "m.tflite", "--target", "gpu")
    fixed = litesmith("compat", "m.tflite", "--target", "gpu", "--fix", "f.tflite")
    after = invoke("compat", tmp_path / "f.tflite", "--target", "gpu")

    assert (before.returncode, fixed.returncode, after.exit_code) == (1, 0, 0), fixed.stderr
    assert "--fix writes it as RESHAPE" in before.stdout
    assert "SQUEEZE as RESHAPE" in fixed.stdout
    assert [op.kind for op in Model.load(tmp_path / "f.tflite").main.operators] == ["RESHAPE"]


def test_devices_are_listed_and_asked(devices: Path, tmp_path: Path) -> None:
    listed = invoke("devices", "--devices", devices)
    asked = invoke("devices", "near", "--devices", devices, "--check", "--json")
    nothing = invoke("devices", "ssh://nowhere.invalid", "--check")

    assert listed.exit_code == 0
    assert "near" in listed.stdout
    assert "here" in listed.stdout
    facts = DeviceList.from_json(asked.stdout).devices[0].facts
    assert facts is not None
    assert facts.folder == str(tmp_path / "near")
    assert nothing.exit_code == 1
    assert "cannot be reached" in nothing.stdout.replace("\n", " ")


def test_a_verb_runs_on_a_device_as_it_runs_here(litesmith: Command, devices: Path, tiny: Path, tmp_path: Path) -> None:
    there = ("--device", "near", "--devices", devices)

    bench = litesmith(
        "bench", tiny, "--runs", 5, "--no-memory", *there, "--json", "--save", "b.json", "--plot", "b.html"
    )
    profile = invoke("profile", tiny, "--runs", 5, *there, "--csv", tmp_path / "p.csv")
    threads = invoke("threads", tiny, "--counts", 1, "--seconds", 0.05, *there, "--json")

    assert bench.returncode == 0, bench.stderr
    assert Bench.from_json(bench.stdout) == Bench.from_json(tmp_path / "b.json")
    assert (tmp_path / "b.html").stat().st_size > 1000
    assert profile.exit_code == 0, profile.output
    assert "The 4 hottest of 4 operators" in profile.stdout
    assert profile.stdout.lstrip().startswith("near: ")
    assert max(map(len, profile.stdout.splitlines())) <= 80
    assert len((tmp_path / "p.csv").read_text().splitlines()) == 5
    assert Threads.from_json(threads.stdout).machine.cores > 0
    assert invoke("devices", "near", "--devices", devices, "--clean").exit_code == 0
    assert not (tmp_path / "near").exists()


def test_several_devices_at_once(devices: Path, tiny: Path, tmp_path: Path) -> None:
    both = ("--device", "near", "--device", "far", "--devices", devices)

    shown = invoke("profile", tiny, "--runs", 5, *both, "--save", tmp_path / "p.json")
    told = invoke("bench", tiny, "--runs", 5, "--no-memory", *both, "--device", "ssh://nowhere.invalid", "--json")

    assert shown.exit_code == 0, shown.output
    assert shown.stdout.index("near: ") < shown.stdout.index("far: ")
    assert Profile.from_json(tmp_path / "p.near.json").runs == Profile.from_json(tmp_path / "p.far.json").runs == 5
    results = DeviceResults.from_json(told.stdout)
    assert told.exit_code == 1
    assert [bool(entry.error) for entry in results.devices] == [False, False, True]
    assert json.loads(told.stdout)["devices"][0]["result"]["kind"] == "bench"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("compat", "TINY", "--target", "npu"), 2, "no target 'npu'"),
        (("compat", "none.tflite", "--target", "gpu"), 1, "none.tflite"),
        (("bench", "TINY", "--device", "pi"), 2, "no device 'pi'"),
        (("bench", "TINY", "--device", "http://x"), 2, "not an address"),
        (("bench", "TINY", "--device", "near", "--devices", "none.toml"), 1, "no devices file none.toml"),
        (("bench", "TINY", "--device", "ssh://nowhere.invalid"), 1, "cannot be reached"),
        (("devices", "--devices", "none.toml"), 1, "no devices file none.toml"),
    ],
)
def test_mistakes_are_told_in_one_line(
    words: tuple[str, ...], code: int, said: str, litesmith: Command, tiny: Path
) -> None:
    done = litesmith(*(str(tiny) if word == "TINY" else word for word in words))

    assert done.returncode == code, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
