import pickle

import pytest

from keras_introspect.errors import (
    NamesItsArguments,
    UnknownArgumentError,
    UnknownNameError,
    WrongTypeError,
    a,
    as_names,
    unknown_name,
)


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


@pytest.mark.parametrize("word", ["int", "IntrospectiveModel", "Axes", "unusedThing", "Ordinary", "uninteresting"])
def test_an_before_a_vowel(word):
    assert a(word) == f"an {word}"


@pytest.mark.parametrize("word", ["str", "NoneType", "UserModel", "UNet", "uint8", "Unit", "Eurostat", "OneHot", ""])
def test_a_before_a_consonant(word):
    assert a(word) == f"a {word}"


@pytest.mark.parametrize("wrong", [3, None, b"conv", {"conv": 1}, [3], ["conv", None]])
def test_what_is_no_names_is_said(wrong):
    with pytest.raises(WrongTypeError, match=r"layers was given .*expected a name \(str\), a glob such as 'conv\*'"):
        as_names(wrong, "layers")


class Base(NamesItsArguments):
    def __init__(self, first=None, per_step=False):
        if first == "fault":
            raise TypeError("another one")


class Passing(Base):
    def __init__(self, own=1, **kwargs):
        self.taken = kwargs.pop("taken", None)
        super().__init__(**kwargs)


def test_an_unknown_argument_names_the_class_that_was_written_its_arguments_and_the_nearest():
    with pytest.raises(UnknownArgumentError) as caught:
        Passing(perstep=True)
    assert str(caught.value) == (
        "Unknown argument of Passing(): 'perstep'. Expected one of: 'own', 'first', 'per_step'. "
        "Did you mean 'per_step'?"
    )
    assert isinstance(caught.value, TypeError)
    assert isinstance(caught.value, ValueError)
    assert Passing(own=2, taken=3, first=4).taken == 3
    with pytest.raises(TypeError, match="another one"):
        Passing(first="fault")
