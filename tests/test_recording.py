import io
import json
import os
import random
import subprocess
import sys
import tracemalloc
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_introspect.errors import UnknownNameError
from keras_introspect.npz import write_npz
from keras_introspect.recording import FORMAT_VERSION, Recording, Series

NAMES = ["conv1/kernel", "conv1/bias", "dense/kernel"]
SHAPES = [(3, 3, 1, 4), (4,), (None, 10)]
LEVELS = [0, 50, 100]


def full_recording() -> Recording:
    """A recording with something in each of its parts."""
    rng = np.random.default_rng(1)
    recording = Recording()
    for epoch in range(3):
        recording.add_logs(epoch, {"loss": 1.0 / (epoch + 1), "val_loss": 2.0})
        recording.add_epoch(
            "gradients",
            epoch,
            NAMES,
            SHAPES,
            {"rms": rng.random(3), "quantiles": rng.random((3, 3))},
            quantile_levels=LEVELS,
        )
        recording.add_epoch(
            "layer_outputs",
            epoch,
            ["conv1", "dense"],
            [(None, 8, 8, 4), (None, 10)],
            {"dead_rate": rng.random(2)},
            units={"activation_rate": {"conv1": rng.random(4), "dense": rng.random(10)}},
        )
        steps = np.arange(epoch * 4, epoch * 4 + 4)
        recording.add_steps("gradients", steps, NAMES, SHAPES, {"rms": rng.random((4, 3))})
    recording.unobserved = {"rnn/cell": "inside a while loop"}
    recording.metadata = {"keras": "3.15", "collectors": [{"name": "gradients", "every": 1}], "nothing": None}
    return recording


def assert_same(a: Recording, b: Recording) -> None:
    assert list(a) == list(b)
    assert repr(a) == repr(b)
    np.testing.assert_array_equal(a.epochs, b.epochs)
    assert list(a.logs) == list(b.logs)
    for name, values in a.logs.items():
        np.testing.assert_array_equal(values, b.logs[name])
    assert a.unobserved == b.unobserved
    assert a.metadata == b.metadata
    for view in a:
        x, y = a[view], b[view]
        for attribute in ("view", "names", "shapes", "statistics", "step_statistics", "unit_statistics", "_single"):
            assert getattr(x, attribute) == getattr(y, attribute), attribute
        np.testing.assert_array_equal(x.epochs, y.epochs)
        np.testing.assert_array_equal(x.steps, y.steps)
        assert (x.quantile_levels is None) == (y.quantile_levels is None)
        if x.quantile_levels is not None:
            np.testing.assert_array_equal(x.quantile_levels, y.quantile_levels)
        for statistic in x.statistics:
            np.testing.assert_array_equal(x.epoch(statistic), y.epoch(statistic))
        for statistic in x.step_statistics:
            np.testing.assert_array_equal(x.step(statistic), y.step(statistic))
        for statistic in x.unit_statistics:
            assert list(x.unit(statistic)) == list(y.unit(statistic))
            for name, values in x.unit(statistic).items():
                np.testing.assert_array_equal(values, y.unit(statistic)[name])


class TestSeries:
    def test_shapes_and_types(self):
        series = full_recording()["gradients"]
        assert series.names == tuple(NAMES)
        assert series.shapes == tuple(SHAPES)
        assert len(series) == 3
        assert series.epochs.tolist() == [0, 1, 2]
        assert series.steps.tolist() == list(range(12))
        assert series.epochs.dtype == series.steps.dtype == np.int64
        assert series.epoch("rms").shape == (3, 3)
        assert series.epoch("rms").dtype == np.float64
        assert series.epoch("quantiles").shape == (3, 3, 3)
        assert series.step("rms").shape == (12, 3)
        assert series.quantile_levels.tolist() == LEVELS
        assert series.statistics == ("rms", "quantiles")
        assert series.step_statistics == ("rms",)
        assert "3 tensors, 3 epochs, 12 steps; rms, quantiles" in repr(series)

    def test_units(self):
        units = full_recording()["layer_outputs"].unit("activation_rate")
        assert {name: values.shape for name, values in units.items()} == {"conv1": (3, 4), "dense": (3, 10)}

    def test_sizes_of_any_integer_type_are_kept_as_int(self):
        recording = Recording()
        recording.add_epoch("weights", 0, ["a"], [[np.int64(2), None]], {})
        assert Recording.from_bytes(recording.to_bytes())["weights"].shapes == ((2, None),)

    @pytest.mark.parametrize("of", ["epoch", "step"])
    def test_unknown_statistic(self, of):
        with pytest.raises(UnknownNameError, match=r"statistic of 'gradients' as an? .* series: 'rsm'.*mean 'rms'"):
            getattr(full_recording()["gradients"], of)("rsm")

    def test_missing_series_say_how_to_have_them(self):
        recording = full_recording()
        with pytest.raises(UnknownNameError, match="per_step=True"):
            recording["layer_outputs"].step("rms")
        with pytest.raises(UnknownNameError, match="per_unit"):
            recording["gradients"].unit("mean")
        with pytest.raises(UnknownNameError, match="mean 'activation_rate'"):
            recording["layer_outputs"].unit("activation")


