"""The dashboard while the model trains: in files and in a notebook, and never in the way of the training."""

import os
import sys
import warnings
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import keras_introspect as ki
from keras_introspect.callbacks import LiveDashboard, live_dashboard


def fit(callback: Any, epochs: int = 2, **keywords: Any) -> Any:
    """Two epochs of something tiny, eagerly: tracing takes longer."""
    model = ki.IntrospectiveSequential(
        [keras.Input((4,)), keras.layers.Dense(2, "relu", name="a"), keras.layers.Dense(1)]
    )
    model.compile("sgd", "mse", collectors="economy", run_eagerly=True)
    callbacks = callback if isinstance(callback, list) else [callback]
    model.fit(np.ones((8, 4)), np.ones((8, 1)), epochs=epochs, verbose=0, callbacks=callbacks, **keywords)
    return model


class Drawn(LiveDashboard):
    """Notes which epochs were drawn, instead of drawing; each takes `seconds` of a clock that the test turns."""

    def __init__(self, path: Path, seconds: float, **keywords: Any) -> None:
        super().__init__(path, **keywords)
        self.seconds, self.epochs = seconds, []

    def _picture(self, kind: str) -> bytes:
        Clock.now += self.seconds
        self.epochs.append(int(self.recording.epochs[-1]))
        return b""


class Clock:
    now = 0.0

    @classmethod
    def perf_counter(cls) -> float:
        return cls.now


def trained(callback: Drawn, epochs: int, minutes: float) -> list[int]:
    """The epochs drawn of a training whose epochs take so many minutes."""

    class Train(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            Clock.now += 60 * minutes

    fit([Train(), callback], epochs)
    return callback.epochs


@pytest.mark.parametrize(
    ("ending", "starts"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF"), ("html", b"<!DOCTYPE html>")]
)
def test_writes_a_file_after_each_epoch(tmp_path: Path, ending: str, starts: bytes) -> None:
    if ending == "html":
        pytest.importorskip("jinja2")
    path, seen = tmp_path / "new" / f"live.{ending}", []

    class Look(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            seen.append(path.read_bytes())

    fit([LiveDashboard(path, budget=None), Look()])
    assert len(seen) == 2
    assert all(content.startswith(starts) for content in seen)
    assert seen[0] != seen[1]
    assert os.listdir(path.parent) == [path.name]
    if ending == "html":
        assert b'http-equiv="refresh"' in seen[-1]
        assert b'http-equiv="refresh"' not in path.read_bytes()  # the training is over
        assert b'id="table"' in path.read_bytes()


def test_sees_the_epoch_that_just_ended(tmp_path: Path) -> None:
    callback = Drawn(tmp_path / "live.png", 0.0)
    fit(callback, 3)
    assert callback.epochs == [0, 1, 2]


def test_every(tmp_path: Path) -> None:
    callback = Drawn(tmp_path / "live.png", 0.0, every=2)
    fit(callback, 5)
    assert callback.epochs == [1, 3, 4]  # the last epoch always


def test_takes_two_percent_of_an_epoch_a_minute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_dashboard, "time", Clock)
    assert trained(Drawn(tmp_path / "a.png", 1.2), 20, minutes=1) == list(range(20))
    slow = trained(Drawn(tmp_path / "b.png", 6.0), 40, minutes=1)
    assert slow[0] == 0
    assert slow[-1] == 39
    assert len(slow) * 6.0 <= 5 + 6 + 6 + 0.02 * 40 * 66  # the allowance, the one that oversteps it, and the last
    quick = trained(Drawn(tmp_path / "c.png", 1.0), 50, minutes=1 / 600)
    assert quick[:5] == list(range(5))
    assert len(quick) < 10
    every = trained(Drawn(tmp_path / "d.png", 1.0, budget=None), 20, minutes=1 / 600)
    assert every == list(range(20))


def test_shows_and_updates_one_display_in_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("IPython")
    from IPython.core import getipython
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.utils.capture import capture_output

    shell = InteractiveShell.instance()
    try:
        assert getipython.get_ipython() is shell
        with capture_output() as shown:
            fit(LiveDashboard(), 3)
    finally:
        InteractiveShell.clear_instance()
    assert [output.update for output in shown.outputs] == [False, True, True]
    assert len({output.transient["display_id"] for output in shown.outputs}) == 1
    assert all("image/png" in output.data for output in shown.outputs)


def test_without_a_notebook_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ImportError, match=r'LiveDashboard\("dashboard.png"\)'):
        LiveDashboard()
    monkeypatch.setitem(sys.modules, "IPython.core.getipython", None)
    with pytest.raises(ImportError, match="needs IPython, which is not installed"):
        LiveDashboard()


def test_a_page_without_jinja2_fails_before_the_training(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ImportError, match=r"keras-introspect\[report\]"):
        LiveDashboard(tmp_path / "live.html")


def test_a_write_that_fails_warns_once_and_the_training_ends_as_it_would(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a file stands where a folder would have to")
    with pytest.warns(UserWarning, match=r"LiveDashboard cannot write .* The training goes on") as told:
        model = fit(LiveDashboard(tmp_path / "file" / "live.png"), 4)
    assert len(told) == 1
    assert len(model.recording.epochs) == 4


def test_a_full_disk_leaves_the_last_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "live.png"
    write, writes = live_dashboard.write_atomically, []

    def fill(target: Path, content: bytes) -> None:
        writes.append(content)
        if len(writes) > 1:
            raise OSError(28, "No space left on device")
        write(target, content)

    monkeypatch.setattr(live_dashboard, "write_atomically", fill)
    with pytest.warns(UserWarning, match="No space left on device") as told:
        fit(LiveDashboard(path), 3)
    assert len(told) == 1
    assert len(writes) == 3  # tried again after each epoch
    assert path.read_bytes() == writes[0]


def test_mistakes_are_told_before_the_training(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"expected a file that ends in \.png, \.svg"):
        LiveDashboard(tmp_path / "live.bmp")
    for every in (0, 1.5, True):
        with pytest.raises(ValueError, match="expected a whole number"):
            LiveDashboard(tmp_path / "live.png", every=every)
    with pytest.raises(ValueError, match="expected a share"):
        LiveDashboard(tmp_path / "live.png", budget=2)
    plain = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    plain.compile("sgd", "mse", run_eagerly=True)
    with pytest.raises(ValueError, match="given to a Sequential, which records nothing"):
        plain.fit(np.ones((8, 4)), np.ones((8, 1)), verbose=0, callbacks=[LiveDashboard(tmp_path / "live.png")])
    blind = ki.instrument(plain)
    blind.compile("sgd", "mse", run_eagerly=True)
    with pytest.raises(ValueError, match="compiled without collectors"):
        blind.fit(np.ones((8, 4)), np.ones((8, 1)), verbose=0, callbacks=[LiveDashboard(tmp_path / "live.png")])


def test_leaves_the_weights_as_they_would_be(tmp_path: Path) -> None:
    weights = []
    for callbacks in ([], [LiveDashboard(tmp_path / "live.png")]):
        keras.utils.set_random_seed(1)
        weights.append(fit(callbacks).get_weights())
    for one, other in zip(*weights, strict=True):
        np.testing.assert_array_equal(one, other)


def test_public_names() -> None:
    assert ki.callbacks.LiveDashboard is LiveDashboard
    assert ki.callbacks.__all__ == ["Alerts", "IntrospectionTensorBoard", "LiveDashboard"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "callbacks" in dir(ki)
