# SPDX-License-Identifier: Apache-2.0
"""benchmark_model over adb: the parser on what the tool printed, the transport on an adb that plays a recording."""

from __future__ import annotations

from pathlib import Path

import pytest

from litesmith.devices import AndroidBench, Device, run
from litesmith.devices._benchmark_model import parse
from litesmith.errors import DeviceError, UsageError

RECORDED = Path(__file__).parent / "recorded"

ADB = """#!/bin/sh
echo "$@" >> "$ADB_LOG"
[ "$1" = -s ] && { [ "$2" = 0123 ] || { echo "error: device '$2' not found" >&2; exit 1; }; shift 2; }
case "$*" in
  *getprop\\ ro.product.model*) echo "Pixel 4";;
  *getprop*abi*) echo arm64-v8a;;
  *--graph=*) cat "$ADB_PLAYS";;
esac
"""


@pytest.fixture
def phone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Device:
    """A device behind an adb that writes down what it is asked and plays a recording."""
    adb, tool = tmp_path / "adb", tmp_path / "benchmark_model"
    adb.write_text(ADB)
    adb.chmod(0o755)
    tool.write_bytes(b"an Android program")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("ADB_LOG", str(tmp_path / "log"))
    monkeypatch.setenv("ADB_PLAYS", str(RECORDED / "espcn_4_threads.txt"))
    return Device("phone", "adb://0123", benchmark_model=str(tool))


def test_the_timings_of_a_phone_are_read() -> None:
    found = parse((RECORDED / "espcn_4_threads.txt").read_text())

    assert found.init_ms == pytest.approx(0.855)
    assert found.first_ms == pytest.approx(49.060)
    assert (found.warmup.count, found.inference.count) == (15, 50)
    assert found.inference.mean_ms == pytest.approx(33.2094)
    assert (found.inference.min_ms, found.inference.max_ms) == pytest.approx((32.641, 34.005))
    assert found.inference.deviation_ms == pytest.approx(0.450)
    assert found.memory_bytes == round(12.8672 * 2**20)
    assert found.peak_bytes is None
    assert found.operators == ()


def test_the_profile_of_the_tool_is_read_in_run_order() -> None:
    found = parse((RECORDED / "mobilenet_v1_profiled.txt").read_text())

    assert [operator.kind for operator in found.operators] == ["CONV_2D", "DEPTHWISE_CONV_2D"]
    assert found.operators[1].name == "MobilenetV1/MobilenetV1/Conv2d_1_depthwise/Relu6"
    assert found.operators[1].mean_ms == pytest.approx(2.150)
    assert found.operators[1].share == pytest.approx(0.00054)


def test_rows_of_newer_tools_without_a_start() -> None:
    text = (RECORDED / "espcn_4_threads.txt").read_text()
    row = "\t Fully Connected (NC, F32) GEMM\t    0.100\t    0.090\t 12.000%\t 12.000%\t     0.000\t        1\t[dense]:3\n"

    found = parse(f"{text}\n======= Run Order =======\n{row}")

    assert [(o.kind, o.name, o.mean_ms, o.share) for o in found.operators] == [
        ("Fully Connected (NC, F32) GEMM", "dense", 0.09, 0.12)
    ]


def test_peak_memory_of_current_tools() -> None:
    text = (RECORDED / "espcn_4_threads.txt").read_text()
    text += "INFO: Overall peak memory footprint (MB) via periodic monitoring: 20.5\n"

    assert parse(text).peak_bytes == round(20.5 * 2**20)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it printed nothing"),
        ("STARTING!\nERROR: Failed to mmap model m.tflite\nbye\n", "Failed to mmap model"),
        ("/system/bin/sh: not executable: 64-bit ELF file\n", "not executable"),
        ("count=1 first=1 curr=1 min=1 max=1 avg=1 std=0\n", "count=1"),
    ],
)
def test_output_without_timings_is_told(text: str, said: str) -> None:
    with pytest.raises(DeviceError, match="measured nothing: .*" + said):
        parse(text)


def test_a_model_is_pushed_run_and_removed(phone: Device, tiny: Path, tmp_path: Path) -> None:
    found = run("bench", tiny, device=phone, threads=[1, 4], kernels="delegate", runs=50)

    assert isinstance(found, AndroidBench)
    assert found.phone["model"] == "Pixel 4"
    assert [(r.threads, r.output.inference.count) for r in found.runs] == [(1, 50), (4, 50)]
    assert found.runs[0].model == str(tiny)
    assert AndroidBench.from_json(found.to_json()) == found
    asked = (tmp_path / "log").read_text().splitlines()
    assert all(line.startswith("-s 0123 ") for line in asked)
    assert asked[0].startswith("-s 0123 shell mkdir /data/local/tmp/litesmith-")
    assert asked[-1] == asked[0].replace("mkdir", "rm -rf")
    assert any("--num_threads=4" in line and "--num_runs=50" in line and "--use_xnnpack=true" in line for line in asked)


def test_the_folder_is_removed_after_a_failure_too(
    phone: Device, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "crash").write_text("Segmentation fault\n")
    monkeypatch.setenv("ADB_PLAYS", str(tmp_path / "crash"))

    with pytest.raises(DeviceError, match="measured nothing: Segmentation fault"):
        run("bench", tiny, device=phone)
    assert "rm -rf /data/local/tmp/litesmith-" in (tmp_path / "log").read_text().splitlines()[-1]


def test_mistakes(phone: Device, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DeviceError, match="device '9' not found"):
        run("bench", tiny, device=Device("gone", "adb://9", benchmark_model=phone.benchmark_model))
    with pytest.raises(UsageError, match="needs LiteRT's benchmark_model"):
        run("bench", tiny, device=Device("phone", "adb://0123"))
    with pytest.raises(UsageError, match="no benchmark_model at"):
        run("bench", tiny, device=Device("phone", "adb://0123", benchmark_model="/nowhere"))
    with pytest.raises(UsageError, match="no 'reference' kernels"):
        run("bench", tiny, device=phone, kernels="reference")
    with pytest.raises(UsageError, match="bench runs there"):
        run("profile", tiny, device=phone)
    (tmp_path / "adb").unlink()
    with pytest.raises(DeviceError, match="adb is not installed here"):
        run("bench", tiny, device=phone)