class TestSel:
    def test_one_name_drops_the_axis(self):
        series = full_recording()["gradients"]
        one = series.sel("dense/kernel")
        assert one.names == ("dense/kernel",)
        assert one.shapes == ((None, 10),)
        np.testing.assert_array_equal(one.epoch("rms"), series.epoch("rms")[:, 2])
        np.testing.assert_array_equal(one.epoch("quantiles"), series.epoch("quantiles")[:, 2])
        np.testing.assert_array_equal(one.step("rms"), series.step("rms")[:, 2])

    @pytest.mark.parametrize(
        ("names", "index"),
        [
            ("conv*", [0, 1]),
            ("*/kernel", [0, 2]),
            (["dense/kernel"], [2]),
            (["dense/kernel", "conv1/bias"], [2, 1]),
            (["*/bias", "conv*"], [1, 0]),
            (("conv*", "conv1/bias"), [0, 1]),
            ([], []),
        ],
    )
    def test_globs_and_lists_keep_the_axis_and_the_order_asked_for(self, names, index):
        series = full_recording()["gradients"]
        chosen = series.sel(names)
        assert chosen.names == tuple(NAMES[i] for i in index)
        np.testing.assert_array_equal(chosen.epoch("quantiles"), series.epoch("quantiles")[:, index])
        np.testing.assert_array_equal(chosen.step("rms"), series.step("rms")[:, index])

    def test_units_follow(self):
        assert list(full_recording()["layer_outputs"].sel("dense").unit("activation_rate")) == ["dense"]

    @pytest.mark.parametrize("names", ["dens", "x*", ["conv*", "dens"]])
    def test_unknown(self, names):
        with pytest.raises(UnknownNameError, match=r"tensor in 'gradients': '(dens|x\*)'"):
            full_recording()["gradients"].sel(names)

    def test_a_name_is_no_glob_where_it_exists(self):
        recording = Recording()
        recording.add_epoch("x", 0, ["a[1]", "a1"], [(), ()], {"rms": [1, 2]})
        assert recording["x"].sel("a[1]").epoch("rms").tolist() == [1]
        assert recording["x"].sel(["a[1]"]).names == ("a[1]",)

    def test_case_matters(self):
        with pytest.raises(UnknownNameError):
            full_recording()["gradients"].sel("CONV*")

    def test_of_one_tensor(self):
        with pytest.raises(ValueError, match="already one tensor, 'dense/kernel'"):
            full_recording()["gradients"].sel("dense/kernel").sel("dense/kernel")


class TestJoining:
    def test_late_tensor_and_late_statistic_are_nan_before(self):
        recording = Recording()
        recording.add_epoch("x", 0, ["a"], [(1,)], {"rms": [1.0]})
        recording.add_epoch("x", 1, ["b", "a"], [(2,), (1,)], {"rms": [2.0, 3.0], "mean": [4.0, 5.0]})
        recording.add_epoch("x", 2, ["b"], [(2,)], {"mean": [6.0]})
        series = recording["x"]
        assert series.names == ("a", "b")
        assert series.shapes == ((1,), (2,))
        np.testing.assert_array_equal(series.epoch("rms"), [[1, np.nan], [3, 2], [np.nan, np.nan]])
        np.testing.assert_array_equal(series.epoch("mean"), [[np.nan, np.nan], [5, 4], [np.nan, 6]])

    def test_late_tensor_in_steps(self):
        recording = Recording()
        recording.add_steps("x", [0, 1], ["a"], [(1,)], {"rms": [[1.0], [2.0]]})
        recording.add_steps("x", [2], ["a", "b"], [(1,), (2,)], {"rms": [[3.0, 4.0]]})
        np.testing.assert_array_equal(recording["x"].step("rms"), [[1, np.nan], [2, np.nan], [3, 4]])
        assert recording["x"].epochs.shape == (0,)
        assert recording["x"].statistics == ()

    def test_reading_between_appends_changes_nothing(self):
        often, once = Recording(), Recording()
        for epoch in range(4):
            names = ["a", "b", "c"][: 1 + epoch % 3]
            for recording in (often, once):
                recording.add_epoch("x", epoch, names, [(1,)] * len(names), {"rms": np.arange(len(names)) + epoch})
            often["x"].epoch("rms")
        assert_same(often, once)

    def test_units_of_an_epoch_without_them_are_nan(self):
        recording = Recording()
        recording.add_epoch("x", 0, ["a"], [(2,)], {"rms": [1]}, units={"mean": {"a": [1, 2]}})
        recording.add_epoch("x", 1, ["a"], [(2,)], {"rms": [1]})
        recording.add_epoch("x", 2, ["a"], [(2,)], {"rms": [1]}, units={"mean": {"a": [3, 4]}})
        np.testing.assert_array_equal(recording["x"].unit("mean")["a"], [[1, 2], [np.nan, np.nan], [3, 4]])

    def test_units_of_another_width_than_the_newest_are_nan(self):
        recording = Recording()
        recording.add_epoch("x", 0, ["a"], [(2,)], {}, units={"mean": {"a": [1, 2]}})
        recording.add_epoch("x", 1, ["a"], [(1,)], {}, units={"mean": {"a": [3]}})
        np.testing.assert_array_equal(recording["x"].unit("mean")["a"], [[np.nan], [3]])

    @pytest.mark.parametrize("levels", [[0, 100], [0, 25, 100]])
    def test_quantiles_of_other_levels_than_the_newest_are_nan(self, levels):
        recording = Recording()
        recording.add_epoch("x", 0, ["a"], [()], {"rms": [1], "quantiles": [[1, 2, 3]]}, quantile_levels=LEVELS)
        recording.add_epoch("x", 1, ["a"], [()], {"rms": [2], "quantiles": [levels]}, quantile_levels=levels)
        assert recording["x"].quantile_levels.tolist() == levels
        np.testing.assert_array_equal(recording["x"].epoch("quantiles"), [[[np.nan] * len(levels)], [levels]])
        assert recording["x"].epoch("rms").tolist() == [[1], [2]]


