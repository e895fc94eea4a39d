# SPDX-License-Identifier: Apache-2.0
"""Operators with weights, and pooling: windows over images, with padding as LiteRT pads."""

from __future__ import annotations

import math
import struct

import torch
import torch.nn.functional as nnf
from torch import Tensor

from litesmith.model import same_padding
from litesmith.train._operators import Compute, Node, makes

_LANES = 8
_NEEDS_WHOLE_LANES = torch.backends.cpu.get_cpu_capability() == "AVX512"
"""With AVX-512 and several threads, the gradients of convolutions of 36 channels end the process inside of PyTorch 2.13."""
Pads = tuple[int, int, int, int]  # left, right, top, bottom: the order of torch.nn.functional.pad


def _pads(x: Tensor, kernel: tuple[int, int], stride: tuple[int, int], dilation: tuple[int, int], padding: str) -> Pads:
    if padding != "SAME":
        return (0, 0, 0, 0)
    top, bottom = same_padding(x.shape[1], kernel[0], stride[0], dilation[0])
    left, right = same_padding(x.shape[2], kernel[1], stride[1], dilation[1])
    return left, right, top, bottom


def _window(node: Node) -> tuple[tuple[int, int], tuple[int, int], str]:
    options = node.options
    dilation = options.asdict()
    return (
        (options.stride_h, options.stride_w),
        (dilation.get("dilation_h_factor", 1), dilation.get("dilation_w_factor", 1)),
        options.padding,
    )


def _convolve(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    node_window: tuple[tuple[int, int], tuple[int, int], str],
    groups: int,
) -> Tensor:
    stride, dilation, padding = node_window
    kernel = (weight.shape[2], weight.shape[3])
    left, right, top, bottom = _pads(x, kernel, stride, dilation, padding)
    image = x.permute(0, 3, 1, 2)
    if left == right and top == bottom:
        around = (top, left)
    else:  # PyTorch pads both sides alike; what is left over is padded first
        around = (min(top, bottom), min(left, right))
        image = nnf.pad(image, (left - around[1], right - around[1], top - around[0], bottom - around[0]))
    if groups == 1 and _NEEDS_WHOLE_LANES:
        result = _in_whole_lanes(image, weight, bias, stride, around, dilation)
    else:
        result = nnf.conv2d(image, weight, bias, stride, around, dilation, groups)
    return result.permute(0, 2, 3, 1)


def _in_whole_lanes(
    image: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: tuple[int, int],
    around: tuple[int, int],
    dilation: tuple[int, int],
) -> Tensor:
    """Convolve with as many zero channels more as make both sides multiples of 8; few inputs stay as they are."""
    outputs, inputs = weight.shape[:2]
    more_inputs = -inputs % _LANES if inputs > _LANES else 0
    more_outputs = -outputs % _LANES if outputs > _LANES else 0
    if more_inputs or more_outputs:
        image = nnf.pad(image, (0, 0, 0, 0, 0, more_inputs))
        weight = nnf.pad(weight, (0, 0, 0, 0, 0, more_inputs, 0, more_outputs))
        bias = None if bias is None else nnf.pad(bias, (0, more_outputs))
    return nnf.conv2d(image, weight, bias, stride, around, dilation)[:, :outputs]


