# SPDX-License-Identifier: Apache-2.0
"""`.npz` and `.npy`: every way NumPy stores an array reads the same, damage is named, memory stays flat."""

from __future__ import annotations

import gc
import io
import multiprocessing
import os
import threading
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from litesmith.data import Dataset, InputSpec
from litesmith.data._npz import open_npz
from litesmith.errors import DataError, UsageError

RANDOM = np.random.default_rng(0)
X = RANDOM.integers(0, 256, (50, 4, 5, 3), np.uint8)
Y = RANDOM.integers(0, 4, 50)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_an_npz_with_x_and_y(tmp_path: Path, save: Any) -> None:
    save(tmp_path / "d.npz", x=X, y=Y)
    dataset = Dataset.open(tmp_path / "d.npz")

    assert np.array_equal([sample.x for sample in dataset], X)
    assert [sample.label for sample in dataset] == Y.tolist()
    assert dataset[7].key == "d.npz[7]"
    assert np.array_equal(dataset.subset([40, 3, 3, 4, 5])[2].x, X[3])
    assert repr(dataset) == f"Dataset(50 samples, x uint8 4×5×3, 4 classes, from {tmp_path / 'd.npz'})"
    assert dataset.fingerprint() == Dataset.from_arrays(X, Y).fingerprint()


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("dtype", ["float32", ">f8", "<i8", "bool", "<U7", "S5", "float16"])
def test_types_and_orders(tmp_path: Path, save: Any, dtype: str) -> None:
    values = RANDOM.integers(0, 9, (600, 7, 11)).astype(dtype)
    save(tmp_path / "d.npz", c=values, f=np.asfortranarray(values))
    np.save(tmp_path / "c.npy", values)
    np.save(tmp_path / "f.npy", np.asfortranarray(values))

    opened = [Dataset.open(tmp_path / "d.npz", inputs=[name]) for name in "cf"]
    opened += [Dataset.open(tmp_path / f"{name}.npy") for name in "cf"]
    for dataset in opened:
        assert np.array_equal(next(dataset.batches(600)).x, values)
        assert np.array_equal(dataset[311].x, values[311])
        assert dataset[0].x.dtype.isnative


@settings(max_examples=40, deadline=None)
@given(
    arrays.arrays(
        arrays.scalar_dtypes().filter(lambda t: t.kind not in "mM"),
        arrays.array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=5),
        elements={"allow_nan": False, "allow_infinity": False},
    ),
    st.booleans(),
    st.booleans(),
)
def test_any_array_reads_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, array: NDArray[Any], compress: bool, fortran: bool
) -> None:
    path = tmp_path_factory.mktemp("any") / "d.npz"
    (np.savez_compressed if compress else np.savez)(path, x=np.asfortranarray(array) if fortran else array)

    assert np.array_equal([sample.x for sample in Dataset.open(path)], array)


def test_one_array_for_each_input(tmp_path: Path) -> None:
    path = tmp_path / "d.npz"
    np.savez(path, ids=X[:, 0, 0], mask=X[:, 0, 1], labels=Y, version=3)
    dataset = Dataset.open(path)

    assert dataset.inputs == ("ids", "mask")
    assert dataset[3].label == Y[3]
    assert next(dataset.batches(4)).inputs["mask"].shape == (4, 3)
    specs = [InputSpec(name, (1, 3), np.dtype("int32")) for name in ("mask", "ids")]
    assert np.array_equal(dataset.bind(specs)[9].inputs["ids"][0], X[9, 0, 0])


def test_a_model_finds_its_input_beside_x(tmp_path: Path) -> None:
    path = tmp_path / "d.npz"
    np.savez(path, x=X, image=X[..., 0], extra=X[:3])
    dataset = Dataset.open(path)

    assert dataset.inputs == ("x",)
    assert dataset.bind([InputSpec("image", (1, 4, 5), np.dtype("uint8"))])[0].x.shape == (1, 4, 5)
    assert dataset.bind([InputSpec("other", (1, 4, 5, 3), np.dtype("uint8"))])[0].x.shape == (1, 4, 5, 3)


