"""Cells of the table under two replicas: `python tests/compatibility/replicas.py NAME ...`.

In a process of its own, since devices are fixed when TensorFlow starts. The same check as for every other cell, but
that the model is built and trained in the scope of a `MirroredStrategy`. The spies see one device, with the same global
batches; so the nets have no batch normalisation, which is each replica's own, and draw no random numbers.
"""

import sys
import traceback
from pathlib import Path

NAMES = (
    "named_inputs_and_outputs",
    "shared_layer",
    "nested_functional",
    "densely_connected",
    "embedding",
    "lstm",
    "structured_outputs",
    "rematerialised",
    "frozen",
)


def main(names: list[str]) -> int:
    import tensorflow as tf

    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    from compatibility.checks import PLAIN_FAILS, check, check_that_plain_keras_fails
    from compatibility.modes import MIRRORED
    from compatibility.own_steps import CONSTRUCTS

    failed = 0
    for name in names:
        try:
            fails = (name, MIRRORED.name) in PLAIN_FAILS
            (check_that_plain_keras_fails if fails else check)(CONSTRUCTS[name], MIRRORED)
        except Exception:
            failed += 1
            print(name)
            traceback.print_exc(file=sys.stdout)
    return failed


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    sys.exit(main(sys.argv[1:] or list(NAMES)))
