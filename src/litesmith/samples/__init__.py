# SPDX-License-Identifier: Apache-2.0
"""A small trained model and real labelled data, so that everything runs on a fresh machine."""

from litesmith.samples._samples import Facts, dataset, facts, model, path

__all__ = ["Facts", "dataset", "facts", "model", "path"]
