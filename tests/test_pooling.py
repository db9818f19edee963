"""States of tensors outside of steps, such as the weights at the end of an epoch."""

import numpy as np
import pytest
import tensorflow as tf

from keras_introspect.statistics import Activity, Context, Moments, PerUnit, Piece, Quantiles, TensorSpec
from keras_introspect.statistics.pooling import StatesOutsideSteps, states_of

STATISTICS = (Moments(), Quantiles(), PerUnit())


def pieces(random, shapes=((3, 4), (4,), (3, 4))):
    return [
        Piece(tf.constant(random.normal(size=shape), tf.float32), TensorSpec(f"v{i}", shape, False, len(shape) - 1))
        for i, shape in enumerate(shapes)
    ]


def test_they_are_those_of_each_tensor_alone():
    given = pieces(np.random.default_rng(0))
    found = StatesOutsideSteps(STATISTICS)(given, 7)
    for statistic in STATISTICS:
        assert list(found[statistic]) == ["v0", "v1", "v2"]
        for piece in given:
            alone = states_of(statistic, [[piece]], Context(tf.constant(7, tf.int64))).numpy()
            spec, state = found[statistic][piece.spec.name]
            assert spec is piece.spec
            np.testing.assert_allclose(state, alone, rtol=1e-6)


def test_the_graph_is_traced_once_for_values_that_change_and_anew_for_other_tensors():
    traced = []

    class Noted(Moments):
        def partials(self, pieces, context):
            traced.append(len(pieces))
            return super().partials(pieces, context)

    random, program = np.random.default_rng(0), StatesOutsideSteps([Noted()])
    means = [next(iter(program(pieces(random), step)[program._statistics[0]].values()))[1] for step in range(3)]
    assert traced == [3]
    assert len({float(mean[0, 1]) for mean in means}) == 3  # of the values there are now
    program(pieces(random, ((3, 4), (5,))), 3)
    assert traced == [3, 2]


def test_statistics_that_take_no_such_tensor_have_no_states():
    class Nothing(Activity):
        def takes(self, piece):
            return False

    nothing, some = Nothing(), Moments()
    found = StatesOutsideSteps([nothing, some])(pieces(np.random.default_rng(0)), 0)
    assert found[nothing] == {}
    assert len(found[some]) == 3
    assert StatesOutsideSteps([nothing])(pieces(np.random.default_rng(0)), 0) == {nothing: {}}


@pytest.mark.parametrize("statistic", STATISTICS, ids=lambda statistic: statistic.name)
def test_no_tensors_no_states(statistic):
    assert StatesOutsideSteps([statistic])([], 0) == {statistic: {}}
