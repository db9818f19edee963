"""Biases, scales and embeddings among kernels: where a picture means layers, they are not drawn or judged as such."""

import numpy as np
import pytest

from keras_introspect.plots import (
    comparison,
    dashboard,
    distribution_board,
    norm,
    scale_lines,
    scale_stack,
    update_board,
)
from keras_introspect.plots._data import Chosen, kernel_rows
from keras_introspect.recording import Recording

# The variables of an attention block: biases of heads, and scales over two axes, have as many axes as a kernel.
SHAPES = {
    "embedding/embeddings": (1000, 16),
    "query/kernel": (16, 2, 8),
    "query/bias": (2, 8),
    "norm/gamma": (4, 16),
    "norm/beta": (4, 16),
    "lstm/lstm_cell/recurrent_kernel": (16, 64),
    "gru/gru_cell/bias": (2, 48),
    "prelu/alpha": (4, 16),
    "head/kernel": (16, 10),
    "head/bias": (10,),
}
KERNELS = ["query/kernel", "lstm/lstm_cell/recurrent_kernel", "head/kernel"]
ROWS = [list(SHAPES).index(name) for name in KERNELS]
LEVELS = [0, 50, 100]


def attention(epochs: int = 3) -> Recording:
    """Kernels of like size; what stands between them is a hundred to a million times as large or small."""
    size = np.full(len(SHAPES), 1e-4)
    size[::2] = 10.0
    size[ROWS] = (1.0, 2.0, 4.0)
    recording = Recording()
    for epoch in range(epochs):
        recording.add_logs(epoch, {"loss": 1.0 / (epoch + 1)})
        for view in ("weights", "gradients", "updates"):
            values = {
                "rms": size,
                "quantiles": size[:, None] * [-1.0, 0.0, 1.0],
                "magnitude_quantiles": size[:, None] * [0.1, 1.0, 2.0],
            }
            if view == "updates":
                values["update_ratio"] = size * 1e-3
            recording.add_epoch(view, epoch, list(SHAPES), list(SHAPES.values()), values, quantile_levels=LEVELS)
    return recording


def titled(figure, start):
    (ax,) = [ax for ax in figure.axes if ax.get_title(loc="left").startswith(start)]
    return ax


@pytest.mark.parametrize("view", ["weights", "gradients", "updates"])
def test_lines_and_stack_are_of_the_kernels_and_say_so(view):
    series = attention()[view]
    lines = scale_lines(series)
    assert lines.lines[-1].get_ydata().tolist() == [1.0, 2.0, 4.0]
    assert lines.get_title(loc="left") == "first/last layer 0.25, spread ×4 (kernels)"
    stack = scale_stack(series)
    assert len(stack.collections[0].get_paths()) == 3
    assert stack.get_title(loc="left") == "rms ×4 from query/kernel to head/kernel (kernels)"


def test_all_are_drawn_where_they_are_asked_for():
    series = attention()["gradients"]
    assert len(scale_lines(series, layers="*").lines[0].get_ydata()) == len(SHAPES)
    assert len(scale_stack(series, layers="*").collections[0].get_paths()) == len(SHAPES)
    assert scale_stack(series, layers="*bias").get_title(loc="left") == "rms ×1e5 from head/bias to query/bias"
    assert len(scale_stack(series.sel("*bias")).collections[0].get_paths()) == 3  # no kernel is among them
    board = distribution_board(series, layers=["query/*", "head/*"])
    assert len(board.axes[1].collections[0].get_paths()) == 4
    assert board.axes[0].get_title(loc="left").startswith("gradients: 4 tensors, ")


def test_the_epochs_chosen_stay_chosen():
    chosen = Chosen(attention(5)["gradients"], "test", iterations=(i for i in (1, 3)))
    assert chosen.kernels().epochs.tolist() == [1, 3]
    assert chosen.kernels().names == tuple(KERNELS)


def test_the_board_has_a_panel_for_each_and_judges_the_kernels():
    top, stack, *small = distribution_board(attention()["gradients"]).axes
    assert len(small) == len(SHAPES)
    assert top.get_title(loc="left") == "gradients: 3 kernels of 10 tensors, median magnitude 1 … 4"
    np.testing.assert_array_equal(top.lines[0].get_ydata(), [2.0] * 3)
    assert len(stack.collections[0].get_paths()) == 3


def test_only_a_kernel_is_red_for_its_step():
    recording = attention()
    top, *small = update_board(recording).axes
    assert top.get_title(loc="left") == "update-to-weight ratio of 3 kernels of 10 variables: 1e-3 … 4e-3"
    ratio = np.full(len(SHAPES), 0.5)
    recording.add_epoch("updates", 3, list(SHAPES), list(SHAPES.values()), {"update_ratio": ratio})
    _, *small = update_board(recording).axes
    red = [ax.get_title(loc="left") for ax in small if ax.texts[1].get_fontweight() == "bold"]
    assert red == [ax.get_title(loc="left") for ax, name in zip(small, SHAPES, strict=True) if name in KERNELS]


def test_the_dashboard_compares_kernels():
    figure = dashboard(attention())
    for view in ("weights", "gradients", "updates"):
        ax = titled(figure, f"{view}:")
        assert ax.get_title(loc="left") == f"{view}: 3 kernels of 10 tensors, median rms 2"
        outer = ax.collections[0].get_paths()[0].vertices[:, 1]
        assert (outer.min(), outer.max()) == (1.0, 4.0)
    assert (
        titled(figure, "update-to-weight ratio").get_title(loc="left").startswith("update-to-weight ratio, median 2e-3")
    )


def test_runs_are_compared_by_their_kernels():
    figure = comparison([attention(), attention()])
    assert set(titled(figure, "rms of gradients").lines[0].get_ydata()) == {2.0}


def test_of_the_norms_those_of_kernels_are_solid():
    lines = {line.get_label(): line.get_linestyle() for line in norm(attention()["weights"]).lines}
    assert [name for name, style in lines.items() if style == "-"] == KERNELS
    assert {style for name, style in lines.items() if name not in KERNELS} == {":"}


def test_outputs_are_all_taken():
    shapes = [(None, 8), (None,), (None, 4)]
    assert kernel_rows("layer_outputs", ["a", "b", "c"], shapes) is None
    assert kernel_rows("output_gradients", ["a", "b_bias", "c"], [(4, 8), (8,), (4, 2)]) is None  # of a fixed batch
    assert kernel_rows("of_my_own", ["a/kernel", "a/bias", "b/kernel"], [(4, 8), (8,), (8, 2)]) == [0, 2]
    assert kernel_rows("weights", ["a/kernel", "a/bias"], [(4, 8), (8,)]) is None  # one: there is nothing to compare
