"""The panels of the boards: they are drawn by a short cut, and must look as matplotlib would draw them."""

import io

import matplotlib
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from keras_introspect.plots import _panels, activity_board, distribution_board, update_board
from keras_introspect.plots._draw import PALE_BLUE
from keras_introspect.recording import Series
from plots.synthetic import synthetic


def pixels(figure: Figure) -> np.ndarray:
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].astype(int)


def panels(figure: Figure) -> list[_panels.Panel]:
    return [ax for ax in figure.axes if isinstance(ax, _panels.Panel)]


def test_the_scale_is_written_at_the_left_of_each_row_and_the_epochs_below_the_last() -> None:
    _, *small = activity_board(synthetic(6, 5)["layer_outputs"]).axes
    columns = len({round(ax.get_position().x0, 6) for ax in small})
    assert 1 < columns < 6
    for i, ax in enumerate(small):
        shares = {"0 %", "50 %", "100 %"} if i % columns == 0 else set()
        epochs = {"0", "4"} if i + columns >= 6 else set()
        assert {text.get_text() for text in ax.texts[2:]} == shares | epochs


def test_the_scale_of_magnitudes_is_written_where_it_lies() -> None:
    _, _, first, *_ = distribution_board(synthetic(6, 5, sick=True)["gradients"]).axes
    low, high = first.get_ylim()
    labels = {text.get_text(): text.get_position()[1] for text in first.texts[2:] if text.get_position()[0] == 0}
    labels.pop("0", None)  # the first epoch
    assert len(labels) > 1
    for text, height in labels.items():
        assert low <= height <= high
        np.testing.assert_allclose(float(text), height, rtol=0.01)


def test_titles_above_keep_to_their_axes() -> None:
    for layers in (1, 6, 30):
        recording = synthetic(layers, 5, sick=True)
        recording.add_epoch("updates", 5, *_of(recording["updates"]), {"update_ratio": np.full(2 * layers, 1.23e-5)})
        for figure in (distribution_board(recording["gradients"]), update_board(recording)):
            pixels(figure)
            first, second = (ax._left_title.get_window_extent() for ax in figure.axes[:2])
            assert first.x1 < second.x0
            assert second.x1 < figure.bbox.x1


def _of(series: Series) -> tuple[tuple[str, ...], tuple[tuple[int | None, ...], ...]]:
    return series.names, series.shapes


def test_a_page_that_was_kept_is_drawn_as_one_that_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    series = synthetic(9, 5)["layer_outputs"]
    made = pixels(activity_board(series))
    monkeypatch.setattr(_panels, "_WORTH_KEEPING", 9)
    _panels._kept_page.cache_clear()
    first, second = activity_board(series), activity_board(series)
    assert _panels._kept_page.cache_info().hits == 1
    np.testing.assert_array_equal(pixels(first), made)
    np.testing.assert_array_equal(pixels(second), made)
    assert first.axes[1] is not second.axes[1]
    first.axes[1].set_ylim(0, 5)
    assert second.axes[1].get_ylim() == (0, 1)


def test_a_kept_page_follows_matplotlibs_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_panels, "_WORTH_KEEPING", 9)
    series = synthetic(9, 2)["layer_outputs"]
    white = pixels(activity_board(series))
    with matplotlib.rc_context({"figure.facecolor": "#000000"}):
        assert pixels(activity_board(series))[0, 0].tolist() == [0, 0, 0]
    np.testing.assert_array_equal(pixels(activity_board(series)), white)


def test_a_panel_is_drawn_as_matplotlib_draws_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines, areas and frame to the pixel; letters are by another rasterizer: about as much ink, in the same place."""
    figure = activity_board(synthetic(6, 20, sick=True)["layer_outputs"], figsize=(10, 7))
    ours = pixels(figure)
    monkeypatch.setattr(_panels.Panel, "draw", _panels.Axes.draw)
    theirs = pixels(figure)
    assert ours.shape == theirs.shape
    for ax in panels(figure):
        box = ax.get_window_extent()
        rows = slice(len(ours) - int(box.y1) + 1, len(ours) - int(box.y0) + 1)
        columns = slice(int(box.x0), int(box.x1))
        np.testing.assert_array_equal(ours[rows, columns], theirs[rows, columns])
        assert len(np.unique(ours[rows, columns])) > 2
        above = slice(rows.start - 30, rows.start - 1)
        left, right = (image[above, columns] for image in (ours, theirs))
        assert abs((255 - left).sum() / (255 - right).sum() - 1) < 0.2
        for half in (slice(0, 15), slice(15, 30)):  # the name, and below it shape and remark
            ends = [np.flatnonzero((image[half] < 200).any(axis=(0, 2)))[[0, -1]] for image in (left, right)]
            np.testing.assert_allclose(ends[0], ends[1], atol=4)


@pytest.mark.parametrize("name", ["Schicht_ä", "層", "$x^2$", "a\nb"])
def test_what_one_font_may_not_have_is_left_to_matplotlib(name: str) -> None:
    renderer = FigureCanvasAgg(Figure()).get_renderer()
    text = Figure().text(0, 0, name)
    assert not _panels._drawn_as_image(text, renderer)


@pytest.mark.parametrize(
    "keywords",
    [{"ha": "center"}, {"va": "top"}, {"rotation": 90}, {"alpha": 0.5}, {"bbox": {"facecolor": "white"}}],
    ids=str,
)
def test_what_is_not_plain_is_left_to_matplotlib(keywords: dict[str, object]) -> None:
    renderer = FigureCanvasAgg(Figure()).get_renderer()
    assert _panels._drawn_as_image(Figure().text(0, 0, "plain"), renderer)
    assert not _panels._drawn_as_image(Figure().text(0, 0, "plain", **keywords), renderer)


def test_a_vector_picture_keeps_its_text() -> None:
    figure = activity_board(synthetic(6, 5)["layer_outputs"])
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    assert "<image" not in buffer.getvalue()
    assert buffer.getvalue().count("<!-- dead 0 % -->") == 6


def test_the_axes_of_a_panel_can_be_made_visible() -> None:
    figure = Figure()
    ax = figure.add_subplot(axes_class=_panels.Panel)
    ax.plot([0, 1], [0, 1])
    bare = pixels(figure)
    ax.xaxis.set_visible(True)
    ax.tick_params(axis="x", colors=PALE_BLUE, length=20)
    ax.grid(axis="x")
    ticks = [tick for tick in ax.xaxis.get_major_ticks() if tick.tick1line.get_markersize() == 20]
    assert len(ticks) > 2
    assert (pixels(figure) != bare).any()


def test_a_text_of_a_colour_and_an_alignment_stands_where_it_should() -> None:
    figure = Figure(figsize=(2, 1), dpi=100)
    ax = figure.add_axes((0, 0, 1, 1), axes_class=_panels.Panel)
    ax.spines[:].set_visible(False)
    ax.text(0.5, 0.5, "HHHH", ha="right", fontsize=12, color="#ff0000")
    ink = np.argwhere(pixels(figure)[..., 1] < 128)
    assert abs(ink[:, 1].max() - 100) <= 3  # ends in the middle
    assert abs(ink[:, 0].max() - 50) <= 2  # stands on the baseline
    assert (pixels(figure)[..., 0] == 255).all()
