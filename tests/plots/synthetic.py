"""Recordings of made-up runs, healthy and sick, at any size."""

import numpy as np

from keras_introspect.recording import Recording

LEVELS = np.linspace(0, 100, 9)
NORMAL = np.array([-3.2, -1.15, -0.674, -0.319, 0.0, 0.319, 0.674, 1.15, 3.2])
HALF_NORMAL = np.array([1e-4, 0.157, 0.319, 0.489, 0.674, 0.887, 1.15, 1.534, 3.2])
VIEWS = ("weights", "gradients", "updates", "layer_outputs", "output_gradients")


def names_of(layers: int) -> list[str]:
    return [
        f"stage_{i // 10}/block_{i % 10}_bottleneck_with_a_long_name" if layers > 20 else f"conv_{i}"
        for i in range(layers - 1)
    ] + ["head"]


def synthetic(
    layers: int = 6,
    epochs: int = 20,
    sick: bool = False,
    steps: int = 0,
    views: tuple[str, ...] = VIEWS,
    gaps: bool = False,
    phases: bool = False,
    seed: int = 0,
) -> Recording:
    """A run of `layers` layers (a kernel and a bias each).

    Args:
        sick: the second layer dies, gradients vanish towards the input, and the last epochs hold non-finite values.
        steps: per-step losses an epoch; 0 = none.
        phases: the inference phase of the layer outputs, too.
        gaps: every fifth epoch has not been observed.
    """
    random = np.random.default_rng(seed)
    recording = Recording()
    views += ("val_layer_outputs",) * ("layer_outputs" in views and phases)
    names = names_of(layers)
    variables = [f"{name}/{kind}" for name in names for kind in ("kernel", "bias")]
    kernel_shapes = [shape for i in range(layers) for shape in ((3, 3, 32, 64), (64,))]
    output_shapes = [(None, 14, 14, 64)] * (layers - 1) + [(None, 10)]
    depth = np.linspace(1, 0, layers) if layers > 1 else np.zeros(1)
    base = 10 ** random.normal(0, 0.15, layers)
    dead = np.zeros(layers)
    for epoch in range(epochs):
        progress = (epoch + 1) / max(epochs, 1)
        loss = 2.3 * np.exp(-3 * progress) + 0.05 * random.random()
        values = {"loss": loss, "accuracy": 1 - loss / 2.6}
        values |= {"val_loss": loss * 1.1 + 0.2 * progress**2, "val_accuracy": 1 - loss / 2.4}
        if sick and progress > 0.8 and epochs > 2:
            values["loss"] = np.nan
        recording.add_logs(epoch, values)
        if gaps and epoch % 5 == 2:
            continue
        wobble = 10 ** random.normal(0, 0.25 if sick else 0.04, layers)
        gradient = 0.02 * base * wobble * np.exp(-2 * progress)
        if sick:
            gradient = gradient * 10 ** (-7 * depth)
            if layers > 1:
                dead[1] = min(0.9, progress)
            if layers > 4:
                dead[3] = 0.12
        active = np.full(layers, 0.5) - 0.05 * random.random(layers) - dead * 0.5
        active[-1] = 1.0
        scale = {
            "weights": 0.05 * base * (1 + 0.4 * progress),
            "gradients": gradient,
            "updates": 5e-5 * base * wobble,
            "layer_outputs": 0.8 * base * wobble,
            "output_gradients": gradient * 0.1,
            "val_layer_outputs": 0.8 * base * wobble * np.where(depth < 0.5, 4.0 if sick else 1.05, 1.0),
        }
        for view in views:
            of_layers = view in ("layer_outputs", "output_gradients", "val_layer_outputs")
            rms = scale[view] if of_layers else np.repeat(scale[view], 2) * np.tile([1, 0.4], layers)
            statistics = moments(rms, random)
            statistics["quantiles"] = rms[:, None] * NORMAL
            statistics["magnitude_quantiles"] = rms[:, None] * HALF_NORMAL
            statistics["sign_balance"] = random.normal(0, 0.1, len(rms))
            if view == "updates":
                statistics["update_ratio"] = rms / (np.repeat(scale["weights"], 2) * np.tile([1, 0.4], layers))
                statistics["implicit_learning_rate"] = np.full(len(rms), 1e-3)
            units = None
            if view == "layer_outputs":
                statistics |= {"activation_rate": active, "dead_rate": dead.copy(), "spatial_dead_rate": dead * 0.3}
                width = [shape[-1] for shape in output_shapes]
                rates = {
                    n: np.clip(random.normal(a, 0.2, w), 0, 1) for n, a, w in zip(names, active, width, strict=True)
                }
                units = {"activation_rate": rates}
                statistics["magnitude_quantiles"] = np.where(LEVELS < 50, 0, statistics["magnitude_quantiles"])
                statistics["magnitude_quantiles"][-1] = rms[-1] * HALF_NORMAL
            if sick and progress > 0.8 and epochs > 2 and view == "gradients":
                statistics["nonfinite"][: len(rms) // 2] = 17
            recording.add_epoch(
                view,
                epoch,
                names if of_layers else variables,
                output_shapes if of_layers else kernel_shapes,
                statistics,
                units,
                LEVELS,
            )
        if steps:
            scatter = loss * np.exp(random.normal(0, 0.6 if sick else 0.2, steps))
            at = epoch * steps + np.arange(steps)
            recording.add_steps("metrics", at, ["metrics"], [()], {"loss": scatter[:, None]})
    return recording


def moments(rms: np.ndarray, random: np.random.Generator) -> dict[str, np.ndarray]:
    mean = rms * random.normal(0, 0.05, len(rms))
    return {
        "mean": mean,
        "std": np.sqrt(rms**2 - mean**2),
        "rms": rms,
        "min": -3 * rms,
        "max": 3 * rms,
        "nonfinite": np.zeros(len(rms)),
    }
