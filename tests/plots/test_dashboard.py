import numpy as np
import pytest

from keras_introspect.diagnosis import Diagnosis, Finding, diagnose
from keras_introspect.plots import dashboard
from keras_introspect.plots._draw import RED
from keras_introspect.recording import Recording
from plots.synthetic import VIEWS, synthetic


def titles(figure):
    return [ax.get_title(loc="left") for ax in figure.axes]


def words(figure):
    return " | ".join(text.get_text() for ax in figure.axes for text in ax.texts)


def test_a_row_a_view():
    figure = dashboard(synthetic(6, 20))
    assert len(figure.axes) == 3 + 3 * len(VIEWS)
    for view in VIEWS:
        assert any(title.startswith(f"{view}:") for title in titles(figure))


def test_views_that_are_missing_have_no_row():
    figure = dashboard(synthetic(6, 20, views=("gradients",)))
    assert len(figure.axes) == 3 + 3
    assert not any(title.startswith("weights") for title in titles(figure))


def test_logs_alone_are_enough():
    figure = dashboard(synthetic(6, 20, views=()))
    assert titles(figure)[0].startswith("loss 2")
    assert "only Keras's logs were recorded: no tensors." in words(figure)
    assert 'collectors="default"' in words(figure)


def test_a_run_that_kept_the_batches_losses_alone_says_how_to_see_more():
    text = words(dashboard(synthetic(6, 4, views=(), steps=5)))
    assert "only Keras's logs and the batches' losses were recorded: no tensors." in text
    assert 'collectors="default"' in text


def test_no_logs_are_said():
    recording = Recording()
    recording.add_epoch("weights", 0, ["a"], [(2, 2)], {"rms": [1.0]})
    assert "no logs" in words(dashboard(recording))


def test_a_healthy_run_says_that_nothing_was_found_and_what_was_looked_at():
    recording = synthetic(6, 20)
    figure = dashboard(recording)
    assert diagnose(recording).headline in titles(figure)
    assert any(title.startswith("Nothing wrong was found") for title in titles(figure))
    assert f"{len(diagnose(recording).judged)} kinds of faults looked for" in words(figure)
    assert "no non-finite value in 5 views" in words(figure)


def test_a_sick_run_names_what_is_wrong_and_where_to_look_next():
    recording = synthetic(6, 20, sick=True)
    figure = dashboard(recording)
    found = diagnose(recording)
    assert found.headline in titles(figure)
    for finding in found.alarms:
        assert finding.kind.replace("_", " ") in words(figure)
        assert finding.where[0] in words(figure)
        assert finding.summary[:70].rsplit(" ", 1)[0] in words(figure)
    assert "Open next: conv_2/bias in gradients" in words(figure)
    assert "worst dead rate 90 % (conv_1)" in titles(figure)


def test_long_names_stay_on_the_page():
    recording = synthetic(160, 6, sick=True)
    gradients = recording["gradients"]
    values = {"rms": np.ones(320), "activation_rate": np.full(320, 0.9), "dead_rate": np.full(320, 0.5)}
    recording.add_epoch("gradients", 6, gradients.names, gradients.shapes, values)
    recording.add_logs(6, {"loss": 1.0})
    figure = dashboard(recording)
    assert "not 0, mean" in words(figure)
    figure.draw_without_rendering()
    page = figure.bbox
    for ax in figure.axes:
        for text in [*ax.texts, ax._left_title]:
            if text.get_text():
                assert text.get_window_extent().x1 <= page.x1, text.get_text()
    assert " % of the units of stage_0/block_1_bot…_long_name were zero" in words(figure)


def test_the_bands_are_those_of_the_layers():
    recording = synthetic(6, 20)
    (ax,) = [ax for ax in dashboard(recording).axes if ax.get_title(loc="left").startswith("layer_outputs")]
    rms = recording["layer_outputs"].epoch("rms")
    np.testing.assert_allclose(ax.lines[0].get_ydata(), np.median(rms, axis=1))
    outer = ax.collections[0].get_paths()[0].vertices[:, 1]
    assert (outer.min(), outer.max()) == (pytest.approx(rms.min()), pytest.approx(rms.max()))


def test_the_update_ratio_has_its_mark():
    (ax,) = [
        ax
        for ax in dashboard(synthetic(6, 20)).axes
        if "1e-3" in ax.get_title(loc="left") and "ratio" in ax.get_title(loc="left")
    ]
    assert any(np.allclose(line.get_ydata(), 1e-3) for line in ax.lines)


def test_layers_choose_the_rows():
    figure = dashboard(synthetic(6, 20), layers="conv_1")
    assert [t.split(":")[0] for t in titles(figure) if ": 1 tensor" in t] == ["layer_outputs", "output_gradients"]
    assert len(figure.axes) == 3 + 6


