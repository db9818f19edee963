"""One cell of the table: a construct trained in a mode, as plain Keras, as ours, and under the spies."""

import contextlib
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np

import oracle
from compatibility import spies
from compatibility.cases import OURS, PLAIN, Construct, Kit, collectors, prepared
from compatibility.constructs import NO_GRADIENT, ONLY_SUMS
from compatibility.modes import MODES, Mode

# construct, mode → why plain Keras itself fails; a test holds that it does, so that we learn when it no longer does.
PLAIN_FAILS: dict[tuple[str, str], str] = {
    ("while_loop", "xla"): "XLA must know how often a loop runs before it can differentiate it",
    ("transformer", "class_weights"): "class weights are a number a sample, and here each token has a label",
    ("rematerialised", "mirrored"): "TensorFlow's custom gradients take no keyword arguments inside a replica",
}
# construct, mode → a piece of every reason given for what is not observed, where it is not that of the construct.
PARTIAL: dict[tuple[str, str], str | None] = {}
# The same for loops that Python runs, which have no other reason.
EAGERLY = dict.fromkeys(("convolutional_lstm", "encoder_decoder", "masks"), NO_GRADIENT)
# Of the weights, absolute, where plain Keras itself does not come to the same bits twice.
ROUNDING = 1e-6
# construct, mode → why the spies watch the construct itself, and not what stands in for it elsewhere.
WITHOUT_ORACLE = {("map", "eager"): "keras.ops.map calls its function once more, for shapes, and really computes it"}
EAGER: dict[str, Any] = {"run_eagerly": True, "jit_compile": False, "steps_per_execution": 1}


@contextlib.contextmanager
def policy(name: str) -> Iterator[None]:
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(name)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


def partial_of(construct: Construct, mode: Mode) -> str | None:
    if mode.name == "eager" and construct.partial == ONLY_SUMS:
        return EAGERLY.get(construct.name)  # Python runs the loop: its tensors are like all others
    return PARTIAL.get((construct.name, mode.name), construct.partial)


def check(construct: Construct, mode: Mode, kit: Kit = OURS) -> bool:
    """Raises if anything is not as the table says; else says whether the weights are the same to the last bit."""
    with policy(mode.policy):
        plain = prepared(construct.build, PLAIN, mode.scope)
        with mode.scope():
            mode.train(plain, {})
        ours = prepared(construct.build, kit, mode.scope)
        with mode.scope():
            mode.train(ours, {"collectors": collectors()})
        found = differences_of_weights(plain.model, ours.model, construct, mode)
        spy = spies.Spy()
        as_it_is = (construct.name, mode.name) in WITHOUT_ORACLE
        watched = prepared(construct.build if as_it_is else construct.oracle or construct.build, PLAIN)
        with spies.spying(spy):
            mode.train(watched, EAGER, callbacks=[spy])
    recording = ours.model.recording
    difference = spies.compare(recording, spy, max(construct.tolerance, mode.tolerance))
    found += difference.wrong
    found += unexplained(difference, recording, partial_of(construct, mode), construct.may_be_partial)
    assert not found, f"{len(found)} problems:\n" + "\n".join(found[:40])
    return not differences_of_bits(plain.model, ours.model)


def differences_of_weights(plain: Any, ours: Any, construct: Construct, mode: Mode) -> list[str]:
    if mode.exact and construct.repeatable:
        return differences_of_bits(plain, ours)
    return differences_to_rounding(plain, ours, mode.weights_tolerance or ROUNDING)


def differences_of_bits(plain: Any, ours: Any) -> list[str]:
    found = []
    if not oracle.same_bits(ours.get_weights(), plain.get_weights()):
        found.append("the weights are not those of plain Keras")
    if not oracle.same_bits(oracle.optimizer_values(ours.optimizer), oracle.optimizer_values(plain.optimizer)):
        found.append("the optimizer's variables are not those of plain Keras")
    return found


def differences_to_rounding(plain: Any, ours: Any, tolerance: float) -> list[str]:
    pairs = zip(plain.get_weights(), ours.get_weights(), strict=True)
    far = [float(np.abs(a - b).max()) for a, b in pairs if not np.allclose(a, b, rtol=0, atol=tolerance)]
    return [f"the weights are not those of plain Keras, by up to {max(far)}"] if far else []


def unexplained(
    difference: spies.Difference, recording: Any, partial: str | None, may_be_partial: bool = False
) -> list[str]:
    """What is absent from the recording and not named in `unobserved` with the reason that the table states."""
    found = []
    for (view, name), statistics in difference.absent.items():
        said = [
            reason
            for key, reason in recording.unobserved.items()
            if name in key and view in reason and (may_be_partial or (partial and partial in reason))
        ]
        if not said:
            found.append(f"{view} {name}: no {sorted(statistics)}, and unobserved says {recording.unobserved}")
    if may_be_partial:
        return found
    if partial and not any(partial in reason for reason in recording.unobserved.values()):
        found.append(f"the table says that something is unobserved because {partial!r}: {recording.unobserved}")
    if not partial and recording.unobserved:
        found.append(f"the table says that all is observed; unobserved has {recording.unobserved}")
    return found


def check_that_plain_keras_fails(construct: Construct, mode: Mode) -> None:
    """A strict expected failure."""
    with policy(mode.policy):
        case = prepared(construct.build, PLAIN, mode.scope)
        try:
            with mode.scope():
                mode.train(case, {})
        except Exception:  # whatever Keras or TensorFlow raises
            return
    raise AssertionError(f"plain Keras trains {construct.name} in mode {mode.name} now: take it out of PLAIN_FAILS")


GRAPH = MODES["graph"]
