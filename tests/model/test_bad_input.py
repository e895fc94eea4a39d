# SPDX-License-Identifier: Apache-2.0
"""Bad input raises one ModelError that says what, where, and what was found."""

from __future__ import annotations

import io
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from litesmith.errors import ModelError
from litesmith.model import Builder, Model, Quantization, Record, constant
from litesmith.model._flatbuffer import Reader, Writer


def _model() -> Model:
    b = Builder()
    x = b.input("x", (1, 8, 8, 3))
    x = b.conv2d(x, 4, kernel=3, name="first")
    return b.build({"y": b.op("RELU", x, name="second")})


def _changed(**changes: object) -> bytes:
    """Return the model with fields of its root table changed."""
    root = Reader(memoryview(_model().to_bytes())).root("Model")
    return b"".join(Writer().write(root.replace(**changes)))


def test_files_that_are_none(tmp_path: Path) -> None:
    empty, text, folder = tmp_path / "empty.tflite", tmp_path / "text.tflite", tmp_path / "folder"
    empty.touch()
    text.write_text("once upon a time there was a file that was no model at all")
    folder.mkdir()
    cases = {empty: "is empty", text: "does not carry the mark TFL3", folder: "is a folder", tmp_path / "no": "no file"}
    for path, message in cases.items():
        with pytest.raises(ModelError, match=message) as caught:
            Model.load(path)
        assert str(path) in str(caught.value)


def test_every_truncation_is_refused() -> None:
    data = _model().to_bytes()
    tables = Reader(memoryview(data))
    tables.root("Model")
    for length in range(0, tables.tables_end, 7):
        with pytest.raises(ModelError):
            Model.from_bytes(data[:length])


def test_another_schema_version() -> None:
    with pytest.raises(ModelError, match="schema version is 4"):
        Model.from_bytes(_changed(version=4))


def test_no_subgraphs() -> None:
    with pytest.raises(ModelError, match="no subgraphs"):
        Model.from_bytes(_changed(subgraphs=()))


def test_overlapping_buffers() -> None:
    data = _changed(buffers=(Record("Buffer"), Record("Buffer", offset=4, size=8)))
    with pytest.raises(ModelError, match="overlaps the tables"):
        Model.from_bytes(data + bytes(64))
    end = len(_changed(buffers=(Record("Buffer"),) * 3)) + 400
    pair = (Record("Buffer"), Record("Buffer", offset=end, size=64), Record("Buffer", offset=end + 16, size=64))
    with pytest.raises(ModelError, match="overlap at byte"):
        Model.from_bytes(_changed(buffers=pair).ljust(end + 200, b"\0"))


def test_a_buffer_outside_the_file() -> None:
    with pytest.raises(ModelError, match="outside the file"):
        Model.from_bytes(_changed(buffers=(Record("Buffer"), Record("Buffer", offset=10**6, size=8))))


def _verified(change: object) -> str:
    with pytest.raises(ModelError) as caught:
        change.verify()  # type: ignore[attr-defined]
    return str(caught.value)


def test_an_index_out_of_range_names_the_operator() -> None:
    model = _model()
    broken = replace(model.main.operators[1], inputs=(99,))
    message = _verified(model.with_main(replace(model.main, operators=(model.main.operators[0], broken))))

    assert "99" in message
    assert "RELU" in message


def test_a_cycle_names_the_operator() -> None:
    model = _model()
    first, second = model.main.operators
    backwards = model.with_main(replace(model.main, operators=(second, first)))

    assert "RELU" in _verified(backwards)


def test_a_buffer_of_the_wrong_size_names_the_tensor() -> None:
    model = _model()
    tensors = list(model.main.tensors)
    index = model.main.operators[0].inputs[1]
    tensors[index] = replace(tensors[index], shape=(4, 3, 3, 9))
    message = _verified(model.with_main(replace(model.main, tensors=tuple(tensors))))

    assert "first/weight" in message


def test_quantization_that_does_not_fit_its_axis() -> None:
    model = _model()
    weight = replace(
        constant("q", np.zeros((4, 3, 3, 3), np.int8)), quantization=Quantization((1.0, 1.0), (0, 0), axis=0)
    )
    tensors = list(model.main.tensors)
    tensors[model.main.operators[0].inputs[1]] = weight

    assert "'q'" in _verified(model.with_main(replace(model.main, tensors=tuple(tensors))))


def test_options_that_would_crash_the_runtime() -> None:
    model = _model()
    first = model.main.operators[0]
    assert first.options is not None
    broken = replace(first, options=first.options.replace(stride_w=0))
    message = _verified(model.with_main(replace(model.main, operators=(broken, model.main.operators[1]))))

    assert "CONV_2D" in message
    assert "stride" in message


def test_signatures_must_fit_their_subgraph() -> None:
    model = _model()
    wrong = replace(model.signatures[0], inputs=(("x", 77),))

    assert "77" in _verified(replace(model, signatures=(wrong,)))


def test_subgraphs_that_call_themselves() -> None:
    model = _model()
    loop = replace(
        model.main.operators[1],
        kind="WHILE",
        options=Record("WhileOptions", cond_subgraph_index=0, body_subgraph_index=0),
    )

    assert "WHILE" in _verified(model.with_main(replace(model.main, operators=(model.main.operators[0], loop))))


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_damaged_archive_behind_the_model_is_none(method: int) -> None:
    appended = io.BytesIO()
    with zipfile.ZipFile(appended, "w", method) as archive:
        archive.writestr("labels.txt", "cat dog " * 100)
    content = bytearray(appended.getvalue())
    assert Model.from_bytes(_model().to_bytes() + content).associated_files
    content[40:60] = b"\xff" * 20  # behind the header of the entry
    assert Model.from_bytes(_model().to_bytes() + content).associated_files == ()