class TestSnapshots:
    def arrays(self, series: Series) -> list[np.ndarray]:
        found = [series.epochs, series.steps]
        found += [] if series.quantile_levels is None else [series.quantile_levels]
        found += [series.epoch(key) for key in series.statistics] + [series.step(key) for key in series.step_statistics]
        return found + [array for key in series.unit_statistics for array in series.unit(key).values()]

    @pytest.mark.parametrize("reread", [False, True])
    @pytest.mark.parametrize("view", ["gradients", "layer_outputs"])
    @pytest.mark.parametrize("choose", [None, "*", "first"])
    def test_arrays_are_read_only(self, view, choose, reread):
        recording = full_recording()
        series = (Recording.from_bytes(recording.to_bytes()) if reread else recording)[view]
        if choose:
            series = series.sel(series.names[0] if choose == "first" else choose)
        for array in self.arrays(series):
            with pytest.raises(ValueError, match="read-only"):
                array[...] = 0

    def test_a_unit_dict_is_the_callers_own(self):
        series = full_recording()["layer_outputs"]
        series.unit("activation_rate").clear()
        assert len(series.unit("activation_rate")) == 2

    def test_later_appends_leave_it_as_it_was(self):
        recording = full_recording()
        series = recording["gradients"]
        before = [array.copy() for array in self.arrays(series)]
        recording.add_epoch("gradients", 3, ["new"], [(1,)], {"mean": [1.0]}, quantile_levels=[1.0])
        recording.add_steps("gradients", [12], ["new"], [(1,)], {"rms": [[1.0]]})
        assert series.names == tuple(NAMES)
        for old, now in zip(before, self.arrays(series), strict=True):
            np.testing.assert_array_equal(old, now)
        assert recording["gradients"].names == (*NAMES, "new")

    def test_what_came_in_is_copied_and_stays_writeable(self):
        recording = Recording()
        steps, rms, unit = np.arange(2), np.ones((2, 1)), np.ones(3)
        levels, quantiles = np.array([0.0, 100.0]), np.ones((1, 2))
        recording.add_steps("x", steps, ["a"], [(1,)], {"rms": rms})
        recording.add_epoch("x", 0, ["a"], [(1,)], {"quantiles": quantiles}, {"mean": {"a": unit}}, levels)
        before = [array.copy() for array in self.arrays(recording["x"])]
        for array in (steps, rms, unit, levels, quantiles):
            array[...] = -1
        for old, now in zip(before, self.arrays(recording["x"]), strict=True):
            np.testing.assert_array_equal(old, now)

    def test_the_same_series_until_something_is_added(self):
        recording = full_recording()
        assert recording["gradients"] is recording["gradients"]


