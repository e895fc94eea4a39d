# SPDX-License-Identifier: Apache-2.0
"""Clipping: cut the rare tails of activations, so that the steps of the rest become finer.

The ranges of all activations become those of the method "percentile": in each sample all but a few in 10,000 of the
values, the widest over the samples (see ``_statistics``). That trades an error of few values for one of all.

Scope: int8 activations. What the samples do not show may lie beyond the cut, so that the pass must gain
``LEAST_GAIN_DB`` at the outputs to be kept by default.
"""

STAGE = "ranges"
METHOD = "percentile"
LEAST_GAIN_DB = 0.2
