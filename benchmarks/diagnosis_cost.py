"""What judging an epoch costs: python -m benchmarks.diagnosis_cost

A made-up training of many layers is judged after each epoch, as the callback `Alerts` does it.
"""

import argparse
import time

import numpy as np

from keras_introspect.diagnosis import Evidence, chosen_rules, judge
from keras_introspect.recording import Recording

VIEWS = ("weights", "gradients", "updates", "layer_outputs", "output_gradients")
LEVELS = np.linspace(0, 100, 9)


def add_epoch(recording: Recording, epoch: int, layers: int, random: np.random.Generator) -> None:
    """A kernel and a bias a layer, all statistics of the preset `"all"`."""
    names = [f"layer{i}" for i in range(layers)]
    variables = [f"{name}/{kind}" for name in names for kind in ("kernel", "bias")]
    recording.add_logs(epoch, {"loss": 2 * np.exp(-epoch / 20), "accuracy": 1 - np.exp(-epoch / 20)})
    for view in VIEWS:
        of_layers = "output" in view
        rows = names if of_layers else variables
        shapes = [(None, 14, 14, 64)] * layers if of_layers else [(3, 3, 64, 64), (64,)] * layers
        rms = 0.1 * 10 ** random.normal(0, 0.1, len(rows))
        values = {"rms": rms, "mean": 0.1 * rms, "std": rms, "min": -3 * rms, "max": 3 * rms, "l2_norm": 100 * rms}
        values |= {"count": np.full(len(rows), 1e4), "nonfinite": np.zeros(len(rows)), "mean_abs": 0.8 * rms}
        values |= {"activation_rate": np.full(len(rows), 0.5), "dead_rate": np.zeros(len(rows))}
        values |= {"quantiles": rms[:, None] * LEVELS, "magnitude_quantiles": rms[:, None] * LEVELS}
        if view == "updates":
            values["update_ratio"] = 1e-2 * rms
        recording.add_epoch(view, epoch, rows, shapes, values, quantile_levels=LEVELS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, nargs="+", default=[20, 160])
    parser.add_argument("--epochs", type=int, default=200)
    arguments = parser.parse_args()
    for layers in arguments.layers:
        random, recording, rules = np.random.default_rng(0), Recording(), chosen_rules()
        about = [{"name": f"layer{i}", "class": "Dense", "trainable": True} for i in range(layers)]
        description = {"layers": about, "losses": [{"output": "", "loss": "mean_squared_error", "from_logits": False}]}
        times = []
        for epoch in range(arguments.epochs):
            add_epoch(recording, epoch, layers, random)
            start = time.process_time()
            judge(Evidence(recording, description), rules)
            times.append(time.process_time() - start)
        print(
            f"{layers:4d} layers, {arguments.epochs} epochs: {1e3 * np.median(times):.1f} ms an epoch, "
            f"{1e3 * np.mean(times[-10:]):.1f} ms at the end (processor time)"
        )


if __name__ == "__main__":
    main()
