"""The accumulators and buffers on the device, apart from any model."""

import numpy as np
import pytest
import tensorflow as tf

from keras_introspect.naming import known_names
from keras_introspect.recording import Recording
from keras_introspect.saving import IntrospectionState
from keras_introspect.state import Accumulator, StepBuffer
from keras_introspect.statistics import Activity, Moments, TensorSpec

A, B = (TensorSpec(name, (None, 2), batched=True, channel_axis=1) for name in "ab")
WIDE_A = TensorSpec("a", (None, 5), batched=True, channel_axis=1)


def state(*numbers: float) -> np.ndarray:
    """States of moments, of one element each."""
    return np.array([[1.0, x, 0.0, abs(x), x, x, 0.0, np.inf] for x in numbers])


class TestAccumulator:
    def test_states_are_merged_by_tensor(self) -> None:
        accumulator = Accumulator(Moments(), replicated=False)
        accumulator.update(state(1, 10), [A, B])
        accumulator.update(state(3, 20), [A, B])
        read = accumulator.read()
        assert list(read) == ["a", "b"]
        assert read["a"][1][0, :2].tolist() == [2, 2]
        assert read["b"][1][0, :2].tolist() == [2, 15]

    def test_a_step_of_other_tensors_keeps_the_first(self) -> None:
        accumulator = Accumulator(Moments(), replicated=False)
        accumulator.update(state(1, 10), [A, B])
        accumulator.update(state(3), [B])
        assert accumulator.read()["b"][1][0, :2].tolist() == [2, 6.5]
        assert accumulator.read()["a"][1][0, 0] == 1

    def test_restored_states_wait_for_their_tensors(self) -> None:
        accumulator = Accumulator(Moments(), replicated=False)
        accumulator.restore({"a": state(1), "gone": state(7)})
        assert not accumulator.is_untouched()
        assert set(accumulator.to_save()) == {"a", "gone"}
        accumulator.update(state(3, 20), [A, B])
        assert accumulator.read()["a"][1][0, :2].tolist() == [2, 2]
        assert accumulator.read()["b"][1][0, :2].tolist() == [1, 20]
        assert accumulator.take_unplaced() == ["gone"]
        assert accumulator.take_unplaced() == []
        assert set(accumulator.to_save()) == {"a", "b"}

    def test_restored_states_of_another_shape_are_not_taken(self) -> None:
        accumulator = Accumulator(Activity(), replicated=False)
        accumulator.restore({"a": np.ones((4, 1))})
        accumulator.segment([WIDE_A])
        assert accumulator.take_unplaced() == ["a"]
        assert accumulator.to_save() == {}

    def test_restoring_forgets_what_was_accumulated(self) -> None:
        accumulator = Accumulator(Moments(), replicated=False)
        accumulator.update(state(1, 10), [A, B])
        accumulator.restore({"a": state(5)})
        assert set(accumulator.to_save()) == {"a"}
        accumulator.reset()
        assert accumulator.to_save() == {}

    def test_names_that_keras_shortened(self) -> None:
        accumulator = Accumulator(Moments(), replicated=False)
        accumulator.restore({"net/a": state(1), "net/b": state(2)})
        accumulator.segment([A, B])
        assert accumulator.take_unplaced() == []
        assert accumulator.read()["b"][1][0, 1] == 2