class TestRecording:
    def test_is_a_mapping(self):
        recording = full_recording()
        assert list(recording) == ["gradients", "layer_outputs"]
        assert len(recording) == 2
        assert "gradients" in recording
        assert "weights" not in recording
        assert recording.get("weights") is None
        assert repr(recording) == "<Recording: 3 epochs; gradients (3), layer_outputs (2)>"

    def test_empty(self):
        recording = Recording()
        assert repr(recording) == "<Recording: 0 epochs; nothing observed yet>"
        assert recording.epochs.shape == (0,)
        assert dict(recording.logs) == {}
        assert_same(recording, Recording.from_bytes(recording.to_bytes()))

    def test_unknown_view(self):
        with pytest.raises(UnknownNameError, match=r"view in this recording: 'gradient'.*mean 'gradients'"):
            full_recording()["gradient"]

    def test_logs_and_epochs(self):
        recording = Recording()
        recording.add_logs(2, {"loss": np.float32(0.5), "accuracy": 1})
        recording.add_logs(0, {"loss": 4.0, "lr": np.array(0.1)})
        recording.add_epoch("x", 5, ["a"], [()], {"rms": [1]})
        assert recording.epochs.tolist() == [0, 2, 5]
        np.testing.assert_array_equal(recording.logs["loss"], [4, 0.5, np.nan])
        np.testing.assert_array_equal(recording.logs["accuracy"], [np.nan, 1, np.nan])
        np.testing.assert_array_equal(recording.logs["lr"], [0.1, np.nan, np.nan])
        assert all(values.dtype == np.float64 for values in recording.logs.values())

    @pytest.mark.parametrize(
        "value", ["12", b"1", None, [1.0], [[1], [1, 2]], np.ones(1), np.ones(3), {}, object(), 10**400, 1j]
    )
    def test_logs_that_are_no_scalar_number_are_left_out(self, value):
        recording = Recording()
        recording.add_logs(0, {"loss": 1.0, "odd": value})
        assert list(recording.logs) == ["loss"]

    def test_logs_of_an_epoch_run_again_replace_the_old(self):
        recording = Recording()
        recording.add_logs(0, {"loss": 1.0})
        recording.add_logs(0, {"loss": 2.0})
        assert recording.logs["loss"].tolist() == [2.0]

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"values": {"rms": [1.0]}}, r"'rms' has shape \(1, 1\); expected \(1, 2, …\)"),
            ({"values": {"rms": 1.0}}, r"'rms' has shape \(1,\)"),
            ({"values": {"rms": np.ones((2, 3, 1))}}, r"'rms' has shape \(1, 2, 3, 1\)"),
            ({"values": {"quantiles": np.ones((2, 2))}, "quantile_levels": LEVELS}, r"one level for each"),
            ({"shapes": [(1,)]}, "shorter"),
            ({"units": {"mean": {"a": 1.0}}}, r"unit series 'mean' of 'a' has shape \(\)"),
        ],
    )
    def test_what_does_not_fit_is_refused_and_leaves_the_recording_as_it_was(self, change, message):
        recording, untouched = full_recording(), full_recording()
        good = {"names": ["a", "b"], "shapes": [(1,), (2,)], "values": {"rms": [1.0, 2.0]}}
        for view in ("gradients", "new"):
            with pytest.raises(ValueError, match=message):
                recording.add_epoch(view, 3, **(good | change))
        assert_same(recording, untouched)

    def test_steps_that_do_not_fit_are_refused(self):
        recording = Recording()
        with pytest.raises(ValueError, match=r"'rms' has shape \(3, 1\); expected \(2, 1, …\)"):
            recording.add_steps("x", [0, 1], ["a"], [(1,)], {"rms": np.ones((3, 1))})
        assert len(recording) == 0


