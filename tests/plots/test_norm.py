import numpy as np

from keras_introspect.plots import norm
from keras_introspect.recording import Recording
from plots.synthetic import synthetic


def test_a_line_a_tensor():
    series = synthetic(6, 20)["weights"]
    ax = norm(series)
    assert [line.get_label() for line in ax.lines] == list(series.names)
    for i, line in enumerate(ax.lines):
        np.testing.assert_array_equal(line.get_xdata(), series.epochs)
        np.testing.assert_array_equal(line.get_ydata(), series.epoch("rms")[:, i])
    low, high = ax.get_ylim()
    assert low < series.epoch("rms").min()
    assert high > series.epoch("rms").max()
    assert {text.get_text() for text in ax.texts} == set(series.names)


def test_layers_and_epochs_are_chosen():
    series = synthetic(6, 20)["weights"]
    ax = norm(series, layers="*/kernel", iterations=slice(5, 8))
    assert [line.get_label() for line in ax.lines] == [n for n in series.names if n.endswith("kernel")]
    assert ax.lines[0].get_xdata().tolist() == [5, 6, 7]


def test_one_tensor_and_one_epoch():
    recording = Recording()
    recording.add_epoch("weights", 7, ["a"], [(2, 2)], {"rms": [0.5]})
    ax = norm(recording["weights"].sel("a"))
    assert ax.lines[0].get_ydata().tolist() == [0.5, 0.5]
    assert ax.get_title(loc="left") == "weights: rms 0.5"
    low, high = ax.get_xlim()
    assert low < 7 < high


def test_of_many_only_the_ends_are_named():
    ax = norm(synthetic(160, 3)["weights"])
    assert len(ax.lines) == 320
    assert len(ax.texts) <= 6