class TestStepBuffer:
    def test_steps_come_out_once(self) -> None:
        buffer = StepBuffer(4)
        assert len(buffer.fetch()[0]) == 0
        layout = buffer.layout({"moments": ([A], (1, 2))})
        for step in range(3):
            buffer.append(layout, step, {"moments": tf.constant([[step, 1.0]], tf.float64)})
        steps, [(rows, lanes)] = buffer.fetch()
        assert steps.tolist() == [0, 1, 2]
        assert rows.tolist() == [0, 1, 2]
        assert lanes["moments"][1][:, 0, 0].tolist() == [0, 1, 2]
        assert len(buffer.fetch()[0]) == 0

    def test_steps_of_other_tensors_in_between(self) -> None:
        buffer = StepBuffer(4)
        for round_ in range(2):  # the second finds what the first left behind
            layouts = [buffer.layout({"moments": (specs, (len(specs), 2))}) for specs in ([A], [A, B])]
            for step in range(3):
                layout = layouts[step % 2]
                value = tf.fill([1 + step % 2, 2], tf.constant(10.0 * round_ + step, tf.float64))
                buffer.append(layout, step, {"moments": value})
            steps, blocks = buffer.fetch()
            assert steps.tolist() == [0, 1, 2]
            assert [rows.tolist() for rows, _ in blocks] == [[0, 2], [1]]
            assert blocks[0][1]["moments"][1][:, 0, 0].tolist() == [10.0 * round_, 10.0 * round_ + 2]
            assert blocks[1][1]["moments"][1][0, :, 1].tolist() == [10.0 * round_ + 1] * 2

    def test_overflow_keeps_the_newest(self) -> None:
        buffer = StepBuffer(2)
        layout = buffer.layout({"moments": ([A], (1, 1))})
        for step in range(5):
            buffer.append(layout, step, {"moments": tf.fill([1, 1], tf.constant(float(step), tf.float64))})
        with pytest.warns(UserWarning, match="oldest 3 are lost"):
            steps, [(_, lanes)] = buffer.fetch()
        assert steps.tolist() == [3, 4]
        assert lanes["moments"][1].ravel().tolist() == [3.0, 4.0]

    def test_cleared(self) -> None:
        buffer = StepBuffer(4)
        buffer.clear()
        layout = buffer.layout({"moments": ([A], (1, 2))})
        buffer.append(layout, 0, {"moments": tf.zeros((1, 2), tf.float64)})
        buffer.clear()
        assert len(buffer.fetch()[0]) == 0


class TestIntrospectionState:
    def test_of_nothing(self) -> None:
        empty = IntrospectionState()
        assert empty.is_empty()
        other = IntrospectionState()
        other.restore(empty.serialize())
        assert other.is_empty()

    def test_what_cannot_be_read_leaves_all_as_it_was(self) -> None:
        kept = IntrospectionState()
        kept.recording.add_logs(0, {"loss": 1.0})
        before = kept.recording
        with pytest.raises(ValueError, match="damaged"):
            kept.restore(b"nothing of ours")
        assert kept.recording is before
        with pytest.warns(UserWarning, match="cannot be read"):
            kept.deserialize(b"nothing of ours")
        assert kept.recording is before
        kept.deserialize(b"")
        assert kept.recording is before
        assert not kept.is_empty()

    def test_states_that_nobody_collects_are_passed_on(self) -> None:
        from keras_introspect.files import SavedState, pack, unpack

        passed = IntrospectionState()
        passed.restore(
            pack(SavedState(Recording().to_bytes(), {"a|moments": 2}, {"a|moments": {"x": np.ones((1, 7))}}))
        )
        again = unpack(passed.serialize())
        assert again.versions == {"a|moments": 2}
        np.testing.assert_array_equal(again.states["a|moments"]["x"], np.ones((1, 7)))

    def test_inside_a_function_that_is_traced(self) -> None:
        kept = IntrospectionState()
        kept.recording.add_logs(0, {"loss": 1.0})
        blobs = []
        tf.function(lambda: blobs.append(kept.serialize()))()
        assert blobs == [kept.serialize()]


@pytest.mark.parametrize(
    ("known", "names", "expected"),
    [
        ([], ["a"], ["a"]),
        (["a", "b"], ["a", "b"], ["a", "b"]),
        (["net/a"], ["a"], ["net/a"]),
        (["a"], ["net/a"], ["a"]),
        (["net/block/a"], ["a", "block/a"], ["a", "block/a"]),  # both would fit: neither is taken for it
        (["x/a", "y/a"], ["a"], ["a"]),
        (["x/a", "y/a"], ["x/a", "a"], ["x/a", "y/a"]),
        (["cab"], ["b"], ["b"]),
    ],
)
def test_known_names(known: list[str], names: list[str], expected: list[str]) -> None:
    assert known_names(known, names) == expected