def test_arrays_chosen_by_name(tmp_path: Path) -> None:
    path = tmp_path / "d.npz"
    np.savez(path, x=X, y=Y, z=Y + 1, class_names=np.array(["a", "b", "c", "d"]))

    assert Dataset.open(path).class_names == ("a", "b", "c", "d")
    assert Dataset.open(path, labels="z")[0].label == Y[0] + 1
    both = Dataset.open(path, inputs=["x", "y"])
    assert both.inputs == ("x", "y")
    assert both[0].label is None
    with pytest.raises(DataError, match=r"d\.npz has no array 'q'; its arrays are: x, y, z, class_names"):
        Dataset.open(path, inputs=["q"])
    with pytest.raises(DataError, match="neither a file nor the name of an array"):
        Dataset.open(path, labels="q")
    np.save(tmp_path / "x.npy", X)
    with pytest.raises(UsageError, match="holds only one array"):
        Dataset.open(tmp_path / "x.npy", inputs=["x"])


def test_npz_mistakes_are_named(tmp_path: Path) -> None:
    path = tmp_path / "d.npz"
    np.savez(path, x=X, y=Y[:-1])
    with pytest.raises(DataError, match="50 samples but 49 labels"):
        Dataset.open(path)
    np.savez(path, a=X, b=X[1:])
    with pytest.raises(DataError, match="'a' has 50, 'b' has 49"):
        Dataset.open(path)
    np.savez(path, y=Y)
    with pytest.raises(DataError, match=r"no array of samples \(arrays: y\)"):
        Dataset.open(path)
    np.savez(path, x=X[:0])
    with pytest.raises(DataError, match="no samples"):
        Dataset.open(path)
    np.savez(path, x=X[:0], y=Y[:0], class_names=np.array(["a", "b"])[:0])
    with pytest.raises(DataError, match=r"d\.npz has no samples; the first axis of the array counts them and is 0"):
        Dataset.open(path)
    np.savez(path, x=np.array([{"a": 1}, None], object))
    with pytest.raises(DataError, match=r"d\.npz: array 'x' holds pickled Python objects, which are never loaded"):
        Dataset.open(path)
    np.savez(path, x=np.zeros(3, [("a", int)]))
    with pytest.raises(DataError, match="plain array"):
        Dataset.open(path)
    np.save(tmp_path / "s.npy", 3.0)
    with pytest.raises(DataError, match="single number"):
        Dataset.open(tmp_path / "s.npy")


def test_an_archive_of_other_things_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "d.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", b"not an array")
    with pytest.raises(DataError, match=r"d\.npz: array 'x' is not a NumPy array"):
        Dataset.open(path)
    path.write_bytes(b"")
    with pytest.raises(DataError, match=r"d\.npz cannot be read as \.npz"):
        Dataset.open(path)


@pytest.mark.parametrize("name", ["stored.npz", "packed.npz", "plain.npy"])
def test_damage_is_an_error_and_never_a_crash(tmp_path: Path, name: str) -> None:
    buffer = io.BytesIO()
    if name == "plain.npy":
        np.save(buffer, X)
    else:
        (np.savez if name == "stored.npz" else np.savez_compressed)(buffer, x=X, y=Y)
    whole = buffer.getvalue()
    random = np.random.default_rng(1)
    refused = []
    for trial in range(150):
        damaged = bytearray(whole)
        if trial % 2:
            del damaged[random.integers(0, len(whole)) :]
        else:
            for place in random.integers(0, min(len(whole), 200 if trial % 4 else len(whole)), 4):
                damaged[place] = random.integers(0, 256)
        (tmp_path / name).write_bytes(damaged)
        try:
            sum(1 for _ in Dataset.open(tmp_path / name))
        except DataError as error:
            refused.append(str(error))
    assert len(refused) > 70
    assert all(name in message for message in refused)


