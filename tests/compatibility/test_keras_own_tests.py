"""Keras's own tests pass with our models wherever they pass with Keras's."""

import pytest

from compatibility import keras_own_tests as own

# Test → why it cannot pass with a subclass in the place of the class.
DIFFERENT = {
    "functional_test.py::FunctionalTest::test_basic_flow_multi_input": "it makes Keras's Functional itself, and asks "
    "whether that is a Model, by which we have put ours"
}


@pytest.mark.long
def test_keras_own_tests_pass_with_our_models() -> None:
    if not own.test_files():
        pytest.skip("this release of Keras ships no tests in its wheel")
    plain, ours = own.outcomes("plain"), own.outcomes("ours")
    passed = [name for name, (outcome, _) in plain["outcomes"].items() if outcome == "passed"]
    assert len(passed) > 100  # they were run
    assert ours["replaced"] >= 10  # and had our classes in their hands
    lost = own.lost(plain, ours)
    assert set(lost) == set(DIFFERENT), "\n\n".join(f"{name}: {text}" for name, text in lost.items())
