import pickle

import pytest

from keras_introspect.errors import UnknownNameError, unknown_name


def test_is_what_a_mapping_and_what_a_bad_argument_raises():
    error = unknown_name("view", "x", ["y"])
    assert isinstance(error, UnknownNameError)
    assert isinstance(error, KeyError)
    assert isinstance(error, ValueError)


def test_text_is_not_quoted_as_a_key_errors_is():
    assert str(unknown_name("view", "x", ["alpha"])) == "Unknown view: 'x'. Expected one of: 'alpha'."
    assert str(UnknownNameError()) == ""


def test_says_the_nearest_name_and_how_to_mend():
    text = str(unknown_name("layer", "cnov1", ["conv1", "dense"], "Layers are named by their path."))
    assert text == (
        "Unknown layer: 'cnov1'. Expected one of: 'conv1', 'dense'. Did you mean 'conv1'? "
        "Layers are named by their path."
    )


def test_guesses_nothing_where_nothing_is_near():
    assert "Did you mean" not in str(unknown_name("layer", "zzz", ["conv1"]))


def test_says_that_nothing_exists():
    assert str(unknown_name("step series", "rms", [])) == "Unknown step series: 'rms'. There is no step series here."


@pytest.mark.parametrize(("count", "cut"), [(40, False), (41, True)])
def test_long_lists_are_cut_and_counted(count, cut):
    text = str(unknown_name("layer", 3, (f"layer{i}" for i in range(count))))
    assert "'layer39'" in text
    assert ("'layer40'" in text) is False
    assert (f"({count} in all)" in text) is cut


def test_survives_pickling():
    error = unknown_name("view", "x", ["y"])
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
