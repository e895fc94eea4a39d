# SPDX-License-Identifier: Apache-2.0
"""Steps of training a second: a `.tflite` as a module, against the same networks written by hand in PyTorch.

    python -m benchmarks.train_speed [--rounds 7]

Both run in channels-last memory with the same batch, loss and optimizer, in interleaved rounds; the ratio is of the
medians. By hand: CIFAR's ResNet-8 (MLPerf Tiny) and MobileNet V2, batch normalization folded as in the files.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from litesmith import zoo
from litesmith.measure import machine_facts
from litesmith.result import encode_fields
from litesmith.train import to_torch

TARGET = Path(__file__).resolve().parent / "results" / "train_speed.json"


class Residual(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, 1)
        self.second = nn.Conv2d(outputs, outputs, 3, 1, 1)
        self.short = nn.Conv2d(inputs, outputs, 1, stride) if stride > 1 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.short(x) + self.second(torch.relu(self.first(x))))


class ResNet8(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, 1, 1)
        self.blocks = nn.Sequential(Residual(16, 16, 1), Residual(16, 32, 2), Residual(32, 64, 2))
        self.head = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(torch.relu(self.stem(x))).mean(dim=(2, 3)))


class Inverted(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = inputs * expansion
        layers: list[nn.Module] = [nn.Conv2d(inputs, wide, 1), nn.ReLU6()] if expansion > 1 else []
        layers += [nn.Conv2d(wide, wide, 3, stride, 1, groups=wide), nn.ReLU6(), nn.Conv2d(wide, outputs, 1)]
        self.layers = nn.Sequential(*layers)
        self.adds = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x) if self.adds else self.layers(x)


class MobileNetV2(nn.Module):
    def __init__(self, classes: int = 1001) -> None:
        super().__init__()
        plan = (
            (1, 16, 1, 1),
            (6, 24, 2, 2),
            (6, 32, 3, 2),
            (6, 64, 4, 2),
            (6, 96, 3, 1),
            (6, 160, 3, 2),
            (6, 320, 1, 1),
        )
        layers: list[nn.Module] = [nn.Conv2d(3, 32, 3, 2, 1), nn.ReLU6()]
        inputs = 32
        for expansion, outputs, count, stride in plan:
            for number in range(count):
                layers.append(Inverted(inputs, outputs, stride if number == 0 else 1, expansion))
                inputs = outputs
        self.layers = nn.Sequential(*layers, nn.Conv2d(inputs, 1280, 1), nn.ReLU6())
        self.head = nn.Linear(1280, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layers(x).mean(dim=(2, 3)))


def step_of(module: nn.Module, x: Tensor) -> Callable[[], None]:
    optimizer = torch.optim.SGD(module.parameters(), lr=1e-6, momentum=0.9)
    labels = torch.zeros(len(x), dtype=torch.long)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(module(x), labels).backward()
        optimizer.step()

    return step


def compare(name: str, batch: int, resolution: int, by_hand: nn.Module, rounds: int) -> dict[str, Any]:
    image = torch.rand(batch, resolution, resolution, 3)
    theirs = step_of(by_hand.to(memory_format=torch.channels_last), image.permute(0, 3, 1, 2))
    ours = step_of(to_torch(zoo.build(name, resolution=resolution)), image)
    seconds: dict[str, list[float]] = {"by hand": [], "tflite": []}
    for number in range(rounds + 1):
        for label, step in (("by hand", theirs), ("tflite", ours)):
            started = time.process_time()
            step()
            if number:  # the first one warms up
                seconds[label].append(time.process_time() - started)
    medians = {label: statistics.median(values) for label, values in seconds.items()}
    return {
        "network": name,
        "batch": batch,
        "resolution": resolution,
        "cpu_seconds": seconds,
        "median": medians,
        "speed_against_by_hand": medians["by hand"] / medians["tflite"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    rows = [
        compare("resnet_8", 64, 32, ResNet8(), rounds),
        compare("mobilenet_v2", 16, 96, MobileNetV2(), rounds),
    ]
    for row in rows:
        print(
            f"{row['network']}: {row['speed_against_by_hand']:.2f} × the speed of the same network by hand",
            row["median"],
        )
    TARGET.parent.mkdir(exist_ok=True)
    document = {"machine": encode_fields(machine_facts()), "torch": torch.__version__, "rows": rows}
    TARGET.write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
