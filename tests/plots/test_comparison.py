import numpy as np
import pytest

from keras_introspect.plots import comparison
from keras_introspect.recording import Recording
from plots.synthetic import synthetic


def panel(figure, what):
    (ax,) = [ax for ax in figure.axes if ax.get_title(loc="left").split(":")[0] == what]
    return ax


def test_every_run_has_a_line_on_the_same_axes():
    runs = {"a": synthetic(3, 10), "b": synthetic(3, 5, sick=True, seed=1)}
    figure = comparison(runs)
    for what in ("loss", "val_loss", "accuracy", "worst dead rate", "rms of gradients, median layer"):
        assert [line.get_label() for line in panel(figure, what).lines] == ["a", "b"]
    first, second = panel(figure, "rms of weights, median layer").lines
    for name, line in (("a", first), ("b", second)):
        rms = runs[name]["weights"].sel("*kernel").epoch("rms")
        np.testing.assert_allclose(line.get_ydata(), np.median(rms, axis=1))
    assert len({line.get_linestyle() for line in (first, second)}) == 2
    assert panel(figure, "worst dead rate").get_title(loc="left") == "worst dead rate: 0 % … 90 %"


def test_runs_without_names_are_numbered():
    ax = comparison([synthetic(2, 3), synthetic(2, 3, seed=1)]).axes[0]
    assert [line.get_label() for line in ax.lines] == ["run 1", "run 2"]


def test_a_run_lacks_what_it_lacks():
    figure = comparison([synthetic(2, 3, views=("weights",)), synthetic(2, 3, views=("gradients",))])
    assert [line.get_label() for line in panel(figure, "rms of gradients, median layer").lines] == ["run 2"]
    assert not any(ax.get_title(loc="left").startswith("worst dead") for ax in figure.axes)


def test_a_diverged_run_says_so():
    texts = [text.get_text() for text in panel(comparison([synthetic(2, 9), synthetic(2, 9, sick=True)]), "loss").texts]
    assert any(text.startswith("run 1 0.") for text in texts)
    assert "run 2 not finite" in texts


def test_validation_of_every_second_epoch_is_one_line():
    runs = [Recording(), Recording()]
    for run in runs:
        for epoch in range(4):
            run.add_logs(epoch, {"loss": 1.0} | ({"val_loss": float(epoch)} if epoch % 2 else {}))
    assert panel(comparison(runs), "val_loss").lines[0].get_xdata().tolist() == [1, 3]


@pytest.mark.parametrize("count", [0, 1, 6])
def test_two_to_five(count):
    with pytest.raises(ValueError, match=f"got {count} recordings; expected two to five"):
        comparison([synthetic(1, 1)] * count)


def test_one_of_them_is_no_recording():
    with pytest.raises(ValueError, match="got a str; expected a Recording"):
        comparison([synthetic(1, 1), "run.npz"])


def test_a_shorter_run_is_drawn_as_far_as_it_goes():
    figure = comparison([synthetic(2, 9), synthetic(2, 4)], iterations=range(2, 7))
    first, second = panel(figure, "rms of weights, median layer").lines
    assert (first.get_xdata().tolist(), second.get_xdata().tolist()) == ([2, 3, 4, 5, 6], [2, 3])
    assert panel(figure, "loss").lines[1].get_xdata().tolist() == [2, 3]