def test_a_view_without_rms_says_so():
    recording = Recording()
    values = {"activation_rate": [0.5], "dead_rate": [0.0]}
    recording.add_epoch("layer_outputs", 0, ["a"], [(None, 4)], values)
    assert "rms was not collected" in words(dashboard(recording))


def test_a_view_of_another_name_has_its_row():
    recording = synthetic(2, 3)
    for epoch in range(3):
        recording.add_epoch("val_layer_outputs", epoch, ["a"], [(None, 4)], {"rms": [1.0]})
    assert any(title.startswith("val_layer_outputs: 1 tensor,") for title in titles(dashboard(recording)))


def test_nothing_of_a_view_overlaps_another():
    """Axes keep to their place: no two of them share any of the page."""
    boxes = [ax.get_position() for ax in dashboard(synthetic(6, 20)).axes]
    for i, first in enumerate(boxes):
        assert not any(first.overlaps(second) for second in boxes[i + 1 :])
        assert 0 <= first.x0 < first.x1 <= 1
        assert 0 <= first.y0 < first.y1 <= 1


def test_a_view_that_is_rarer_than_epochs_is_drawn_where_it_has_values():
    recording = synthetic(2, 6)
    for epoch in (1, 3, 5):
        recording.add_epoch("val_layer_outputs", epoch, ["a"], [(None, 4)], {"rms": [1.0]})
    (ax,) = [ax for ax in dashboard(recording, iterations=[0, 1, 2, 3]).axes if "val_layer" in ax.get_title(loc="left")]
    assert ax.lines[0].get_xdata().tolist() == [1, 3]
    assert not any("val_layer" in title for title in titles(dashboard(recording, iterations=[0, 2])))


BANDS = ["smallest", "25 %", "median", "75 %", "largest"]


def test_the_bands_are_named_once():
    figure = dashboard(synthetic(6, 20))
    named = [ax for ax in figure.axes if [text.get_text() for text in ax.texts] == BANDS]
    assert [ax.get_title(loc="left").split(":")[0] for ax in named] == ["weights"]
    assert "75 %" not in words(dashboard(synthetic(1, 3, views=("layer_outputs",))))  # one tensor has no bands


def finding(summary, suggestion="lower the rate", where=("conv_0",)):
    return Finding("dead_units", "error", summary, where, 0, suggestion=suggestion, view="gradients")


def test_a_finding_takes_the_room_that_is_there(monkeypatch):
    long = " ".join(f"word{i}" for i in range(60))
    for count, whole in ((1, True), (6, False)):
        found = Diagnosis([finding(long)] * count, judged=("dead_units",))
        monkeypatch.setitem(dashboard.__globals__, "diagnose", lambda _, found=found: found)
        figure = dashboard(synthetic(6, 4))
        ax = figure.axes[2]
        texts = [text.get_text() for text in ax.texts]
        assert ("word59" in " ".join(texts)) is whole
        assert any(text.endswith("…") for text in texts) is not whole
        assert any(text.startswith("Try: lower the rate") for text in texts) is whole
        assert texts[-1].endswith("Open next: conv_0 in gradients")
        figure.draw_without_rendering()
        boxes = [text.get_window_extent() for text in ax.texts]
        below = min(row.get_tightbbox().y1 for row in figure.axes[3:])
        assert min(box.y0 for box in boxes) > figure.axes[5]._left_title.get_window_extent().y1 > 0
        assert max(box.x1 for box in boxes) <= figure.bbox.x1
        assert below > 0


def test_an_empty_summary_is_drawn(monkeypatch):
    monkeypatch.setitem(dashboard.__globals__, "diagnose", lambda _: Diagnosis([finding("")]))
    assert "Open next" in words(dashboard(synthetic(6, 4)))


@pytest.mark.parametrize("first", [0, 2])
def test_a_row_in_which_nothing_is_finite_is_red_as_the_others_are(first):
    recording, model = Recording(), synthetic(3, 4)
    for epoch in range(4):
        recording.add_logs(epoch, {"loss": 1.0})
        for view, series in model.items():
            values = {key: np.array(series.epoch(key)[epoch]) for key in ("rms", "nonfinite")}
            if epoch >= first:
                values = {"rms": np.full(len(series), np.nan), "nonfinite": np.full(len(series), 9.0)}
            recording.add_epoch(view, epoch, series.names, series.shapes, values)
    rows = [ax._left_title for ax in dashboard(recording).axes if ax.get_title(loc="left").split(":")[0] in VIEWS]
    assert len(rows) == len(VIEWS)
    for title in rows:
        assert title.get_text().endswith("none finite in epoch 3")
        assert title.get_color() == RED