def test_a_file_that_shrinks_or_changes_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "d.npy"
    np.save(path, X)
    read, unread = Dataset.open(path), Dataset.open(path)
    assert read[0].x.shape == (4, 5, 3)
    os.truncate(path, 300)
    with pytest.raises(DataError, match="became shorter"):
        read[49]
    np.save(path, X[:10])
    with pytest.raises(DataError, match="changed since it was opened"):
        unread[0]


def test_many_threads_read_the_same_file(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "d.npz", x=X)
    dataset = Dataset.open(tmp_path / "d.npz")
    wrong: list[int] = []

    def read(seed: int) -> None:
        for index in np.random.default_rng(seed).permutation(50):
            if not np.array_equal(dataset[int(index)].x, X[index]):
                wrong.append(int(index))

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert not wrong


def _first_bytes(dataset: Dataset) -> list[bytes]:
    return [sample.x.tobytes() for sample in dataset]


def test_another_process_reads_it(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "d.npz", x=X)
    dataset = Dataset.open(tmp_path / "d.npz")
    expected = _first_bytes(dataset)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(_first_bytes, (dataset[10:20],)) == expected[10:20]


def test_datasets_of_one_process_share_the_unpacked_file_and_close_it(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "d.npz", x=X)
    descriptors = Path("/proc/self/fd")
    gc.collect()
    before = len(list(descriptors.iterdir()))
    first, second = Dataset.open(tmp_path / "d.npz"), Dataset.open(tmp_path / "d.npz")
    assert np.array_equal(first[0].x, second[0].x)
    assert len(list(descriptors.iterdir())) == before + 1
    del first, second
    gc.collect()
    assert len(list(descriptors.iterdir())) == before


@pytest.mark.parametrize(("kind", "megabytes"), [("stored", 200), ("packed", 200), ("fortran", 80)])
def test_memory_does_not_grow_with_the_data(tmp_path: Path, kind: str, megabytes: int) -> None:
    """Big data is opened, hashed, split and read; the memory in use stays at a few megabytes."""
    path = tmp_path / "big.npz"
    block = np.random.default_rng(0).integers(0, 256, 1000, np.uint8).tobytes() * 1000
    packing = zipfile.ZIP_DEFLATED if kind == "packed" else zipfile.ZIP_STORED
    with zipfile.ZipFile(path, "w", packing, compresslevel=1) as archive, archive.open("x.npy", "w") as member:
        header = {"descr": "|u1", "fortran_order": kind == "fortran", "shape": (10 * megabytes, 100_000)}
        np.lib.format.write_array_header_1_0(member, header)
        for _ in range(megabytes):
            member.write(block)
    anonymous_before = _anonymous_bytes()
    tracemalloc.start()
    try:
        dataset = Dataset.open(path, preprocess="scale=1/255")
        parts = dataset.split(a=0.5, b=0.5) if kind == "fortran" else {"all": dataset[:-1].take(10**6)}
        count = sum(len(batch) for part in parts.values() for batch in part.batches(4))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert count == 10 * megabytes - (kind != "fortran")
    assert peak < 20e6
    assert _anonymous_bytes() - anonymous_before < 40e6


def _anonymous_bytes() -> int:
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("RssAnon"))


def test_members_that_are_not_used_are_not_unpacked(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "d.npz", x=X, huge=np.zeros((50, 100_000), np.uint8))
    rows = open_npz(tmp_path / "d.npz")

    assert rows["huge"].shape == (50, 100_000)
    assert np.array_equal(Dataset.open(tmp_path / "d.npz")[0].x, X[0])
    assert rows["huge"]._place is None


def test_no_room_for_unpacking_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez_compressed(tmp_path / "d.npz", x=X)

    def full(_descriptor: int, _data: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(DataError, match=r"no space left in .* set TMPDIR"):
        Dataset.open(tmp_path / "d.npz")[0]


def test_inputs_may_be_the_labels(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.arange(6, dtype=np.float32).reshape(3, 2))
    sample = Dataset.open(tmp_path / "a.npz", inputs=["x"], labels="x")[1]
    assert sample.x.tolist() == np.asarray(sample.label).tolist() == [2, 3]
