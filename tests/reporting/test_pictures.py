"""Figures in a page: what the palette keeps, and that a figure is left as it was."""

import base64
import io

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from keras_introspect.plots import activity_board
from keras_introspect.reporting.pictures import picture, with_palette
from plots.synthetic import synthetic


def test_common_colours_stay_and_the_others_come_near() -> None:
    random = np.random.default_rng(0)
    pixels = np.full((64, 64, 3), 255, np.uint8)
    pixels[:20] = (11, 83, 148)
    pixels[40:50, :, :] = random.integers(0, 256, (10, 64, 3))  # 640 colours, each once
    reduced = with_palette(Image.fromarray(pixels), 32)
    assert reduced.mode == "P"
    made = np.asarray(reduced.convert("RGB"))
    assert len(np.unique(made.reshape(-1, 3), axis=0)) <= 32
    np.testing.assert_array_equal(made[:40], pixels[:40])
    np.testing.assert_array_equal(made[50:], pixels[50:])
    # Each pixel has the nearest colour of the palette.
    palette = np.unique(made.reshape(-1, 3), axis=0).astype(int)
    distance = ((pixels[40:50, :, None].astype(int) - palette) ** 2).sum(axis=-1)
    np.testing.assert_array_equal(((pixels[40:50].astype(int) - made[40:50]) ** 2).sum(axis=-1), distance.min(axis=-1))


def test_a_large_figure_is_a_png_of_its_size_and_keeps_its_resolution() -> None:
    figure = activity_board(synthetic(6, 20)["layer_outputs"], figsize=(9.0, 6.0))
    was = figure.dpi
    made = picture(figure, points=10_000)
    kind, content = made.uri.split(";base64,")
    assert kind == "data:image/png"
    with Image.open(io.BytesIO(base64.b64decode(content))) as image:
        assert image.size == (made.width, made.height) == (864, 576)
        assert len(image.convert("RGB").getcolors()) > 10
    assert figure.dpi == was
    assert "worst dead rate" in made.alt


def test_an_empty_figure_has_one_colour() -> None:
    made = picture(Figure(figsize=(1, 1)), points=10_000)
    with Image.open(io.BytesIO(base64.b64decode(made.uri.split(",")[1]))) as image:
        assert image.convert("RGB").getcolors() == [(96 * 96, (255, 255, 255))]
