# SPDX-License-Identifier: Apache-2.0
"""Image files as arrays of 8-bit RGB, the way a person sees them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from litesmith.errors import DataError

if TYPE_CHECKING:
    from PIL.Image import Image

SUFFIXES = frozenset(
    (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")  # what Pillow always has
)


def read_image(path: Path) -> NDArray[np.uint8]:
    """Return height × width × RGB: turned upright as its EXIF data says, transparency dropped, first frame only."""
    from PIL import Image, ImageOps

    try:
        with Image.open(path) as image:
            upright = ImageOps.exif_transpose(image)
            return np.array(_eight_bit(upright, image.format).convert("RGB"))  # a copy that can be written to
    except DataError:
        raise
    except Exception as error:  # decoders raise whatever a broken file leads them to
        raise DataError(f"the image cannot be read ({error}); replace or remove the file") from error


def _eight_bit(image: Image, file_format: str | None) -> Image:
    from PIL import Image

    if image.mode.startswith("I;16") or (image.mode == "I" and file_format == "PPM"):  # 16 bits in a wider type
        return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if image.mode in ("I", "F"):
        raise DataError(
            f"the image has 32 bits a pixel (mode {image.mode}), whose range is unknown; save it as .npy, or with 8 or "
            "16 bits"
        )
    return image
