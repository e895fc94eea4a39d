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
    """Where a road ends: the recipe, what going there costs, and what to do next."""

    recipe: str
    cost: str
    verb: str = "quantize"


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

_CPU_LATENCY = Fork(
    "data",
    "What data is there?",
    (
        Branch(
            "none",
            "without samples the ranges of activations are unknown; dynamic quantizes them as they come",
            Leaf("dynamic", _SECONDS),
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
                        Leaf("int8", _SEARCH, "tune"),
                    ),
                    Branch(
                        "a little",
                        "int8 with equalization and bias correction loses little on most nets",
                        Leaf("int8", _MINUTES),
                    ),
                    Branch("much", "4-bit weights halve the file again", Leaf("int8w4", _MINUTES)),
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
                        "search first; train with int8 in the loop where the search finds nothing",
                        Leaf("int8", _SEARCH, "tune"),
                    ),
                    Branch(
                        "a little",
                        "the search tries int8, mixed precision and pruning under the bound",
                        Leaf("int8", _SEARCH, "tune"),
                    ),
                    Branch(
                        "much",
                        "removed channels make every kernel faster",
                        Leaf("channels(0.25) → int8", _SEARCH, "tune"),
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
                        Leaf("weights8", _SECONDS),
                    ),
                    Branch(
                        "a little",
                        "4-bit weights with a scale for each block of 32",
                        Leaf("weights4-block32", _SECONDS),
                    ),
                    Branch(
                        "much", "4-bit weights with a scale for each channel: an eighth", Leaf("weights4", _SECONDS)
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
                        Leaf("cluster(16) → weights8", _SECONDS),
                    ),
                    Branch(
                        "unlabelled",
                        "weights that matter least go, the others make up for them",
                        Leaf("prune(0.5) → int8", _MINUTES),
                    ),
                    Branch(
                        "labelled",
                        "pruned while training, to four fifths zeros",
                        Leaf("prune(0.8) → int8", _HOURS, "train"),
                    ),
                ),
            ),
        ),
    ),
)
_INT8_ONLY = Fork(
    "data",
    "What data is there?",
    (
        Branch(
            "none",
            "the ranges must come from bounds and propagation, which costs accuracy: get samples",
            Leaf("int8(io=int8, strict=yes)", _SECONDS),
        ),
        Branch("unlabelled", "samples give the ranges", Leaf("int8(io=int8, strict=yes)", _MINUTES)),
        Branch(
            "labelled", "samples give the ranges, labels the proof", Leaf("int8(io=int8, strict=yes)", _SEARCH, "tune")
        ),
    ),
)
_NPU = Fork(
    "data",
    "What data is there?",
    (
        Branch("none", "without samples only the weights can change", Leaf("float16", _SECONDS)),
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
                        Leaf("int16x8", _MINUTES),
                    ),
                    Branch("a little", "8-bit throughout", Leaf("int8", _MINUTES)),
                    Branch("much", "8-bit activations, 4-bit weights where the NPU has them", Leaf("int8w4", _MINUTES)),
                ),
            ),
        ),
        Branch("labelled", "labels let the search see the accuracy itself", Leaf("int8", _SEARCH, "tune")),
    ),
)
TREE = Fork(
    "target",
    "Where does it run?",
    (
        Branch("cpu", "XNNPACK has fast kernels for float, int8 and dynamic int8", _CPU),
        Branch("gpu", "GPUs compute in float16; the file halves and nothing else changes", Leaf("float16", _SECONDS)),
        Branch(
            "edgetpu",
            "it runs int8 only, inputs and outputs included; one float operator ends its part of the graph",
            _INT8_ONLY,
        ),
        Branch("hexagon", "it runs 8-bit integers only", _INT8_ONLY),
        Branch("npu", "most run int8 and int16x8, and float16 slowly", _NPU),
    ),
)
