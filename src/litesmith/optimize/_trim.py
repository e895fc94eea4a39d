# SPDX-License-Identifier: Apache-2.0
"""Trimming: cut the largest weights of a channel a little, where the finer steps of its other weights are worth it.

The scales of weights become those of the range method "mse" (see ``_weight_ranges``): of a row of ranges, the one with
the smallest square error of the channel's weights. "minmax", the default, cuts none of them.

Scope: weights of 8 bits or fewer. What large weights do may matter more than their share of the error, so that the pass
must gain ``LEAST_GAIN_DB`` at the outputs to be kept by default.
"""

STAGE = "scales"
METHOD = "mse"
LEAST_GAIN_DB = 0.2
