"""Programs for processes of their own: to be killed, to have other devices, to have little memory.

`run_program("name", folder)` runs the function of that name, here, in another Python.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def start_program(name: str, *arguments: Any, **environment: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "ignore", __file__, name, *map(str, arguments)]
    variables = {**os.environ, "PYTHONPATH": f"{HERE}{os.pathsep}{HERE.parent}", **environment}
    return subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run_program(name: str, *arguments: Any, **environment: str) -> str:
    """Runs it to its end, which must be a good one; returns what it printed."""
    process = start_program(name, *arguments, **environment)
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, f"{name} ended with {process.returncode}:\n{out}\n{err[-6000:]}"
    return out


# --- the programs ---


def replicas(folder: str, *pairs: str) -> None:
    """Saves on two replicas and loads on one, and the reverse, in the middle of an epoch."""
    import keras
    import numpy as np
    import tensorflow as tf

    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
    )
    from tiny import assert_same, build, compiled, data, train

    def strategy(replicas: int) -> Any:
        return tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(replicas)])

    def model_of(replicas: int) -> Any:
        with strategy(replicas).scope():
            model = compiled(build("functional"), run_eagerly=False)
            model.optimizer.build(model.trainable_variables)
            return model

    def whole_model(model: Any, replicas: int) -> Any:
        model.save(f"{folder}/m.keras")
        with strategy(replicas).scope():
            return keras.saving.load_model(f"{folder}/m.keras")

    def checkpoint(model: Any, replicas: int) -> Any:
        saved = tf.train.Checkpoint(model=model).save(f"{folder}/ckpt")
        loaded = model_of(replicas)
        tf.train.Checkpoint(model=loaded).restore(saved)
        return loaded

    x, y = data(16)
    # The weights stay still, so that one replica and two see the same numbers.
    for pair in pairs:
        save_on, load_on = map(int, pair)
        ways = (whole_model, checkpoint)
        for way in ways if len(pairs) > 2 else ways[save_on - 1 : save_on]:
            with strategy(save_on).scope():
                optimizer = keras.optimizers.Adam(0.0, name="adam")
                model = compiled(build("functional"), optimizer=optimizer, run_eagerly=False)
            train(model, 1)
            model.train_on_batch(x[:8], y[:8])
            loaded = way(model, load_on)
            assert_same(model.recording, loaded.recording)
            loaded.optimizer.learning_rate = 0.0
            loaded.train_on_batch(x[8:], y[8:])
            loaded._introspection_observer.reading.end_epoch(loaded, 1)
            # Keras gives every replica the whole of the batch of train_on_batch.
            seen = np.concatenate([x[:8]] * save_on + [x[8:]] * load_on)
            outputs, hidden = loaded.recording["layer_outputs"], loaded.get_layer("hidden")(seen).numpy()
            assert outputs.epoch("count")[1].tolist() == [len(seen) * 6, len(seen)], (save_on, load_on, way)
            np.testing.assert_allclose(outputs.epoch("mean")[1, 0], hidden.mean(), rtol=1e-5)
            np.testing.assert_allclose(outputs.epoch("std")[1, 0], hidden.std(), rtol=1e-5)
            gradients = loaded.recording["gradients"]
            assert gradients.epoch("count")[1].tolist() == [2 * 24, 2 * 6, 2 * 6, 2], (save_on, load_on, way)
            assert gradients.steps.tolist() == [0, 1, 2, 3, 4]


EPOCHS = 6


def killed(folder: str, trials: str, seed: str) -> None:
    """Trains under BackupAndRestore, is killed at random moments, starts again until done: as if never interrupted.

    Each training is a process of its own, forked from this one, which imports TensorFlow but never runs it.
    """
    import random
    import shutil
    import time

    import keras

    import keras_introspect as ki
    from tiny import assert_same, build, compiled, train

    def start(name: str) -> tuple[int, int]:
        """Forks a training; returns its process id and the end of a pipe that tells when it began."""
        reading, writing = os.pipe()
        pid = os.fork()
        if pid:
            os.close(writing)
            return pid, reading
        model = compiled(build("functional"))
        began = keras.callbacks.LambdaCallback(on_train_begin=lambda logs: os.write(writing, b"."))
        train(model, EPOCHS, callbacks=[keras.callbacks.BackupAndRestore(f"{folder}/{name}"), began])
        model.recording.save(f"{folder}/{name}.npz")
        os._exit(0)

    def finish(pid: int) -> None:
        assert os.waitpid(pid, 0)[1] == 0

    def whole(backup: Path) -> bool:
        """Whether Keras's two files fit each other: it writes neither at once, nor both together."""
        try:
            epoch = json.loads((backup / "training_metadata.json").read_text())["epoch"]
            return ki.Recording.load(backup / "latest.weights.h5").epochs.tolist() == list(range(epoch))
        except (OSError, ValueError):
            return False

    pid, reading = start("unbroken")
    os.read(reading, 1)
    began = time.monotonic()
    finish(pid)
    duration = time.monotonic() - began
    unbroken = ki.Recording.load(f"{folder}/unbroken.npz")
    assert unbroken.epochs.tolist() == list(range(EPOCHS))

    rng = random.Random(int(seed))
    kills = torn = resumed = 0
    for trial in range(int(trials)):
        name, backup, good = f"trial{trial}", Path(folder, f"trial{trial}"), Path(folder, f"good{trial}")
        for _ in range(rng.randint(1, 3)):
            pid, reading = start(name)
            os.read(reading, 1)
            os.close(reading)
            time.sleep(rng.uniform(0.0, duration))
            os.kill(pid, signal.SIGKILL)
            kills += os.waitpid(pid, 0)[1] == signal.SIGKILL
            if backup.exists() and not whole(backup):  # Keras alone could not go on from here either
                torn += 1
                shutil.rmtree(backup)
                if good.exists():
                    shutil.copytree(good, backup)
            if backup.exists():
                shutil.copytree(backup, good, dirs_exist_ok=True)
        resumed += backup.exists()
        finish(start(name)[0])
        assert_same(unbroken, ki.Recording.load(f"{folder}/{name}.npz"))
    print(
        f"{trials} trials, {kills} kills, {resumed} resumed from a backup, {torn} times Keras's backup was half written"
    )
    assert kills >= int(trials) // 2


