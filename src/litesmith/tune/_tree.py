# SPDX-License-Identifier: Apache-2.0
"""The field's decision tree: from target, data, tolerance and purpose to a recipe, as a value that can be drawn.

Facts behind the branches: LiteRT's post-training quantization guide (what each accelerator takes), Coral's compiler (int8
only, whole graph), XNNPACK's operator list (no integer 16x8, dynamic int8 for convolution and fully connected), and this
project's own measurements in benchmarks/results.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Leaf:
    """Where a road ends: the recipe, what going there costs, and the command that goes there.

    In the command stand {model}, {data} with its option where there is some, and {drop}.
    """

    recipe: str
    cost: str
    command: str


@dataclass(frozen=True)
class Branch:
    """An answer: what speaks for this way, and where it leads."""

    answer: str
    because: str
    to: Fork | Leaf


@dataclass(frozen=True)
class Fork:
    """A question with its answers; ``key`` is the option that answers it."""

    key: str
    question: str
    branches: tuple[Branch, ...]


_MINUTES = "minutes: calibration on a few hundred samples"
_SECONDS = "seconds: weights are converted, nothing is run"
_HOURS = "hours with a GPU, a day without: training with the optimization in the loop"
_SEARCH = "minutes to an hour: several candidates, each scored on your samples"


def _quantize(recipe: str, cost: str, options: str = "") -> Leaf:
    scheme = recipe.partition("(")[0]
    return Leaf(recipe, cost, f"litesmith quantize {{model}} --scheme {scheme}{options}{{data}} -o {scheme}.tflite")


def _tune(recipe: str, options: str = "", cost: str = _SEARCH) -> Leaf:
    return Leaf(recipe, cost, f"litesmith tune {{model}}{{data}} --max-drop {{drop}}{options}")


_ELSEWHERE = " --minimize size"
"""For targets that are not here: the latency of this machine says nothing about theirs."""
_CPU_LATENCY = Fork(
    "data",
    "What data is there?",
    (
        Branch(
            "none",
            "without samples the ranges of activations are unknown; dynamic quantizes them as they come",
            _quantize("dynamic", _SECONDS),
        ),
        Branch(
            "unlabelled",
            "samples give the ranges, and recovery passes need no labels",
            Fork(
                "tolerance",
                "How much may be lost?",
                (
                    Branch(
                        "hardly anything",
                        "weak layers stay float, found by agreement with the float model",
                        _tune("int8"),
                    ),
                    Branch(
                        "a little",
                        "int8 with equalization and bias correction loses little on most nets",
                        _quantize("int8", _MINUTES),
                    ),
                    Branch("much", "4-bit weights halve the file again", _quantize("int8w4", _MINUTES)),
                ),
            ),
        ),
        Branch(
            "labelled",
            "labels let the search see the accuracy itself",
            Fork(
                "tolerance",
                "How much may be lost?",
                (
                    Branch(
                        "hardly anything",
                        "search first; where that finds nothing, --train lets it train with int8 in the loop",
                        _tune("int8"),
                    ),
                    Branch(
                        "a little",
                        "the search tries int8, mixed precision and pruning under the bound",
                        _tune("int8"),
                    ),
                    Branch(
                        "much",
                        "removed channels make every kernel faster: a quarter of them is tried besides",
                        _tune("channels(0.75) → int8", " --recipe 'channels(0.75) → int8'"),
                    ),
                ),
            ),
        ),
    ),
)
_CPU = Fork(
    "purpose",
    "What matters most?",
    (
        Branch("latency", "integer arithmetic is what XNNPACK runs fastest", _CPU_LATENCY),
        Branch(
            "size",
            "the file and the memory it is mapped into count, not the arithmetic",
            Fork(
                "tolerance",
                "How much may be lost?",
                (
                    Branch(
                        "hardly anything",
                        "8-bit weights with float arithmetic: a quarter of the size",
                        _quantize("weights8", _SECONDS),
                    ),
                    Branch(
                        "a little",
                        "4-bit weights with a scale for each block of 32",
                        _quantize("weights4-block32", _SECONDS),
                    ),
                    Branch(
                        "much",
                        "4-bit weights with a scale for each channel: an eighth",
                        _quantize("weights4", _SECONDS),
                    ),
                ),
            ),
        ),
        Branch(
            "download",
            "what counts is the compressed size: few different values, and many zeros, compress well",
            Fork(
                "data",
                "What data is there?",
                (
                    Branch(
                        "none",
                        "16 values for each layer, found from the weights alone",
                        Leaf(
                            "cluster(16) → weights8",
                            _SECONDS,
                            "litesmith cluster {model} --clusters 16 -o clustered.tflite && "
                            "litesmith quantize clustered.tflite --scheme weights8 -o weights8.tflite",
                        ),
                    ),
                    Branch(
                        "unlabelled",
                        "weights that matter least go, the others make up for them",
                        _tune("prune(0.5) → int8", " --only 'prune(0.5) → int8' --minimize download", _MINUTES),
                    ),
                    Branch(
                        "labelled",
                        "pruned while training, to four fifths zeros",
                        Leaf(
                            "train(int8, prune=0.8)",
                            _HOURS,
                            "litesmith train {model}{data} --qat int8 --prune 0.8 -o trained.tflite",
                        ),
                    ),
                ),
            ),
        ),
    ),
)
_WHOLE = "int8(io=int8, strict=yes)"
_INT8_ONLY = Fork(
    "data",
    "What data is there?",
    (
        Branch(
            "none",
            "the ranges must come from bounds and propagation, which costs accuracy: get samples",
            _quantize(_WHOLE, _SECONDS, " --io int8 --strict"),
        ),
        Branch("unlabelled", "samples give the ranges", _quantize(_WHOLE, _MINUTES, " --io int8 --strict")),
        Branch(
            "labelled",
            "samples give the ranges, labels the proof",
            _tune(_WHOLE, f" --only '{_WHOLE}'{_ELSEWHERE}", _MINUTES),
        ),
    ),
)
_NPU = Fork(
    "data",
    "What data is there?",
    (
        Branch("none", "without samples only the weights can change", _quantize("float16", _SECONDS)),
        Branch(
            "unlabelled",
            "samples give the ranges",
            Fork(
                "tolerance",
                "How much may be lost?",
                (
                    Branch(
                        "hardly anything",
                        "16-bit activations: most NPUs run them at half the speed of 8-bit",
                        _quantize("int16x8", _MINUTES),
                    ),
                    Branch("a little", "8-bit throughout", _quantize("int8", _MINUTES)),
                    Branch(
                        "much", "8-bit activations, 4-bit weights where the NPU has them", _quantize("int8w4", _MINUTES)
                    ),
                ),
            ),
        ),
        Branch(
            "labelled",
            "labels say whether 8 bits are enough, or 16-bit activations are needed",
            _tune("int8", f" --only int8 --only int16x8{_ELSEWHERE}", _MINUTES),
        ),
    ),
)
TREE = Fork(
    "target",
    "Where does it run?",
    (
        Branch("cpu", "XNNPACK has fast kernels for float, int8 and dynamic int8", _CPU),
        Branch(
            "gpu", "GPUs compute in float16; the file halves and nothing else changes", _quantize("float16", _SECONDS)
        ),
        Branch(
            "edgetpu",
            "it runs int8 only, inputs and outputs included; one float operator ends its part of the graph",
            _INT8_ONLY,
        ),
        Branch("hexagon", "it runs 8-bit integers only", _INT8_ONLY),
        Branch("npu", "most run int8 and int16x8, and float16 slowly", _NPU),
    ),
)
