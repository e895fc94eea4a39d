# SPDX-License-Identifier: Apache-2.0
"""Every real file: read, written, read again it is the same; its bytes are the same each time; it computes the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.conftest import ASSETS

from litesmith.errors import LitesmithError
from litesmith.model import Buffer, Builder, Metadata, Model, Record, constant, modernize
from litesmith.model import _write as writing
from litesmith.runtime import Session, random_inputs

FILES = sorted(ASSETS.glob("*/*.tflite")) if ASSETS.is_dir() else []
# What stock LiteRT itself refuses, or what no stock kernel can run (custom, Flex, Edge TPU, NPU), per corpus/index.csv.
SMALL_ENOUGH_BYTES = 3_000_000


def _outputs(model: bytes) -> dict[str, np.ndarray] | None:
    """Return the outputs on seeded inputs, None when LiteRT does not run the model."""
    try:
        with Session(model) as session:
            return {name: array.copy() for name, array in session.run(random_inputs(session, 7)).items()}
    except LitesmithError:
        return None


@pytest.mark.skipif(not FILES, reason=f"no folder of real models at {ASSETS}; set LITESMITH_ASSETS to it")
@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem[:40])
def test_a_real_file_survives(path: Path) -> None:
    model = Model.load(path)
    written = model.to_bytes()
    again = Model.from_bytes(written)

    assert again == model
    assert again.to_bytes() == written
    if path.stat().st_size < SMALL_ENOUGH_BYTES:
        before, after = _outputs(path.read_bytes()), _outputs(written)
        assert (before is None) == (after is None)
        for name, array in (before or {}).items():
            assert array.tolist() == (after or {})[name].tolist() or array.tobytes() == (after or {})[name].tobytes()


def _small() -> Model:
    b = Builder()
    x = b.input("x", (1, 4, 4, 2))
    return b.build({"y": b.conv2d(x, 3, kernel=3)}, description="small")


def test_everything_that_hangs_on_a_model_survives() -> None:
    shared = Buffer(b"\x01\x02\x03\x04" * 3)
    base = _small()
    extra = (
        replace(constant("weights4", np.arange(-8, 8, dtype=np.int8), "int4")),
        constant("words", np.array([b"one", b"", b"drei"], object), "string"),
        replace(constant("a", np.zeros(3, np.float32)), buffer=shared),
        replace(constant("b", np.zeros(3, np.float32)), buffer=shared),
    )
    main = replace(base.main, tensors=(*base.main.tensors, *extra))
    model = replace(
        base,
        subgraphs=(main, replace(_small().main, name="second")),
        signatures=(*base.signatures, replace(base.signatures[0], key="other", subgraph_index=1)),
        metadata=(Metadata("TFLITE_METADATA", Buffer(b"hello")),),
        associated_files=(("labels.txt", b"cat\ndog\n"), ("empty.txt", b"")),
    )
    again = Model.from_bytes(model.to_bytes())

    assert again == model
    tensors = {t.name: t for t in again.main.tensors}
    assert tensors["a"].buffer is tensors["b"].buffer
    assert tensors["weights4"].array().tolist() == list(range(-8, 8))
    assert tensors["words"].array().tolist() == [b"one", b"", b"drei"]
    assert again.associated_files == model.associated_files


def test_buffers_outside_the_root_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = _small()
    monkeypatch.setattr(writing, "LARGEST_ROOT", 0)  # as if the model had 2 GiB
    outside = model.to_bytes()
    monkeypatch.undo()

    assert outside != model.to_bytes()
    assert Model.from_bytes(outside) == model
    before, after = _outputs(model.to_bytes()), _outputs(outside)
    assert before is not None
    assert after is not None
    assert np.array_equal(before["y"], after["y"])


def test_an_existing_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "m.tflite"
    path.write_bytes(b"old")
    with pytest.raises(LitesmithError, match="newer than this version"):
        replace(_small(), unknown=("SubGraph field 9",)).save(path)

    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
    _small().save(path)
    assert Model.load(path) == _small()


def test_a_file_mapped_over_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.tflite"
    _small().save(path)
    monkeypatch.setattr("litesmith.model._read.MAPPED_ABOVE_BYTES", 0)
    model = Model.load(path)
    model.save(path)

    assert Model.load(path) == _small()


def test_legacy_files_are_understood_and_modernized(assets: Path) -> None:
    path = assets / "corpus" / "09e5e2a9_micro_speech_quantized.tflite"
    old = Model.load(path)
    new = modernize(old)

    assert set(old.legacy) == {"operator codes only in the deprecated field", "no signature"}
    assert new.signatures[0].key == "serving_default"
    assert Model.from_bytes(new.to_bytes()).legacy == ()
    before, after = _outputs(path.read_bytes()), _outputs(new.to_bytes())
    assert before is not None
    assert after is not None
    assert all(np.array_equal(a, b) for a, b in zip(before.values(), after.values(), strict=True))


def test_modernizing_makes_names_unique_and_drops_orphans() -> None:
    base = _small()
    tensors = (*(replace(t, name="same") for t in base.main.tensors), constant("orphan", np.zeros(5, np.float32)))
    old = replace(base, subgraphs=(replace(base.main, tensors=tensors),), signatures=())
    new = modernize(old, drop_orphans=True)

    names = [t.name for t in new.main.tensors]
    assert len(set(names)) == len(names)
    assert "orphan" not in names
    new.verify()
    before, after = _outputs(base.to_bytes()), _outputs(new.to_bytes())
    assert before is not None
    assert after is not None
    assert np.array_equal(before["y"], next(iter(after.values())))


def test_records_are_values() -> None:
    options = Record("Conv2DOptions", stride_w=2)

    assert options == Record("Conv2DOptions", stride_w=2, stride_h=0)
    assert options.replace(stride_w=3).stride_w == 3
    assert options.stride_w == 2
    with pytest.raises(AttributeError, match="cannot be changed"):
        options.stride_w = 4  # type: ignore[misc]
    with pytest.raises(LitesmithError, match="has no field"):
        Record("Conv2DOptions", stride=1)