class TestFile:
    def test_round_trip(self, tmp_path):
        recording = full_recording()
        recording.save(tmp_path / "run.npz")
        loaded = Recording.load(tmp_path / "run.npz")
        assert_same(recording, loaded)
        assert_same(loaded, Recording.load(str(tmp_path / "run.npz")))
        assert os.listdir(tmp_path) == ["run.npz"]

    def test_a_loaded_recording_grows_as_the_first_would_have(self):
        first = full_recording()
        second = Recording.from_bytes(first.to_bytes())
        for recording in (first, second):
            recording.add_logs(3, {"loss": 0.1})
            recording.add_epoch("layer_outputs", 3, ["conv1"], [(None, 8, 8, 4)], {"dead_rate": [0.5]})
            recording.add_epoch(
                "layer_outputs", 4, ["conv1"], [(4,)], {}, units={"activation_rate": {"conv1": np.ones(4)}}
            )
            recording.add_steps("gradients", [12], NAMES, SHAPES, {"rms": np.ones((1, 3))})
        assert_same(first, second)

    def test_names_that_would_meet_or_break_in_a_zip(self):
        recording = Recording()
        odd = ["", "loss", "loss.npy", "a/b", "a\\b", "a\0b", "é", "\ud800", "x" * 70_000, "recording.json", "a:1"]
        recording.add_logs(0, dict.fromkeys(odd, 1.0) | {"epochs": 2.0})
        for i, view in enumerate([*odd, "logs", "a", "a/epoch"]):
            recording.add_epoch(view, 0, odd, [()] * len(odd), dict.fromkeys([*odd, "epochs"], np.full(len(odd), i)))
        assert_same(recording, Recording.from_bytes(recording.to_bytes()))

    def test_is_an_npz_that_numpy_reads(self):
        with np.load(io.BytesIO(full_recording().to_bytes())) as file:
            np.testing.assert_array_equal(file["gradients/epoch/rms"], full_recording()["gradients"].epoch("rms"))

    def test_one_tensor_view(self):
        recording = Recording()
        recording.add_epoch("metrics", 0, ["metrics"], [()], {"loss": [1.0]})
        recording._views["metrics"].single = True
        loaded = Recording.from_bytes(recording.to_bytes())
        assert_same(recording, loaded)
        assert loaded["metrics"].epoch("loss").tolist() == [1.0]

    def test_metadata_that_json_does_not_know(self):
        recording = Recording()
        recording.metadata = {"n": np.int64(3), "x": np.float32(0.5), "a": np.arange(2), "t": (1, 2), "p": range(2)}
        loaded = Recording.from_bytes(recording.to_bytes())
        assert loaded.metadata == {"n": 3, "x": 0.5, "a": [0, 1], "t": [1, 2], "p": "range(0, 2)"}

    def test_all_nan_and_all_zero_series_of_many_steps(self):
        recording = Recording()
        recording.add_steps("x", np.arange(20_000), ["a"], [()], {"nonfinite": np.zeros((20_000, 1))})
        recording.add_steps("y", np.arange(20_000), ["a"], [()], {"mean": np.full((20_000, 1), np.nan)})
        assert_same(recording, Recording.from_bytes(recording.to_bytes()))

    @pytest.mark.parametrize("where", ["to_bytes", "os.replace", "os.fsync"])
    def test_a_failing_save_leaves_the_old_file(self, tmp_path, monkeypatch, where):
        path = tmp_path / "run.npz"
        full_recording().save(path)
        before = path.read_bytes()

        def fail(*_):
            raise OSError(28, "No space left on device")

        recording = Recording()
        monkeypatch.setattr(*((Recording, "to_bytes") if where == "to_bytes" else (os, where[3:])), fail)
        with pytest.raises(OSError, match="No space left"):
            recording.save(path)
        assert path.read_bytes() == before
        assert os.listdir(tmp_path) == ["run.npz"]

    def test_a_save_stopped_by_the_keyboard_leaves_the_old_file(self, tmp_path, monkeypatch):
        path = tmp_path / "run.npz"
        full_recording().save(path)

        def stop(*_):
            raise KeyboardInterrupt

        monkeypatch.setattr(Recording, "to_bytes", stop)
        with pytest.raises(KeyboardInterrupt):
            Recording().save(path)
        assert os.listdir(tmp_path) == ["run.npz"]
        monkeypatch.undo()
        assert_same(Recording.load(path), full_recording())

    def test_save_where_there_is_no_folder(self, tmp_path):
        with pytest.raises(FileNotFoundError):
            Recording().save(tmp_path / "none" / "run.npz")

    def test_load_where_there_is_no_file(self, tmp_path):
        with pytest.raises(FileNotFoundError):
            Recording.load(tmp_path / "run.npz")


def rewritten(data: bytes, change) -> bytes:
    """The same file with its description changed: a valid zip, with checksums and a digest that hold."""
    with np.load(io.BytesIO(data)) as file:
        arrays = {key: file[key] for key in file.files}
    meta = json.loads(arrays["recording.json"].tobytes())
    meta = change(meta, arrays) or meta
    arrays["recording.json"] = np.frombuffer(json.dumps(meta).encode(), np.uint8)
    del arrays["digest"]
    return write_npz(arrays)


