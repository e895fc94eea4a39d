# SPDX-License-Identifier: Apache-2.0
"""`litesmith inspect`: what people and programs see of a file."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Command

from litesmith.runtime import Inspection


def test_people_see_everything_the_file_has(litesmith: Command, tiny: Path) -> None:
    done = litesmith("inspect", tiny)

    assert done.returncode == 0, done.stderr
    for word in (
        "float32",
        "a tiny net",
        "image",
        "1×16×16×3",
        "logits",
        "serving_default",
        "CONV_2D",
        "DEPTHWISE_CONV_2D",
    ):
        assert word in done.stdout
    assert "XNNPACK" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_programs_get_the_same(litesmith: Command, tiny: Path) -> None:
    result = Inspection.from_json(litesmith("inspect", tiny, "--json").stdout)

    conv = 8 * 3 * 3 * 3 + 8
    deep = 3 * 3 * 8 + 8
    head = 5 * 8 + 5
    assert result.parameters == conv + deep + head
    assert result.macs == 8 * 8 * 8 * 27 + 8 * 8 * 8 * 9 + 5 * 8
    assert result.operator_count == 4
    assert result.size_bytes == tiny.stat().st_size
    assert result.signatures[0].inputs[0].shape == (1, 16, 16, 3)
    assert result.xnnpack is not None
    assert result.xnnpack.delegated == 4


def test_real_files_of_all_kinds(litesmith: Command, assets: Path) -> None:
    schemes = {
        "mlperf_tiny/kws_dscnn_int8.tflite": "int8",
        "vision/mobilenet_v2_float.tflite": "float32",
        "vision/selfie_segmentation.tflite": "float16 weights",
    }
    for name, scheme in schemes.items():
        result = Inspection.from_json(litesmith("inspect", assets / name, "--json", "--no-delegates").stdout)
        assert scheme in result.scheme


def test_mistakes_are_told_without_a_traceback(litesmith: Command, tmp_path: Path) -> None:
    text = tmp_path / "notes.tflite"
    text.write_text("this is not a model, but it is long enough to look at")
    cases = {
        "missing.tflite": "there is no file",
        str(tmp_path): "is a folder",
        str(text): "TFL3",
    }
    for argument, message in cases.items():
        done = litesmith("inspect", argument)
        assert done.returncode == 1
        assert message in done.stderr
        assert "Traceback" not in done.stderr
        assert not done.stdout


def test_wrong_use_is_exit_code_2(litesmith: Command) -> None:
    assert litesmith("inspect").returncode == 2
    assert litesmith("no-such-verb").returncode == 2
    assert litesmith("zoo", "--task", "poetry").returncode == 2
