import numpy as np
import pytest

from keras_introspect.plots import scale_stack
from keras_introspect.plots.scale_stack import shares
from keras_introspect.recording import Recording
from plots.synthetic import synthetic


def heights(ax, layers):
    """The heights of the bands at each epoch, (T, L), read back from the polygons."""
    paths = ax.collections[0].get_paths()
    assert len(paths) == layers
    rows = (len(paths[0].vertices) - 1) // 2
    return np.column_stack([path.vertices[rows : 2 * rows, 1][::-1] - path.vertices[:rows, 1] for path in paths])


def test_heights_are_the_normalised_logs():
    series = synthetic(6, 20)["layer_outputs"]
    drawn = heights(scale_stack(series), 6)
    log = np.log(series.epoch("rms"))
    expected = log - log.min() + 1
    np.testing.assert_allclose(drawn, expected / expected.sum(axis=1, keepdims=True), rtol=1e-9)
    np.testing.assert_allclose(drawn.sum(axis=1), 1)


def test_neighbours_have_different_shades_and_the_first_layer_lies_at_the_bottom():
    ax = scale_stack(synthetic(6, 20)["layer_outputs"])
    colors = ax.collections[0].get_facecolors()
    assert (colors[0::2] == colors[0]).all()
    assert (colors[1::2] == colors[1]).all()
    assert not np.array_equal(colors[0], colors[1])
    assert ax.collections[0].get_paths()[0].vertices[:, 1].min() == 0
    labels = sorted(ax.texts, key=lambda text: text.xy[1])
    assert [text.get_text() for text in labels] == [*(f"conv_{i}" for i in range(5)), "head"]


def test_gaps_stay_empty():
    series = synthetic(2, 8, gaps=True)["layer_outputs"]
    recording = Recording()
    for epoch in range(3):
        rms = [np.nan, np.nan] if epoch == 1 else [1.0, 2.0]
        recording.add_epoch("gradients", epoch, ["a", "b"], [(2, 2)] * 2, {"rms": rms})
    paths = scale_stack(recording["gradients"]).collections[0].get_paths()
    assert len(paths) == 4  # two layers, each before and after the gap
    assert not any((path.vertices[:, 0] == 1).any() for path in paths)
    assert len(scale_stack(series).collections[0].get_paths()) == 2


def test_zero_has_no_band_and_an_epoch_of_zeros_is_a_gap():
    share = shares(np.array([[0.0, np.e, np.nan], [1.0, np.e, 1.0], [0.0, 0.0, 0.0]]))
    np.testing.assert_allclose(share, [[0, 1, np.nan], [1 / 4, 2 / 4, 1 / 4], [np.nan] * 3])


def test_the_title_says_what_is_exactly_zero():
    recording = Recording()
    recording.add_epoch("gradients", 0, ["a", "b", "c"], [(2, 2)] * 3, {"rms": [0.0, 0.01, 0.0]})
    assert scale_stack(recording["gradients"]).get_title(loc="left") == "rms of 2 of 3 is exactly zero"


def test_many_bands_are_shaded_in_blocks():
    ax = scale_stack(synthetic(160, 2)["layer_outputs"])
    colors = ax.collections[0].get_facecolors()
    changes = (colors[1:] != colors[:-1]).any(axis=1).sum()
    assert len(colors) == 160
    assert changes == 19
    assert "8 tensors" in ax.get_ylabel()
    assert len(ax.texts) <= 6


def test_the_title_names_the_ends_of_the_scale():
    recording = Recording()
    recording.add_epoch("gradients", 0, ["a", "b", "c"], [(2, 2)] * 3, {"rms": [1.0, 0.01, 0.1]})
    assert scale_stack(recording["gradients"]).get_title(loc="left") == "rms ×100 from b to a"


def test_rms_is_needed():
    recording = Recording()
    recording.add_epoch("gradients", 0, ["a"], [(2, 2)], {"dead_rate": [0.0]})
    with pytest.raises(ValueError, match=r"'rms'.*Collect it with"):
        scale_stack(recording["gradients"])