def with_member(name: str, content: bytes, compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A valid recording with one member more."""
    buffer = io.BytesIO(Recording().to_bytes())
    with zipfile.ZipFile(buffer, "a", compression) as archive:
        archive.writestr(name, content)
    return buffer.getvalue()


def npy(header: str, content: bytes = b"", version: bytes = b"\x01\x00") -> bytes:
    text = header.encode().ljust(118) + b"\n"
    return b"\x93NUMPY" + version + len(text).to_bytes(2, "little") + text + content


class TestGrowth:
    def test_what_was_read_before_stays_as_it_was(self):
        """A recording that is read after each epoch is added to in place: earlier series keep their rows."""
        recording, read = Recording(), []
        for epoch in range(9):
            recording.add_epoch("gradients", epoch, ["a", "b"], [(1,), (2,)], {"rms": [epoch, 10 + epoch]})
            read.append(recording["gradients"].epoch("rms"))
        for epoch, values in enumerate(read):
            np.testing.assert_array_equal(values, [[e, 10 + e] for e in range(epoch + 1)])

    def test_an_epoch_recorded_again_and_a_tensor_that_comes_late(self):
        recording = Recording()
        for epoch in range(3):
            recording.add_epoch("gradients", epoch, ["a"], [(1,)], {"rms": [epoch]})
            before = recording["gradients"].epoch("rms")
        recording.add_epoch("gradients", 2, ["a"], [(1,)], {"rms": [7.0]})
        np.testing.assert_array_equal(recording["gradients"].epoch("rms"), [[0], [1], [7]])
        np.testing.assert_array_equal(before, [[0], [1], [2]])
        recording.add_epoch("gradients", 3, ["a", "b"], [(1,), (1,)], {"rms": [8.0, 9.0], "std": [1.0, 2.0]})
        np.testing.assert_array_equal(recording["gradients"].epoch("rms")[:, 1], [np.nan] * 3 + [9.0])
        assert Recording.from_bytes(recording.to_bytes())["gradients"].epoch("std")[3, 1] == 2.0


class TestDamage:
    def test_the_error_names_the_file_and_what_was_expected(self, tmp_path):
        path = tmp_path / "run.npz"
        path.write_bytes(b"no zip")
        with pytest.raises(ValueError, match=r"run\.npz.*no recording, or it is damaged.*Recording\.save\(\)"):
            Recording.load(path)

    def test_truncated_anywhere(self):
        data = full_recording().to_bytes()
        for size in [*range(0, len(data), 37), len(data) - 1]:
            with pytest.raises(ValueError, match="no recording, or it is damaged"):
                Recording.from_bytes(data[:size])

    def test_flipped_bytes(self):
        original = full_recording()
        data = original.to_bytes()
        rng = random.Random(5)
        refused = 0
        for _ in range(200):
            damaged = bytearray(data)
            for _ in range(rng.choice([1, 1, 2, 8])):
                damaged[rng.randrange(len(data))] ^= rng.randrange(1, 256)
            try:
                loaded = Recording.from_bytes(bytes(damaged))
            except ValueError:
                refused += 1
            else:
                assert_same(original, loaded)
        assert refused > 100

    def test_flipped_bytes_in_the_directory(self):
        original = full_recording()
        data = original.to_bytes()
        start = data.index(b"PK\x01\x02")
        rng = random.Random(6)
        for _ in range(200):
            damaged = bytearray(data)
            damaged[rng.randrange(start, len(data))] ^= rng.randrange(1, 256)
            try:
                loaded = Recording.from_bytes(bytes(damaged))
            except ValueError:
                continue
            assert_same(original, loaded)

    @pytest.mark.parametrize(
        "change",
        [
            lambda meta, arrays: [meta],
            lambda meta, arrays: meta.update(format="another"),
            lambda meta, arrays: meta.pop("format") and None,
            lambda meta, arrays: meta.pop("version") and None,
            lambda meta, arrays: meta.update(version="new"),
            lambda meta, arrays: meta.update(version=None),
            lambda meta, arrays: meta.pop("views") and None,
            lambda meta, arrays: meta.update(views=[1]),
            lambda meta, arrays: meta.update(unobserved=3),
            lambda meta, arrays: meta.update(log_epochs=[0]),
            lambda meta, arrays: meta.update(log_epochs=[float("inf")] * 3),
            lambda meta, arrays: meta["logs"].update(loss="nowhere"),
            lambda meta, arrays: meta["views"]["gradients"].update(names=["a"]),
            lambda meta, arrays: meta["views"]["gradients"].update(names=[1, 2, 3]),
            lambda meta, arrays: meta["views"]["gradients"].update(names=["a", "a", "b"]),
            lambda meta, arrays: meta["views"]["gradients"].update(names=[[1], [2], [3]]),
            lambda meta, arrays: meta["views"]["gradients"].update(shapes=[1, 2, 3]),
            lambda meta, arrays: meta["views"]["gradients"].update(shapes=[["x"]] * 3),
            lambda meta, arrays: meta["views"]["gradients"].update(epochs=meta["views"]["gradients"]["steps"]),
            lambda meta, arrays: meta["views"]["gradients"].update(quantile_levels="logs/loss~"),
            lambda meta, arrays: arrays.pop("gradients/epoch/rms")[:0].clip(),
            lambda meta, arrays: arrays.update({"gradients/epoch/rms": np.float64(1)}),
            lambda meta, arrays: arrays.update({"gradients/epoch/rms": np.ones((3, 2))}),
            lambda meta, arrays: arrays.update({"gradients/epoch/rms": np.array("text")}),
            lambda meta, arrays: arrays.update({"gradients/epoch/rms": np.zeros((3, 3), "c16")}),
            lambda meta, arrays: arrays.update({"gradients/epoch/rms": np.zeros((3, 3), [("x", "f8")])}),
            lambda meta, arrays: arrays.update({"gradients/quantile_levels": np.zeros(2)}),
            lambda meta, arrays: arrays.update({"layer_outputs/unit/activation_rate/conv1": np.zeros(3)}),
            lambda meta, arrays: arrays.update({"layer_outputs/unit/activation_rate/conv1": np.zeros((2, 4))}),
        ],
    )
    def test_a_description_that_does_not_fit(self, change):
        def changed(meta, arrays):
            result = change(meta, arrays)
            return result if isinstance(result, list) else None

        data = full_recording().to_bytes()
        Recording.from_bytes(rewritten(data, lambda meta, arrays: None))
        with pytest.raises(ValueError, match="damaged"):
            Recording.from_bytes(rewritten(data, changed))

    def test_deep_json(self):
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **{"recording.json": np.frombuffer(b"[" * 200_000, np.uint8)})
        with pytest.raises(ValueError, match="damaged"):
            Recording.from_bytes(buffer.getvalue())

    def test_a_number_that_was_changed(self):
        """A whole zip whose checksums hold is refused all the same; without a digest, as early files are, it loads."""
        recording = full_recording()
        with np.load(io.BytesIO(recording.to_bytes())) as file:
            arrays = {key: file[key] for key in file.files}
        name = next(key for key in arrays if "/epoch/" in key)
        for content, error in ((arrays, False), ({**arrays, name: arrays[name] + 1.0}, True)):
            buffer = io.BytesIO()
            np.savez(buffer, **content)
            if error:
                with pytest.raises(ValueError, match="not what was written"):
                    Recording.from_bytes(buffer.getvalue())
            else:
                assert Recording.from_bytes(buffer.getvalue()).to_bytes() == recording.to_bytes()
        del arrays["digest"]
        np.savez(buffer := io.BytesIO(), **arrays)
        assert Recording.from_bytes(buffer.getvalue()).to_bytes() == recording.to_bytes()

    def test_newer_version(self):
        data = rewritten(full_recording().to_bytes(), lambda meta, _: meta.update(version=FORMAT_VERSION + 1))
        with pytest.raises(ValueError, match=rf"version {FORMAT_VERSION + 1}, .* up to {FORMAT_VERSION}\. Update"):
            Recording.from_bytes(data)

    def test_other_files(self):
        npy_file, other_npz, empty_zip = io.BytesIO(), io.BytesIO(), io.BytesIO()
        np.save(npy_file, np.arange(3))
        np.savez(other_npz, x=np.arange(3))
        zipfile.ZipFile(empty_zip, "w").close()
        for data in (b"", b"\x80\x04N.", b"{}", npy_file.getvalue(), other_npz.getvalue(), empty_zip.getvalue()):
            with pytest.raises(ValueError, match="no recording"):
                Recording.from_bytes(data)


class Bomb:
    """Leaves a trace where it is unpickled."""

    def __reduce__(self):
        return os.mkdir, ("unpickled",)


class TestMalice:
    @pytest.mark.parametrize("name", ["recording.json", "x"])
    def test_a_pickle_is_never_run(self, name, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        buffer = io.BytesIO()
        arrays = {"recording.json": np.zeros(1, np.uint8), name: np.array([Bomb()], object)}
        np.savez(buffer, **arrays)
        with pytest.raises(ValueError, match="damaged"):
            Recording.from_bytes(buffer.getvalue())
        assert os.listdir(tmp_path) == []
        np.load(io.BytesIO(buffer.getvalue()), allow_pickle=True)[name]  # the bomb is a live one
        assert os.listdir(tmp_path) == ["unpickled"]

    @pytest.mark.parametrize(
        "content",
        [
            npy("{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,)}"),
            npy("{'descr': '<f8', 'fortran_order': False, 'shape': (100000, 100000)}", b"12345678"),
            npy("{'descr': '<f8', 'fortran_order': False, 'shape': (-1, -1)}", b"12345678"),
            npy("{'descr': '<f8', 'fortran_order': False, 'shape': (-1,)}"),
            npy("{'descr': '|V0', 'fortran_order': False, 'shape': (1000000000000,)}"),
            npy("{'descr': '<U0', 'fortran_order': False, 'shape': (1000000000000,)}"),
            npy("{'descr': '|O', 'fortran_order': False, 'shape': ()}", b"\x80\x04N."),
            npy("{'descr': '<f8', 'fortran_order': False, 'shape': (1,)}", b"12345678", version=b"\x03\x00"),
            npy("{'descr': " + "(" * 90),
            npy("-" * 110 + "1"),
            npy("()"),
            b"\x93NUMPY",
            b"",
        ],
    )
    def test_headers_that_promise_what_is_not_there(self, content):
        data = with_member("x.npy", content)
        tracemalloc.start()
        try:
            with pytest.raises(ValueError, match="damaged"):
                Recording.from_bytes(data)
            assert tracemalloc.get_traced_memory()[1] < 1_000_000
        finally:
            tracemalloc.stop()

    def test_a_long_header(self):
        text = b"-" * 60_000 + b"1\n"
        with pytest.raises(ValueError, match="damaged"):
            Recording.from_bytes(with_member("x.npy", b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text))

    @pytest.mark.parametrize("compression", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
    def test_compression_with_no_bound_is_refused(self, compression):
        with pytest.raises(ValueError, match="compressed in an unexpected way"):
            Recording.from_bytes(with_member("x.npy", bytes(10**7), compression))

    def test_a_member_there_twice(self):
        with pytest.warns(UserWarning, match="Duplicate name"):
            data = with_member("recording.json.npy", b"")
        with pytest.raises(ValueError, match="there twice"):
            Recording.from_bytes(data)

    @pytest.mark.parametrize("size", [10**6, 2**31])
    def test_a_directory_that_lies_about_a_size(self, size):
        data = bytearray(with_member("x.npy", npy("{'descr': '<f8', 'fortran_order': False, 'shape': (0,)}")))
        entry = data.rindex(b"PK\x01\x02")
        data[entry + 24 : entry + 28] = size.to_bytes(4, "little")
        with pytest.raises(ValueError, match=f"'x' promises {size} bytes"):
            Recording.from_bytes(bytes(data))

    def test_members_that_overlap(self):
        # Many directory entries that point at one compressed block: the quadratic zip bomb.
        content = npy("{'descr': '|u1', 'fortran_order': False, 'shape': (9999999,)}", bytes(9_999_999))
        data = with_member("x.npy", content)
        entry, end = data.rindex(b"PK\x01\x02"), data.rindex(b"PK\x05\x06")
        start = data.index(b"PK\x01\x02")
        entries = [data[start:end]] + [data[entry:end].replace(b"x.npy", f"{i:05}".encode()) for i in range(100)]
        directory = b"".join(entries)
        tail = bytearray(data[end:])
        count = int.from_bytes(tail[8:10], "little") + 100
        tail[8:10] = tail[10:12] = count.to_bytes(2, "little")
        tail[12:16] = len(directory).to_bytes(4, "little")
        with pytest.raises(ValueError, match="overlap"):
            Recording.from_bytes(data[:start] + directory + bytes(tail))


class TestDataFrame:
    def test_epochs(self):
        recording = full_recording()
        frame = recording.to_dataframe()
        assert list(frame.columns) == [
            "collector", "name", "epoch", "rms", "quantiles_0", "quantiles_50", "quantiles_100", "dead_rate",
        ]  # fmt: skip
        assert len(frame) == 3 * 3 + 3 * 2
        row = frame[(frame.collector == "gradients") & (frame.name == "dense/kernel") & (frame.epoch == 1)]
        assert row.rms.item() == recording["gradients"].epoch("rms")[1, 2]
        assert row.quantiles_50.item() == recording["gradients"].epoch("quantiles")[1, 2, 1]
        assert row.dead_rate.isna().all()
        assert frame.epoch.dtype == np.int64

    def test_steps(self):
        recording = full_recording()
        frame = recording.to_dataframe(steps=True)
        assert list(frame.columns) == ["collector", "name", "step", "rms"]
        assert len(frame) == 12 * 3
        np.testing.assert_array_equal(
            frame.pivot(index="step", columns="name", values="rms")[NAMES], recording["gradients"].step("rms")
        )

    def test_of_nothing(self):
        assert list(Recording().to_dataframe().columns) == ["collector", "name", "epoch"]
        assert list(Recording().to_dataframe(steps=True).columns) == ["collector", "name", "step"]

    def test_is_the_callers_own(self):
        recording, untouched = full_recording(), full_recording()
        frame = recording.to_dataframe()
        frame.loc[:, "rms"] = 0.0
        assert_same(recording, untouched)

    def test_without_pandas(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "pandas", None)
        with pytest.raises(ImportError, match=r"pip install keras-introspect\[dataframe\]"):
            full_recording().to_dataframe()


TEXT = st.text(max_size=6)
SIZES = st.lists(st.none() | st.integers(0, 9), max_size=3)
FLOATS = st.floats(width=64)


@st.composite
def recordings(draw) -> Recording:
    recording = Recording()
    for view in draw(st.lists(TEXT, max_size=3, unique=True)):
        levels = draw(st.none() | st.lists(st.floats(0, 100), min_size=1, max_size=3, unique=True))
        step = 0
        for epoch in draw(st.lists(st.integers(0, 1000), max_size=3, unique=True).map(sorted)):
            names = draw(st.lists(TEXT, max_size=3, unique=True))
            shapes = [draw(SIZES) for _ in names]

            def floats(*shape: int) -> np.ndarray:
                count = int(np.prod(shape))
                return np.array(draw(st.lists(FLOATS, min_size=count, max_size=count)), np.float64).reshape(shape)

            values = {f"s{key}": floats(len(names)) for key in draw(st.lists(TEXT, max_size=2, unique=True))}
            if levels:
                values["quantiles"] = floats(len(names), len(levels))
            units = {
                key: {name: floats(draw(st.integers(0, 3))) for name in names}
                for key in draw(st.lists(TEXT, max_size=2, unique=True))
            }
            recording.add_epoch(view, epoch, names, shapes, values, units, levels)
            count = draw(st.integers(0, 3))
            if count:
                recording.add_steps(view, range(step, step + count), names, shapes, {"rms": floats(count, len(names))})
                step += count
            recording.add_logs(epoch, {key: draw(FLOATS) for key in draw(st.lists(TEXT, max_size=2))})
    recording.unobserved = draw(st.dictionaries(TEXT, TEXT, max_size=2))
    recording.metadata = draw(st.dictionaries(TEXT, st.none() | st.booleans() | st.integers() | TEXT, max_size=2))
    return recording


@settings(max_examples=60, deadline=None)
@given(recordings())
def test_any_recording_survives_the_file(recording):
    data = recording.to_bytes()
    loaded = Recording.from_bytes(data)
    assert_same(recording, loaded)
    assert loaded.to_bytes() == data


def test_needs_neither_tensorflow_nor_pandas():
    code = (
        "import sys, keras_introspect.recording as r; x = r.Recording(); x.from_bytes(x.to_bytes());"
        "assert not {'tensorflow', 'keras', 'pandas', 'matplotlib'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