@makes("CONV_2D")
def conv_2d(node: Node) -> Compute:
    """Make a convolution; fewer channels in the filter than in the input are groups."""
    window = _window(node)
    groups = node.shape(0)[3] // node.shape(1)[3]

    def compute(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        return _convolve(x, weight.permute(0, 3, 1, 2), bias, window, groups)

    return compute


@makes("DEPTHWISE_CONV_2D")
def depthwise_conv_2d(node: Node) -> Compute:
    """Make a convolution of each channel for itself."""
    window = _window(node)
    groups = node.shape(0)[3]

    def compute(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        return _convolve(x, weight.permute(3, 0, 1, 2), bias, window, groups)

    return compute


@makes("TRANSPOSE_CONV")
def transpose_conv(node: Node) -> Compute:
    """Make a transposed convolution to the size that the file says."""
    options = node.options
    compute = _transposed(node, (options.stride_h, options.stride_w), same=options.padding == "SAME")
    return lambda _size, weight, x, bias=None: compute(weight, x, bias)


@makes("Convolution2DTransposeBias")
def transpose_conv_with_bias(node: Node) -> Compute:
    """Make MediaPipe's own transposed convolution; its options are LiteRT's struct: padding, width, height."""
    padding, stride_w, stride_h = struct.unpack_from("<3i", node.operator.custom_options or bytes(12))
    compute = _transposed(node, (stride_h, stride_w), same=padding == 1)
    return lambda x, weight, bias=None: compute(weight, x, bias)


def _transposed(node: Node, stride: tuple[int, int], *, same: bool) -> Compute:
    height, width = node.output_shape()[1:3]

    def compute(weight: Tensor, x: Tensor, bias: Tensor | None = None) -> Tensor:
        kernel = (weight.shape[1], weight.shape[2])
        top = same_padding(height, kernel[0], stride[0])[0] if same else 0
        left = same_padding(width, kernel[1], stride[1])[0] if same else 0
        full = nnf.conv_transpose2d(x.permute(0, 3, 1, 2), weight.permute(3, 0, 1, 2), None, stride)
        cut = nnf.pad(full, (-left, width + left - full.shape[3], -top, height + top - full.shape[2]))
        result = cut.permute(0, 2, 3, 1)
        return result if bias is None else result + bias

    return compute


@makes("FULLY_CONNECTED")
def fully_connected(node: Node) -> Compute:
    """Make a dense layer."""
    keep = bool(node.options.keep_num_dims)

    def compute(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        rows = x if keep and x.shape[-1] == weight.shape[1] else x.reshape(-1, weight.shape[1])
        return nnf.linear(rows, weight, None if bias is None else bias.reshape(-1))

    return compute


@makes("BATCH_MATMUL")
def batch_matmul(node: Node) -> Compute:
    """Make a product of matrices."""
    first, second = bool(node.options.adj_x), bool(node.options.adj_y)

    def compute(x: Tensor, y: Tensor) -> Tensor:
        return torch.matmul(x.mT if first else x, y.mT if second else y)

    return compute


def _pool_window(node: Node) -> tuple[tuple[int, int], tuple[int, int], str]:
    options = node.options
    return (options.filter_height, options.filter_width), (options.stride_h, options.stride_w), options.padding


@makes("MAX_POOL_2D")
def max_pool_2d(node: Node) -> Compute:
    """Make the largest of each window."""
    kernel, stride, padding = _pool_window(node)

    def compute(x: Tensor) -> Tensor:
        left, right, top, bottom = pads = _pads(x, kernel, stride, (1, 1), padding)
        image = x.permute(0, 3, 1, 2)
        even = left == right and top == bottom and 2 * top <= kernel[0] and 2 * left <= kernel[1]
        if not even:
            image = nnf.pad(image, pads, value=-math.inf)
        return nnf.max_pool2d(image, kernel, stride, (top, left) if even else 0).permute(0, 2, 3, 1)

    return compute


@makes("AVERAGE_POOL_2D")
def average_pool_2d(node: Node) -> Compute:
    """Make the mean of each window, in which padding does not count."""
    kernel, stride, padding = _pool_window(node)

    def compute(x: Tensor) -> Tensor:
        left, right, top, bottom = pads = _pads(x, kernel, stride, (1, 1), padding)
        image = x.permute(0, 3, 1, 2)
        if left == right and top == bottom and 2 * top <= kernel[0] and 2 * left <= kernel[1]:
            pooled = nnf.avg_pool2d(image, kernel, stride, (top, left), count_include_pad=False)
            return pooled.permute(0, 2, 3, 1)
        inside = nnf.pad(torch.ones(1, 1, *image.shape[2:]), pads)
        share = nnf.avg_pool2d(inside, kernel, stride)
        return (nnf.avg_pool2d(nnf.pad(image, pads), kernel, stride) / share).permute(0, 2, 3, 1)

    return compute


@makes("L2_POOL_2D")
def l2_pool_2d(node: Node) -> Compute:
    """Make the root of the mean square of each window."""
    mean = average_pool_2d(node)
    return lambda x: torch.sqrt(mean(x * x))
