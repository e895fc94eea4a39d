# SPDX-License-Identifier: Apache-2.0
"""Any architecture at any width and resolution: it builds, runs on LiteRT, is deterministic, or says why it cannot."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from litesmith import zoo
from litesmith.errors import UsageError

SMALL: dict[str, dict[str, Any]] = {name: {"width": 0.25, "resolution": 64} for name in zoo.names()} | {
    "deepspeech": {"width": 0.05, "resolution": 3},
    "ds_cnn": {"width": 0.25, "resolution": 20},
    "inception_v3": {"width": 0.1, "resolution": 75},
    "mobilebert": {"width": 0.125, "resolution": 16},
    "resnet_8": {"width": 0.5, "resolution": 15},
    "resnet_v2_101": {"width": 0.1, "resolution": 33},
    "wav2letter": {"width": 0.1, "resolution": 41},
    "yolo_v3": {"width": 0.05, "resolution": 64},
}


@pytest.mark.parametrize("name", zoo.names())
def test_builds_and_runs_at_a_width_and_resolution_nobody_published(name: str, litert: Any) -> None:
    classes = None if name == "mobilebert" else 7
    model = zoo.build(name, classes=classes, **SMALL[name])
    model.verify()
    outputs = litert.run(model, litert.sample(model, 0))
    assert outputs.keys() == {key for key, _ in model.signatures[0].outputs}
    for key, index in model.signatures[0].outputs:
        assert outputs[key].shape == model.main.tensors[index].shape
        assert np.isfinite(outputs[key]).all()


def test_equal_seeds_give_equal_bytes_and_others_do_not() -> None:
    first, again, other = (zoo.build("mobilenet_v3_small", width=0.25, seed=s).to_bytes() for s in (1, 1, 2))
    assert first == again
    assert first != other


def test_names_of_tensors_are_unique() -> None:
    for name in ("inception_v3", "mobilebert", "deepspeech"):
        tensors = zoo.build(name, **SMALL[name]).main.tensors
        assert len({t.name for t in tensors}) == len(tensors)


def test_the_unrolled_steps_of_deepspeech_share_one_weight() -> None:
    main = zoo.build("deepspeech", **SMALL["deepspeech"]).main
    gates = [op for op in main.operators if main.tensors[op.outputs[0]].name.endswith("/gates")]
    assert len(gates) == 3
    assert len({op.inputs[1] for op in gates}) == 1


def test_symmetric_padding_pads_only_where_same_would_not_be_symmetric() -> None:
    plain, symmetric = (zoo.build("mobilenet_v2", width=0.1, resolution=64, padding=p) for p in ("same", "symmetric"))
    assert not any(op.kind == "PAD" for op in plain.main.operators)
    assert sum(op.kind == "PAD" for op in symmetric.main.operators) == 5  # the stem and four blocks with a stride
    assert plain.main.tensors[plain.main.outputs[0]].shape == symmetric.main.tensors[symmetric.main.outputs[0]].shape


@pytest.mark.parametrize("name", ["ds_cnn", "resnet_50", "resnet_v2_101", "wav2letter"])
def test_symmetric_padding_changes_no_shape(name: str) -> None:
    plain, symmetric = (zoo.build(name, padding=p, **SMALL[name]) for p in ("same", "symmetric"))
    shapes = [{t.name: t.shape for t in m.main.tensors if not t.name.endswith("/pad")} for m in (plain, symmetric)]
    assert all(shapes[1].get(key) == shape for key, shape in shapes[0].items())


def test_a_width_below_one_leaves_the_last_layers_of_mobilenets() -> None:
    for name, channels in (("mobilenet_v2", 1280), ("mobilenet_v3_small", 1024)):
        main = zoo.build(name, width=0.5, resolution=32).main
        assert (
            main.tensors[next(i for i, t in enumerate(main.tensors) if t.name == "logits/weight")].shape[1] == channels
        )


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("mobilenet_v9", "mobilenet_v1"),
        ("MobileNet-V2", "mobilenet_v2"),
        ("resnet50", "resnet_50"),
        ("zzz", "there are"),
    ],
)
def test_an_unknown_name_gets_a_suggestion(name: str, hint: str) -> None:
    with pytest.raises(UsageError, match=hint):
        zoo.build(name)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("mobilenet_v2", {"width": 0}, "width 0 is outside"),
        ("mobilenet_v2", {"width": -1}, "width -1 is outside"),
        ("mobilenet_v2", {"width": float("nan")}, "width nan is outside"),
        ("mobilenet_v2", {"width": 100}, "width 100 is outside"),
        ("mobilenet_v1", {"width": 0.001}, "leaves nothing of a layer of 32 channels"),
        ("mobilenet_v2", {"width": 0.001}, "leaves nothing of a layer of 32 channels"),
        ("resnet_8", {"width": 0.01}, "leaves nothing of a layer of 16 channels"),
        ("inception_v3", {"resolution": 74}, "74 pixels is outside 75"),
        ("mobilenet_v1", {"resolution": 0}, "0 pixels is outside 32"),
        ("yolo_v3", {"resolution": 100}, "use 96 or 128"),
        ("mobilebert", {"resolution": 513}, "513 tokens is outside 2 to 512"),
        ("wav2letter", {"resolution": 1}, "1 frames is outside 2"),
        ("resnet_50", {"classes": 0}, "0 classes cannot be built"),
        ("mobilebert", {"classes": 3}, "has no classes to choose"),
        ("resnet_50", {"padding": "valid"}, "must be one of same, symmetric"),
        ("resnet_50", {"name_map": {}}, "pass it as weights"),
        ("resnet_50", {"skip": ["logits"]}, "pass it as weights"),
    ],
)
def test_what_cannot_be_built_is_refused_with_a_remedy(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        zoo.build(name, **options)
