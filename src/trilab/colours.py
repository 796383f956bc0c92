"""The colours of tables of weights, wherever they are drawn: brightness tells the size, warm or cold the sign."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

# From zero to the largest weight. They read in grey too, and hardly any eye mixes up warm and cold.
WARM = np.array([[13, 8, 52], [96, 20, 110], [190, 55, 85], [246, 140, 30], [252, 255, 164]], dtype=np.float64)
COLD = np.array([[13, 8, 52], [24, 62, 122], [30, 120, 170], [90, 190, 220], [215, 250, 255]], dtype=np.float64)


def colours(parts: ArrayLike) -> NDArray[np.uint8]:
    """The colour of weights that are these parts of the largest, -1 … 1.

    It changes with the square root: half of the scale for the first quarter of the weights, where most of them lie.

    Args:
        parts: (…) numbers.
    Returns:
        (…, 3): red, green and blue.
    """
    parts = np.asarray(parts, dtype=np.float64)
    place = np.sqrt(np.minimum(np.abs(parts), 1)) * (len(WARM) - 1)
    below = np.minimum(place.astype(int), len(WARM) - 2)
    rest = (place - below)[..., None]
    corners = np.where((parts >= 0)[..., None, None], WARM, COLD)  # (…, 5, 3)
    low = np.take_along_axis(corners, below[..., None, None], -2)[..., 0, :]
    high = np.take_along_axis(corners, below[..., None, None] + 1, -2)[..., 0, :]
    mixed: NDArray[np.uint8] = np.rint(low + rest * (high - low)).astype(np.uint8)
    return mixed
