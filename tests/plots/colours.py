"""How colours look in grey and to the colour-blind, and how far two of them are apart."""

from typing import Any

import numpy as np
from matplotlib.colors import to_rgb

# Machado, Oliveira and Fernandes, "A Physiologically-based Model for Simulation of Color Vision Deficiency", IEEE
# Transactions on Visualization and Computer Graphics 15 (6), 2009, table 1: severity 1, on linear RGB.
_DEFICIENCIES = {
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}
# Of sRGB, IEC 61966-2-1: linear RGB to CIE XYZ, and its white, D65.
_TO_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)
_WHITE = _TO_XYZ.sum(axis=1)
VISIONS = ("normal", *_DEFICIENCIES, "grey")


def linear(colours: np.ndarray) -> np.ndarray:
    """sRGB values in [0, 1] without their gamma; any shape (…, 3)."""
    return np.where(colours <= 0.04045, colours / 12.92, ((colours + 0.055) / 1.055) ** 2.4)


def gamma(values: np.ndarray) -> np.ndarray:
    """The inverse of `linear`."""
    values = np.clip(values, 0, 1)
    return np.where(values <= 0.0031308, values * 12.92, 1.055 * values ** (1 / 2.4) - 0.055)


def seen_by(vision: str, colours: Any) -> np.ndarray:
    """What sRGB colours, shape (…, 3), look like, as sRGB colours again."""
    values = linear(np.asarray(colours, float))
    if vision == "grey":
        values = np.repeat((values @ _TO_XYZ[1])[..., None], 3, axis=-1)
    elif vision != "normal":
        values = values @ np.array(_DEFICIENCIES[vision]).T
    return gamma(values)


def lab(colours: Any) -> np.ndarray:
    """CIE 1976 L*a*b* of sRGB colours, shape (…, 3)."""
    ratio = linear(np.asarray(colours, float)) @ _TO_XYZ.T / _WHITE
    f = np.where(ratio > (6 / 29) ** 3, np.cbrt(ratio), ratio / (3 * (6 / 29) ** 2) + 4 / 29)
    x, y, z = np.moveaxis(f, -1, 0)
    return np.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], axis=-1)


def difference(vision: str, first: Any, second: Any) -> float:
    """CIE76: the distance of two colours, of any form that matplotlib knows, in L*a*b*; about 2.3 can just be seen."""
    one, other = (lab(seen_by(vision, np.array(to_rgb(colour)))) for colour in (first, second))
    return float(np.linalg.norm(one - other))


def over(colour: Any, below: Any, alpha: float) -> np.ndarray:
    """A colour of an opacity drawn over another."""
    mixed: np.ndarray = alpha * np.array(to_rgb(colour)) + (1 - alpha) * np.array(to_rgb(below))
    return mixed