def hostile(folder: str, name: str, mutations: str, seed: str) -> None:
    """Reads mutations of a file, or of the files of a checkpoint or of shards: the same recording, or a clear error.

    Each in little memory, and in a process of its own that may not crash: HDF5 and TensorFlow are written in C.
    """
    import random
    import resource
    import shutil

    import keras_introspect as ki
    from mutations import changed

    path = Path(folder, name)
    files = sorted(p for p in path.parent.iterdir() if p.is_file() and p.name != "checkpoint")
    original = ki.Recording.load(path).to_bytes()  # imports what it needs before memory gets scarce
    size = sum(file.stat().st_size for file in files)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limit = used + 50 * size + 300 * 2**20  # address space: libraries map more than they touch
    work = Path(folder).with_name("work")
    rng = random.Random(int(seed))
    refused = same = 0
    for number in range(int(mutations)):
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(path.parent, work)
        victim = work / rng.choice(files).name
        victim.write_bytes(changed(victim.read_bytes(), number, rng))
        pid = os.fork()
        if not pid:
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
            os.chdir(work)
            code = 3
            try:
                code = 0 if ki.Recording.load(work / path.name).to_bytes() == original else 4
            except ValueError as error:
                code = 1 if str(error).startswith("Cannot read") and "Memory" not in str(error) else 5
            except FileNotFoundError:
                code = 1
            finally:
                os._exit(code)
        status = os.waitpid(pid, 0)[1]
        code = os.waitstatus_to_exitcode(status)
        if code not in (0, 1):
            shutil.copytree(work, Path(folder).with_name(f"bad{number}"))
        assert code in (0, 1), f"mutation {number} of {victim.name} ended with {code}"
        assert not (work / "unpickled").exists(), f"mutation {number} of {victim.name} ran code"
        refused, same = refused + code, same + (code == 0)
    print(f"{name}: {refused} refused, {same} read as the recording that it is")


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    globals()[sys.argv[1]](*sys.argv[2:])
