# SPDX-License-Identifier: Apache-2.0
"""Rounding to a grid whose scale is learned: learned step size quantization, in the logarithm of the scale.

Forward, ``x̂ = s · clamp(round(x / s), low, high)``. Backward, the gradient of x passes where it was not cut, and that
of s is ``(x̂ − x) / s`` inside, ``x̂ / s`` where it was cut (LSQ, Esser et al., arXiv:1902.08153). The scale is kept as
its logarithm, so that it stays positive and moves by shares of itself (Jain et al., arXiv:1903.08066).
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

LIMITS = {"int8": (-128, 127), "int16": (-32767, 32767)}


class _Grid(torch.autograd.Function):
    """Rounds a whole tensor to one grid."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, log_scale: Tensor, low: float, high: float) -> Tensor:
        scale = math.exp(float(log_scale))
        rounded = torch.mul(x, 1.0 / scale).round_().clamp_(low, high).mul_(scale)
        ctx.save_for_backward(x, rounded)
        ctx.limits = (low - 0.5) * scale, (high + 0.5) * scale
        return rounded

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        (gradient,) = gradients
        x, rounded = ctx.saved_tensors
        inside = torch.ops.aten.hardtanh_backward(gradient, x, *ctx.limits)
        # With the logarithm as the parameter the derivative is multiplied by the scale, which cancels the division.
        slope = None
        if ctx.needs_input_grad[1]:
            slope = torch.dot(gradient.reshape(-1), rounded.reshape(-1)) - torch.dot(inside.reshape(-1), x.reshape(-1))
        return inside, slope, None, None


class ActivationQuantizer(nn.Module):
    """Rounds an activation to the integers that its tensor will hold."""

    def __init__(self, dtype: str, scale: float, zero_point: int, *, learned: bool = True) -> None:
        super().__init__()
        self.dtype, self.zero_point = dtype, zero_point
        self.log_scale = nn.Parameter(torch.tensor(math.log(scale), dtype=torch.float64), requires_grad=learned)
        least, most = LIMITS[dtype]
        self.low, self.high = float(least - zero_point), float(most - zero_point)

    @property
    def scale(self) -> float:
        """The scale as the file will hold it."""
        return float(torch.exp(self.log_scale.detach()).float())

    def covers(self, activation: str) -> bool:
        """Say whether rounding cuts what the activation would cut."""
        if activation == "RELU6":
            return self.low == 0.0 and self.high * self.scale < 6.0 + self.scale / 2
        return activation == "RELU" and self.low == 0.0

    def forward(self, x: Tensor) -> Tensor:
        """Round to the grid."""
        rounded: Tensor = _Grid.apply(x, self.log_scale, self.low, self.high)  # type: ignore[no-untyped-call]
        return rounded


class DynamicQuantizer(nn.Module):
    """Rounds each row to 8 bits between its own extremes, as kernels do that quantize their input on the fly."""

    def forward(self, x: Tensor) -> Tensor:
        """Round, and let the gradient pass."""
        with torch.no_grad():
            rows = x.reshape(x.shape[0], -1)
            low = rows.amin(dim=1).clamp(max=0.0)
            high = rows.amax(dim=1).clamp(min=0.0)
            shape = [-1, *[1] * (x.ndim - 1)]
            scale = ((high - low) / 255.0).clamp(min=1e-9).reshape(shape)
            zero = torch.round(-low.reshape(shape) / scale)
            change = (torch.clamp(torch.round(x / scale) + zero, 0, 255) - zero) * scale - x
        return x + change


class WeightQuantizer(nn.Module):
    """Rounds weights to symmetric integers, with a learned scale for each channel, or one for all of them."""

    def __init__(self, scales: Tensor, axis: int, bits: int, *, shared: bool = False) -> None:
        super().__init__()
        self.axis, self.bits, self.limit = axis, bits, float((1 << (bits - 1)) - 1)
        self.channels = scales.numel()
        start = scales.max().reshape(1) if shared else scales
        self.log_scale = nn.Parameter(torch.log(start.double()))

    def scales(self) -> Tensor:
        """Return the scales as the file will hold them."""
        return torch.exp(self.log_scale.detach()).float().expand(self.channels)

    def forward(self, weight: Tensor) -> Tensor:
        """Round to the grid; gradients as for one scale, channel by channel."""
        scale = torch.exp(self.log_scale).float()
        shape = [1] * weight.ndim
        if scale.numel() > 1:
            shape[self.axis] = -1
        scale = scale.reshape(shape)
        steps = torch.clamp(weight / scale, -self.limit, self.limit)
        rounded = steps + (torch.round(steps) - steps).detach()
        return rounded * scale

    def integers(self, weight: Tensor) -> Tensor:
        """Return the integers that the file will hold for these weights."""
        scales = self.scales()
        shape = [1] * weight.ndim
        if scales.numel() > 1:
            shape[self.axis] = -1
        return torch.clamp(torch.round(weight / scales.reshape(shape)), -self.limit, self.limit).to(torch.int8)


class BiasQuantizer(nn.Module):
    """Rounds a bias to steps of input scale × weight scale, as the accumulators of integer kernels hold it."""

    def __init__(self, activation: ActivationQuantizer, weight: WeightQuantizer) -> None:
        super().__init__()
        self._scales = [activation, weight]  # in a list, so that they are not registered here a second time

    def forward(self, bias: Tensor) -> Tensor:
        """Round, and let the gradient pass."""
        activation, weight = self._scales
        assert isinstance(activation, ActivationQuantizer)
        assert isinstance(weight, WeightQuantizer)
        with torch.no_grad():
            step = activation.scale * weight.scales()
            change = torch.round(bias / step) * step - bias
        return bias + change


class ShortMultiplier(nn.Module):
    """Changes the weights or the bias of a layer as if its sums were multiplied by a factor of 15 bits.

    LiteRT's convolutions on int16 turn a sum into an integer of the output by input scale × weight scale / output scale,
    of which they keep 15 bits. That is off by up to 2⁻¹⁶ of the value: half a step where the value is large.
    """

    def __init__(
        self, data: ActivationQuantizer, weight: WeightQuantizer, output: ActivationQuantizer, axis: int
    ) -> None:
        super().__init__()
        self._scales = data, weight, output  # in a tuple, so that they are not registered here a second time
        self._axis = axis

    def error(self) -> Tensor:
        """Return the kept factor over the exact one, for each channel."""
        data, weight, output = self._scales
        share, _ = torch.frexp(data.scale * weight.scales().double() / output.scale)
        return torch.clamp(torch.floor(share * (1 << 15) + 0.5), max=(1 << 15) - 1) / (share * (1 << 15))

    def forward(self, values: Tensor) -> Tensor:
        """Multiply by what the factor is off, channel by channel."""
        shape = [1] * values.ndim
        shape[self._axis] = -1
        return values * self.error().to(values.dtype).reshape(shape)
