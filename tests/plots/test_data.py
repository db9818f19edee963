import itertools

import numpy as np
import pytest

from keras_introspect.plots._data import (
    Chosen,
    latest,
    more_is_better,
    number,
    over_layers,
    percent,
    rows_of,
    shape_text,
    shorten,
)
from keras_introspect.plots._draw import apart, spread
from plots.synthetic import names_of, synthetic


@pytest.mark.parametrize(
    ("iterations", "expected"),
    [
        (None, [0, 1, 2, 3]),
        (slice(-2, None), [2, 3]),
        (slice(None, None, 2), [0, 2]),
        (range(6, 100), [1, 2, 3]),
        ([5, 8], [0, 3]),
        ([np.int64(8)], [3]),
        ((i for i in (5, 6)), [0, 1]),
    ],
)
def test_epochs_are_chosen_by_position_or_by_number(iterations, expected):
    assert rows_of(np.arange(5, 9), iterations).tolist() == expected


@pytest.mark.parametrize(
    ("iterations", "message"),
    [
        (slice(9, None), "chooses no epoch; recorded are 4 epochs, 5 to 8"),
        (range(3), "chooses no epoch"),
        ([], "chooses no epoch"),
        ([4], "epoch 4 was not recorded"),
        (3, "expected a slice, a range or a list"),
        ("all", "expected a slice, a range or a list"),
        ([1.5], "expected epoch numbers"),
    ],
)
def test_a_wrong_choice_of_epochs_is_refused(iterations, message):
    with pytest.raises(ValueError, match=message):
        rows_of(np.arange(5, 9), iterations)


def test_very_many_epochs_are_thinned_with_the_ends_kept():
    rows = rows_of(np.arange(100_000), None)
    assert (len(rows), rows[0], rows[-1]) == (1000, 0, 99_999)


def test_one_tensor_and_many_have_the_same_axes():
    series = synthetic(3, 4)["gradients"]
    one = Chosen(series.sel("conv_0/kernel"), "test")
    assert one.epoch("rms").shape == (4, 1)
    assert one.epoch("quantiles").shape == (4, 1, 9)
    assert Chosen(series, "test", iterations=[1, 3]).epoch("quantiles").shape == (2, 6, 9)
    assert Chosen(series, "test", layers="conv_*").names == tuple(n for n in series.names if n.startswith("conv_"))


def test_a_root_that_all_paths_share_is_left_out_first():
    names = ["sequential_1/dense_0/kernel", "sequential_1/dense_1/kernel", "act"]
    assert shorten(names, 18) == ["…dense_0/kernel", "…dense_1/kernel", "act"]
    assert shorten([*names, "other/dense_0/kernel"], 18)[0] != "…dense_0/kernel"


def test_short_names_stay_different():
    for names, width in itertools.product(
        [names_of(160), ["a" * 30 + "1" + "b" * 30, "a" * 30 + "2" + "b" * 30]], (8, 16, 24)
    ):
        short = shorten(names, width)
        assert len(set(short)) == len(names)
        assert max(map(len, short)) < max(map(len, names))
    assert shorten(["conv", "conv"], 3) == ["c…v", "c…v"] or len(set(shorten(["conv", "conv"], 3))) == 1
    assert shorten([], 8) == []


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.00123, "1.2e-3"),
        (np.nextafter(0.01, 0), "0.01"),
        (0.001, "1e-3"),
        (12.34, "12.3"),
        (0, "0"),
        (1e7, "1e7"),
        (1234.5, "1,234"),
        (np.nan, "none"),
    ],
)
def test_numbers_are_short(value, text):
    assert number(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0 %"), (0.004, "<1 %"), (0.25, "25 %"), (0.999, ">99 %"), (1, "100 %"), (np.nan, "none")]
)
def test_percent_never_rounds_something_to_nothing(value, text):
    assert percent(value) == text


def test_shapes_are_written_without_the_batch():
    assert shape_text((None, 28, None, 3)) == "28×?×3"
    assert shape_text((3, 3)) == "3×3"
    assert shape_text(()) == shape_text((None,)) == "scalar"


def test_percentiles_over_layers_pass_over_gaps():
    values = np.array([[1.0, 3.0, np.nan], [np.nan] * 3, [2.0, 2.0, 2.0]])
    np.testing.assert_array_equal(over_layers(values, (0, 50, 100)).T, [[1, 2, 3], [np.nan] * 3, [2, 2, 2]])
    np.testing.assert_array_equal(latest(values), [2, 2, 2])


def test_epochs_that_stand_alone_are_widened():
    x, y = spread(np.arange(4), np.array([1.0, np.nan, 3.0, 4.0]))
    np.testing.assert_allclose(x, [-0.4, 0.4, 1, 2, 3])
    np.testing.assert_array_equal(y, [1, 1, np.nan, 3, 4])


def test_labels_are_moved_apart_in_their_order():
    y = apart(np.array([0.5, 0.5, 1.0, 0.98]), 0.1)
    assert np.diff(np.sort(y)).min() >= 0.1 - 1e-12
    assert y.argsort(kind="stable").tolist() == [0, 1, 3, 2]
    assert (y >= 0).all()
    assert (y <= 1).all()


# As Keras names its metrics by default, and as its users name theirs.
_MORE = """accuracy acc val_accuracy binary_accuracy sparse_categorical_accuracy top_k_categorical_accuracy top_5 top1
AUC auc_2 roc_auc prc precision recall_1 precision_at_recall sensitivity_at_specificity true_positives true_negatives
f1_score fbeta_score binary_io_u mean_io_u meanIoU one_hot_mean_io_u r2_score cosine_similarity pearson_correlation
loss_head_accuracy neg_mean_squared_error ndcg@10 retrieval/recall explained_variance"""
_LESS = """loss val_loss head_loss mse mae_1 mean_squared_error root_mean_squared_error mean_absolute_percentage_error
mean_squared_logarithmic_error binary_crossentropy cross_entropy kl_divergence poisson hinge squared_hinge log_cosh
false_positives false_negatives false_positive_rate top_5_error accuracy_loss negative_log_likelihood perplexity"""


@pytest.mark.parametrize(("names", "more"), [(_MORE, True), (_LESS, False)])
def test_the_name_of_a_metric_tells_whether_more_is_better(names, more):
    assert {name: more_is_better(name) for name in names.split()} == dict.fromkeys(names.split(), more)


@pytest.mark.parametrize("name", ["mean", "sum", "gradient_norm", "temperature", "entropy", "seconds", "top_layer", ""])
def test_other_names_do_not_tell(name):
    assert more_is_better(name) is None
