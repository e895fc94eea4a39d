# SPDX-License-Identifier: Apache-2.0
"""Folders, tables, images and audio: read as a person would expect, and every mistake named by its file."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from numpy.typing import NDArray
from PIL import Image

from litesmith.data import Dataset
from litesmith.errors import DataError

RANDOM = np.random.default_rng(0)
PIXELS = RANDOM.integers(0, 256, (6, 8, 10, 3), np.uint8)


def save_image(path: Path, pixels: NDArray[Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


def save_wave(path: Path, samples: NDArray[Any], rate: int = 8000) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, samples, rate, subtype="FLOAT" if path.suffix == ".wav" else None)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "pets"
    for number, name in enumerate(
        ["dog/b.png", "dog/a.PNG", "cat/c.bmp", "cat/more/d.png", "bird/e.png", "bird/f.png"]
    ):
        save_image(root / name, PIXELS[number])
    (root / ".cache").mkdir()
    (root / "dog" / "._a.png").write_bytes(b"junk")
    (root / "dog" / "notes.txt").write_text("not a sample")
    (root / "README.md").write_text("not a class")
    return root


def test_a_folder_of_images_by_class(folder: Path) -> None:
    dataset = Dataset.open(folder)

    assert dataset.class_names == ("bird", "cat", "dog")
    assert [(s.key, s.label) for s in dataset] == [
        ("bird/e.png", 0),
        ("bird/f.png", 0),
        ("cat/c.bmp", 1),
        ("cat/more/d.png", 1),
        ("dog/a.PNG", 2),
        ("dog/b.png", 2),
    ]
    assert np.array_equal(dataset[2].x, PIXELS[2])
    assert repr(dataset) == f"Dataset(6 samples, images, 3 classes, from {folder})"
    assert next(dataset.batches(6)).x.shape == (6, 8, 10, 3)


def test_images_and_arrays_of_them_give_the_same_numbers(folder: Path) -> None:
    text = "resize=6 crop=5 channels=gray mean=100 std=50"
    files = Dataset.open(folder, preprocess=text)
    stored = Dataset.from_arrays(np.stack([s.x for s in Dataset.open(folder)]), preprocess=text)

    assert [s.x.tolist() for s in files] == [s.x.tolist() for s in stored]


def test_class_names_of_a_model_renumber_the_folders(folder: Path) -> None:
    dataset = Dataset.open(folder, class_names=["dog", "fish", "cat", "bird"])

    assert dataset.labels is not None
    assert dataset.labels.tolist() == [3, 3, 2, 2, 0, 0]
    with pytest.raises(DataError, match="class 'cat' not found"):
        Dataset.open(folder, class_names=["dog", "bird"])


def test_classes_named_by_numbers_are_sorted_as_numbers(tmp_path: Path) -> None:
    for number in (10, 9, 1):
        save_image(tmp_path / str(number) / "a.png", PIXELS[0])

    assert Dataset.open(tmp_path).class_names == ("1", "9", "10")


def test_flat_folders_are_unlabelled(tmp_path: Path) -> None:
    save_image(tmp_path / "b.png", PIXELS[0])
    save_image(tmp_path / "a.png", PIXELS[1])
    dataset = Dataset.open(str(tmp_path))

    assert dataset.labels is None
    assert dataset.class_names is None
    assert [s.key for s in dataset] == ["a.png", "b.png"]
    assert Dataset.open(tmp_path, labels=[4, 5])[1].label == 5


def test_a_folder_of_arrays(tmp_path: Path) -> None:
    for name in ("one/a", "one/b", "two/c"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        np.save(tmp_path / f"{name}.npy", PIXELS[0].astype(">f4"))
    dataset = Dataset.open(tmp_path)

    assert dataset.class_names == ("one", "two")
    assert dataset[2].x.dtype == np.float32
    assert np.array_equal(dataset[2].x, PIXELS[0])
    np.save(tmp_path / "two/c.npy", np.array([None]))
    with pytest.raises(DataError, match=r"sample 2 \(.*two/c\.npy\): .*pickled Python objects"):
        dataset[2]


def test_one_file_is_one_sample(tmp_path: Path) -> None:
    save_image(tmp_path / "a.png", PIXELS[0])

    assert np.array_equal(Dataset.open(tmp_path / "a.png")[0].x, PIXELS[0])


def test_splits_and_draws_of_files_follow_their_content_and_name(folder: Path, tmp_path: Path) -> None:
    copies = tmp_path / "copies"
    for number in range(40):
        save_image(copies / f"{number}.png", PIXELS[number % 4])
    dataset = Dataset.open(copies)
    for part in dataset.split(a=0.5, b=0.5).values():
        counts = np.bincount([int(sample.key.removesuffix(".png")) % 4 for sample in part], minlength=4)
        assert set(counts.tolist()) <= {0, 10}
    taken = {sample.key for sample in dataset.take(10)}
    save_image(copies / "000.png", PIXELS[5])
    assert len(taken - {sample.key for sample in Dataset.open(copies).take(10)}) <= 1
    before = Dataset.open(folder).fingerprint()
    save_image(folder / "dog/b.png", PIXELS[1])
    assert Dataset.open(folder).fingerprint() != before


# ---------------------------------------------------------------------- images


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "CMYK", "1", "LA", "I;16"])
def test_every_mode_becomes_rgb(tmp_path: Path, mode: str) -> None:
    if mode == "I;16":
        image = Image.fromarray(PIXELS[0, ..., 0].astype(np.uint16) * 257)
    else:
        image = Image.fromarray(PIXELS[0]).convert(mode)
    path = tmp_path / ("a.tif" if mode == "CMYK" else "a.png")
    image.save(path)
    sample = Dataset.open(path)[0].x

    assert sample.shape == (8, 10, 3)
    assert sample.dtype == np.uint8
    if mode == "I;16":
        assert np.array_equal(sample, np.repeat(PIXELS[0, ..., :1], 3, axis=-1))
    if mode == "RGBA":
        assert np.array_equal(sample, PIXELS[0])


def test_photos_are_turned_upright(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned: rotate clockwise to show
    Image.fromarray(PIXELS[0]).save(tmp_path / "a.png", exif=exif)

    assert np.array_equal(Dataset.open(tmp_path / "a.png")[0].x, np.rot90(PIXELS[0], -1))


def test_images_without_a_known_range_are_refused(tmp_path: Path) -> None:
    Image.fromarray(PIXELS[0, ..., 0].astype(np.float32)).save(tmp_path / "a.tiff")
    with pytest.raises(DataError, match=r"a\.tiff\): the image has 32 bits a pixel"):
        Dataset.open(tmp_path / "a.tiff")[0]


def test_an_unreadable_image_is_named(folder: Path) -> None:
    (folder / "cat/c.bmp").write_bytes(b"this is no image")
    dataset = Dataset.open(folder)

    assert dataset[0].label == 0
    with pytest.raises(DataError, match=r"sample 2 \(.*cat/c\.bmp\): the image cannot be read .*replace or remove"):
        list(dataset)
    (folder / "cat/c.bmp").unlink()
    with pytest.raises(DataError, match=r"1 of 6 samples cannot be used:\nsample 2 \(.*cat/c\.bmp\)"):
        dataset.check()
    with pytest.raises(DataError, match=r"sample 2 \(.*cat/c\.bmp\)"):
        dataset.fingerprint()


@pytest.mark.parametrize("suffix", ["png", "jpg", "bmp", "gif", "webp", "tif", "ppm"])
@pytest.mark.filterwarnings("ignore")  # Pillow warns about some damages before it refuses the file
def test_damaged_images_are_errors_and_never_crashes(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    save_image(path, RANDOM.integers(0, 256, (40, 40, 3), np.uint8))
    whole = path.read_bytes()
    random = np.random.default_rng(2)
    refused = []
    for trial in range(60):
        damaged = bytearray(whole)
        if trial % 2:
            del damaged[random.integers(0, len(whole) // 2) :]
        else:
            for place in random.integers(0, min(100, len(whole)), 6):
                damaged[place] = random.integers(0, 256)
        path.write_bytes(damaged)
        try:
            assert Dataset.open(path)[0].x.dtype == np.uint8
        except DataError as error:
            refused.append(str(error))
    assert len(refused) >= 30
    assert all(path.name in message for message in refused)


# ---------------------------------------------------------------------- audio


def test_wav_files_by_class(tmp_path: Path) -> None:
    wave = np.sin(np.arange(1000) / 5).astype(np.float32) / 2
    save_wave(tmp_path / "no/a.wav", wave)
    save_wave(tmp_path / "yes/b.wav", np.stack([wave, -wave / 2], axis=1))
    save_wave(tmp_path / "yes/c.flac", wave[:300])
    dataset = Dataset.open(tmp_path, preprocess="sample_rate=8000 length=600")

    assert dataset.class_names == ("no", "yes")
    assert repr(dataset).startswith("Dataset(3 samples, audio files, 2 classes")
    assert [sample.x.shape for sample in dataset] == [(600,)] * 3
    assert np.array_equal(dataset[0].x, wave[:600])
    assert np.allclose(dataset[1].x, wave[:600] / 4, atol=1e-7)
    assert np.allclose(dataset[2].x[:300], wave[:300], atol=1e-4)
    assert not dataset[2].x[300:].any()


def test_audio_is_resampled_to_the_declared_rate(tmp_path: Path) -> None:
    seconds = np.arange(44_100) / 44_100
    save_wave(tmp_path / "a.wav", np.sin(2 * np.pi * 440 * seconds).astype(np.float32), 44_100)
    sample = Dataset.open(tmp_path / "a.wav", preprocess="sample_rate=16000")[0].x
    expected = np.sin(2 * np.pi * 440 * np.arange(16_000) / 16_000)

    assert sample.dtype == np.float32
    assert sample.shape == (16_000,)
    assert np.abs(sample - expected)[200:-200].max() < 0.01


def test_audio_mistakes_are_named(tmp_path: Path) -> None:
    save_wave(tmp_path / "a.wav", np.zeros(100, np.float32), 11_025)
    with pytest.raises(DataError, match=r"a\.wav\): audio needs a declared sample rate.*this file has 11025"):
        Dataset.open(tmp_path)[0]
    save_wave(tmp_path / "b.wav", np.zeros(0, np.float32))
    (tmp_path / "c.wav").write_bytes(b"RIFF")
    dataset = Dataset.open(tmp_path, preprocess="sample_rate=8000")
    with pytest.raises(DataError, match=r"b\.wav\): the audio file has no samples"):
        dataset[1]
    with pytest.raises(DataError, match=r"c\.wav\): the audio cannot be read"):
        dataset[2]
    with pytest.raises(DataError, match=r"c\.wav\): the audio cannot be read"):
        Dataset.open(tmp_path / "c.wav")[0]
    save_wave(tmp_path / "d" / "a.wav", np.zeros(10, np.float32))
    save_wave(tmp_path / "d" / "b.wav", np.zeros(11, np.float32))
    with pytest.raises(DataError, match="length=N for audio"):
        list(Dataset.open(tmp_path / "d", preprocess="sample_rate=8000").batches(2))


# ---------------------------------------------------------------------- folders that are wrong


def test_wrong_folders_are_explained(tmp_path: Path, folder: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(DataError, match="empty has no samples: it holds nothing"):
        Dataset.open(empty)
    (empty / "a.txt").write_text("")
    (empty / "b").write_text("")
    with pytest.raises(DataError, match=r"it holds 1 × \.txt, 1 × files without a suffix"):
        Dataset.open(empty)
    (folder / "fish").mkdir()
    (folder / "fish" / "notes.txt").write_text("")
    with pytest.raises(DataError, match=r"class without samples: 'fish' \(it holds 1 × \.txt\)"):
        Dataset.open(folder)
    (folder / "fish" / "notes.txt").unlink()
    (folder / "fish").rmdir()
    save_image(folder / "loose.png", PIXELS[0])
    with pytest.raises(DataError, match=r"both samples \(loose\.png …\) and subfolders \(bird …\)"):
        Dataset.open(folder)
    (folder / "loose.png").unlink()
    np.save(folder / "cat" / "z.npy", PIXELS[0])
    with pytest.raises(DataError, match=r"z\.npy\) is of another kind \(arrays\) than the first one \(images\)"):
        Dataset.open(folder)
    hollow = tmp_path / "hollow"
    (hollow / "a").mkdir(parents=True)
    with pytest.raises(DataError, match="no samples in its 1 subfolders"):
        Dataset.open(hollow)
    with pytest.raises(DataError, match="does not exist"):
        Dataset.open(tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"a\.txt: unknown kind of file"):
        Dataset.open(empty / "a.txt")


# ---------------------------------------------------------------------- tables


@pytest.fixture
def table(folder: Path) -> Callable[[str], Path]:
    def write(text: str, name: str = "list.csv") -> Path:
        path = folder.parent / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_a_table_of_paths_and_classes(table: Any) -> None:
    dataset = Dataset.open(table("path,label\npets/dog/b.png,dog\npets/cat/c.bmp,cat\n\npets/bird/e.png,dog\n"))

    assert dataset.class_names == ("cat", "dog")
    assert [(s.key, s.label) for s in dataset] == [
        ("pets/dog/b.png", 1),
        ("pets/cat/c.bmp", 0),
        ("pets/bird/e.png", 1),
    ]
    assert np.array_equal(dataset[0].x, PIXELS[0])


def test_tables_of_other_labels(table: Any, folder: Path) -> None:
    numbers = Dataset.open(table("\ufeffLabel, Path \n 7 ,pets/dog/b.png\n8,pets/cat/c.bmp"))
    assert [s.label for s in numbers] == [7, 8]
    assert numbers.class_names is None
    reals = Dataset.open(table(f"path,label\n{folder}/dog/b.png,0.5\npets/cat/c.bmp,8"))
    assert [s.label for s in reals] == [0.5, 8.0]
    texts = Dataset.open(table('path,text\npets/dog/b.png,"a dog, barking"\npets/cat/c.bmp,'))
    assert [s.label for s in texts] == ["a dog, barking", ""]
    assert texts.class_names is None
    assert Dataset.open(table("path\npets/dog/b.png")).labels is None
    tabs = Dataset.open(table("path\tlabel\tby\npets/dog/b.png\tdog\tme\n", "list.tsv"))
    assert tabs.class_names == ("dog",)
    other = Dataset.open(table("path,label\npets/dog/b.png,dog"), class_names=["cat", "dog"])
    assert other[0].label == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("path,label\n", "lists no samples"),
        ("pets/dog/b.png,dog\n", "the first line must name the columns"),
        ("path,class\npets/dog/b.png,dog\n", "no column 'label' or 'text' among path, class"),
        ("path,label\npets/dog/b.png,dog\npets/none.png,cat\n", r"line 3: the file .*pets/none\.png is missing"),
        ("path,label\npets/dog/b.png\n", "line 2: 1 values for 2 columns"),
        ("path,label\npets/dog/b.png,\n", "line 2: .* has no label"),
        ("path,label\npets/README.md,a\n", r"sample 0 \(.*README\.md\): unknown kind of file"),
        ('path,label\n"pets,a\n', "not a CSV file"),
    ],
)
def test_wrong_tables_are_explained(table: Any, text: str, words: str) -> None:
    with pytest.raises(DataError, match=words):
        Dataset.open(table(text))


def test_a_table_in_another_encoding_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes("path,label\n\xfc,1".encode("latin-1"))
    with pytest.raises(DataError, match="UTF-8"):
        Dataset.open(tmp_path / "a.csv")


def test_image_bytes_are_read_once_for_each_sample(folder: Path) -> None:
    buffer = io.BytesIO()
    Image.fromarray(PIXELS[5]).save(buffer, "png")
    iterator = iter(Dataset.open(folder))
    next(iterator)
    (folder / "bird/f.png").write_bytes(buffer.getvalue())

    assert np.array_equal(next(iterator).x, PIXELS[5])


def test_sixteen_bit_pgm_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.pgm").write_bytes(b"P5 2 1 65535\n" + bytes([0x12, 0x34, 0xFF, 0xFF]))
    assert Dataset.open(tmp_path / "a.pgm")[0].x[0, :, 0].tolist() == [0x12, 0xFF]


def test_numbered_folders_of_some_classes_take_their_number_from_the_list(tmp_path: Path) -> None:
    for name in ("3", "7"):
        (tmp_path / name).mkdir()
        np.save(tmp_path / name / "a.npy", np.zeros(2, np.float32))
    data = Dataset.open(tmp_path, class_names=[str(number) for number in range(10)])
    assert data.labels is not None
    assert data.labels.tolist() == [3, 7]
