# SPDX-License-Identifier: Apache-2.0
"""MobileBERT (arXiv:2004.02984) for question answering: 24 thin layers with bottlenecks. ``resolution`` counts tokens.

Table 1 of the paper: a stream of 512 features; in each layer queries, keys and values are read from all 512, the rest
works on 128. In place of layer normalization it has the paper's NoNorm, a scale and an offset, and in place of GELU a
ReLU: the "OPT" variant that is published for phones. (The released checkpoint reads queries and keys through a
bottleneck of their own and so has 0.8 million parameters fewer than the paper says.)
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from litesmith.model import Value
from litesmith.zoo._architecture import Architecture, Size
from litesmith.zoo._net import BRANCH, Net
from litesmith.zoo._spread import Spread

_VOCABULARY = 30522
_LAYERS = 24
_HEADS = 4
_FEED_FORWARDS = 4
_MASKED = -10000.0  # added to the scores of padding


def _mobilebert(net: Net, size: Size) -> Mapping[str, Value]:
    tokens = size.resolution
    ids, mask, segments = (net.input(n, (1, tokens), "int32") for n in ("input_ids", "input_mask", "segment_ids"))
    stream, thin = size.divisible(512), size.divisible(128)
    x = _embed(net, ids, segments, stream, thin)
    bias = _mask_bias(net, mask)
    for n in range(_LAYERS):
        x = _layer(net, x, bias, thin, name=f"layer{n}")
    logits = net.dense(x, 2, keep_num_dims=True, name="span")
    start, end = net.builder.op("UNPACK", logits, num=2, axis=2, name="span/unpacked")
    return {"start_logits": start, "end_logits": end}


def _embed(net: Net, ids: Value, segments: Value, stream: int, thin: int) -> Value:
    """Join the embeddings of each word and its two neighbours, widen them, and add position and segment."""
    tokens = ids.shape[1]
    unit = Spread.of(0, 1, thin)
    words = net.op("GATHER", _table(net, _VOCABULARY, thin, "words"), ids, name="words/lookup", spread=unit)
    neighbours = []
    for name, start, before in (("next", 1, 0), ("previous", 0, 1)):
        begin, extent = np.array((0, start, 0), np.int32), np.array((1, tokens - 1, thin), np.int32)
        part = net.op("SLICE", words, begin, extent, name=f"words/{name}_part", spread=unit)
        pads = np.array(((0, 0), (before, 1 - before), (0, 0)), np.int32)
        neighbours.append(net.op("PAD", part, pads, name=f"words/{name}", spread=unit))
    x = net.concat([neighbours[0], words, neighbours[1]], name="words/trigram")
    x = net.dense(x, stream, keep_num_dims=True, deviation=0.9, name="embedding")
    small = Spread.of(0, 0.1, stream)
    positions = _table(net, tokens, stream, "positions", math.sqrt(0.1))
    x = net.op("ADD", x, positions, name="embedding/positioned", spread=net.spread(x) + small)
    kinds = _table(net, 2, stream, "segments", math.sqrt(0.1))
    segment = net.op("GATHER", kinds, segments, name="segments/lookup", spread=small)
    x = net.add(x, segment, name="embedding/sum")
    return _no_norm(net, x, name="embedding/norm")


def _table(net: Net, rows: int, columns: int, name: str, deviation: float = 1.0) -> Value:
    values = net.random.standard_normal((rows, columns), np.float32) * np.float32(deviation)
    return net.builder.constant(values, f"{name}/weight")


def _mask_bias(net: Net, mask: Value) -> Value:
    """0 for each token to attend to, a large negative number for padding."""
    tokens, one = mask.shape[1], Spread.of(0, 1, 1)
    x = net.op("CAST", mask, in_data_type="INT32", out_data_type="FLOAT32", name="mask/real", spread=one)
    x = net.op(
        "RESHAPE", x, np.array((1, 1, 1, tokens), np.int32), new_shape=(1, 1, 1, tokens), name="mask", spread=one
    )
    x = net.op("SUB", np.array(1, np.float32), x, name="mask/padding", spread=one)
    return net.op("MUL", x, np.array(_MASKED, np.float32), name="mask/bias", spread=one)


def _layer(net: Net, x: Value, mask_bias: Value, thin: int, *, name: str) -> Value:
    stream = x.shape[-1]
    y = net.dense(x, thin, keep_num_dims=True, name=f"{name}/bottleneck")
    y = _no_norm(net, y, name=f"{name}/bottleneck/norm")
    attended = _attention(net, x, mask_bias, thin, name=f"{name}/attention")
    y = _no_norm(net, net.add(y, attended, name=f"{name}/attention/add"), name=f"{name}/attention/norm")
    for n in range(_FEED_FORWARDS):
        z = net.dense(y, 4 * thin, keep_num_dims=True, activation="RELU", name=f"{name}/ffn{n}/up")
        z = net.dense(z, thin, keep_num_dims=True, deviation=BRANCH, name=f"{name}/ffn{n}/down")
        y = _no_norm(net, net.add(y, z, name=f"{name}/ffn{n}/add"), name=f"{name}/ffn{n}/norm")
    z = net.dense(y, stream, keep_num_dims=True, deviation=BRANCH, name=f"{name}/output")
    return _no_norm(net, net.add(x, z, name=f"{name}/add"), name=f"{name}/norm")


def _attention(net: Net, x: Value, mask_bias: Value, thin: int, *, name: str) -> Value:
    tokens, depth = x.shape[1], thin // _HEADS
    unit = Spread.of(0, 1, depth)

    def heads(kind: str) -> Value:
        y = net.dense(x, thin, keep_num_dims=True, name=f"{name}/{kind}")
        shape = (1, tokens, _HEADS, depth)
        y = net.op("RESHAPE", y, np.array(shape, np.int32), new_shape=shape, name=f"{name}/{kind}/split", spread=unit)
        return net.op("TRANSPOSE", y, np.array((0, 2, 1, 3), np.int32), name=f"{name}/{kind}/heads", spread=unit)

    query, key, value = (heads(kind) for kind in ("query", "key", "value"))
    row = Spread.of(0, 1, tokens)
    y = net.op("BATCH_MATMUL", query, key, adj_y=True, name=f"{name}/scores", spread=row)
    y = net.op("MUL", y, np.array(1 / math.sqrt(depth), np.float32), name=f"{name}/scaled", spread=row)
    y = net.op("ADD", y, mask_bias, name=f"{name}/masked", spread=row)
    y = net.op("SOFTMAX", y, beta=1.0, name=f"{name}/weights", spread=row)
    context = Spread.of(0, 1, thin)  # averaging keeps what the tokens share, and that must not grow from layer to layer
    y = net.op("BATCH_MATMUL", y, value, name=f"{name}/context", spread=context)
    y = net.op("TRANSPOSE", y, np.array((0, 2, 1, 3), np.int32), name=f"{name}/context/tokens", spread=context)
    shape = (1, tokens, thin)
    y = net.op("RESHAPE", y, np.array(shape, np.int32), new_shape=shape, name=f"{name}/context/joined", spread=context)
    return net.dense(y, thin, keep_num_dims=True, deviation=BRANCH, name=f"{name}/output")


def _no_norm(net: Net, x: Value, *, name: str) -> Value:
    return net.affine(x, name=name)


ARCHITECTURES = (
    Architecture("mobilebert", _mobilebert, 384, 2, smallest=2, largest=512, unit="tokens", classifies=False),
)
