# SPDX-License-Identifier: Apache-2.0
"""Measurements whose results are committed: each module runs alone and writes `results/NAME.json`."""
