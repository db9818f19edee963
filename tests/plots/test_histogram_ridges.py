import numpy as np
import pytest

from keras_introspect.plots import histogram_ridges
from keras_introspect.plots.histogram_ridges import humps
from keras_introspect.recording import Recording
from keras_introspect.sketch import BINS
from plots.synthetic import synthetic

LEVELS = np.linspace(0, 100, 9)


def recorded(*epochs: np.ndarray, sketches: bool = True) -> Recording:
    """What a run records of such values."""
    recording = Recording()
    for epoch, values in enumerate(epochs):
        x = values.astype("float32")
        counts = np.bincount(BINS.of_key[x.view(np.uint32) >> 16], minlength=BINS.size).astype(float)
        kept = {"quantiles/sketch": {"conv": counts}, "quantiles/extremes": {"conv": np.array([x.min(), x.max()])}}
        recording.add_epoch(
            "layer_outputs",
            epoch,
            ["conv"],
            [(None, 4)],
            {"quantiles": [np.percentile(x, LEVELS)]},
            quantile_levels=LEVELS,
            kept=kept if sketches else None,
        )
    return recording


def two_humps(apart: float = 3.0, zeros: int = 0, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.normal(-apart, 0.5, 8000), rng.normal(apart, 0.5, 8000), np.zeros(zeros)])


@pytest.mark.parametrize("through_a_file", [False, True])
def test_ridges_are_histograms_of_the_sketches(through_a_file):
    """Against NumPy's histogram in the same cells: the shape is that of the values, not of the quantiles."""
    values = two_humps()
    recording = recorded(two_humps(1), values)
    if through_a_file:
        recording = Recording.from_bytes(recording.to_bytes())
    ax = histogram_ridges(recording["layer_outputs"])
    assert ax.get_title(loc="left") == "conv 4: two humps, at -3.1 and 3"
    first, last = ax.lines[:2]
    assert (first.get_label(), last.get_label()) == ("epoch 0", "epoch 1")
    x = last.get_xdata()
    cell = x[1] - x[0]
    expected, _ = np.histogram(values, bins=np.append(x - cell / 2, x[-1] + cell / 2))
    expected = np.convolve(np.pad(expected, 2, mode="edge"), [0.1, 0.2, 0.4, 0.2, 0.1], mode="valid")
    drawn = last.get_ydata() - last.get_ydata().min()
    np.testing.assert_allclose(drawn / drawn.max(), expected / expected.max(), atol=0.12)
    assert abs(np.sum(drawn[x < 0]) / np.sum(drawn) - 0.5) < 0.02


def test_the_oldest_is_behind():
    series = recorded(*[two_humps(i) for i in range(1, 5)])["layer_outputs"]
    ax = histogram_ridges(series)
    fills = ax.collections
    assert [fill.get_zorder() for fill in fills] == [0, 1, 2, 3]
    bases = [fill.get_paths()[0].vertices[:, 1].min() for fill in fills]
    np.testing.assert_allclose(bases, [3, 2, 1, 0], atol=1e-6)


def test_zeros_are_told_beside_the_ridge():
    ax = histogram_ridges(recorded(two_humps(), two_humps(zeros=16000))["layer_outputs"])
    assert {"epoch 0", "epoch 1, 50 % zero"} == {text.get_text() for text in ax.texts}
    assert "two humps" in ax.get_title(loc="left")


def test_without_sketches_the_levels_are_drawn():
    ax = histogram_ridges(recorded(two_humps(), two_humps(zeros=16000), sketches=False)["layer_outputs"])
    assert ax.lines
    assert any("zero" in text.get_text() for text in ax.texts)
    normal = histogram_ridges(synthetic(3, 5)["weights"].sel("head/kernel"))
    assert "one hump, at " in normal.get_title(loc="left")


def test_no_more_than_twelve_ridges():
    series = synthetic(3, 100)["gradients"]
    ax = histogram_ridges(series, layers="head/kernel")
    labels = [line.get_label() for line in ax.lines if line.get_label().startswith("epoch")]
    assert len(labels) == 12
    assert (labels[0], labels[-1]) == ("epoch 0", "epoch 99")
    chosen = histogram_ridges(series, layers="head/kernel", iterations=[3, 7])
    assert [line.get_label() for line in chosen.lines if line.get_label().startswith("epoch")] == ["epoch 3", "epoch 7"]


def test_one_value_and_no_value():
    assert "one hump, at 2" in histogram_ridges(recorded(np.full(50, 2.0))["layer_outputs"]).get_title(loc="left")
    ax = histogram_ridges(recorded(np.zeros(50))["layer_outputs"])
    assert ax.get_title(loc="left") == "conv 4: zero"
    assert [text.get_text() for text in ax.texts] == ["all elements are zero"]


def test_what_is_needed_is_named():
    recording = Recording()
    recording.add_epoch("weights", 0, ["a"], [(2,)], {"rms": [1.0]})
    with pytest.raises(ValueError, match=r'quantiles.*statistics=\["quantiles"'):
        histogram_ridges(recording["weights"])
    with pytest.raises(ValueError, match="draws one tensor, got 6"):
        histogram_ridges(synthetic(3, 2)["gradients"])


def test_humps():
    x = np.linspace(-4, 4, 81)
    assert humps(np.exp(-(x**2))) == [40]
    assert humps(np.exp(-((x - 2) ** 2)) + np.exp(-((x + 2) ** 2))) == [20, 60]
    assert humps(np.exp(-(x**2)) + 0.05 * np.cos(20 * x)) == [40]  # ripples are none
    assert humps(np.zeros(5)) == []
