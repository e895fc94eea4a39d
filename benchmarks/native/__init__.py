# SPDX-License-Identifier: Apache-2.0
"""Litesmith's delegate against XNNPACK and LiteRT's stock kernels."""
