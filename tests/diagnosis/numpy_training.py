"""Trains dense networks in NumPy and records them as the collectors would: real dynamics in milliseconds, no Keras."""

from itertools import pairwise
from typing import Any

import numpy as np

from keras_introspect.recording import Recording

LEVELS = np.linspace(0, 100, 9)


def _softmax(z: np.ndarray) -> np.ndarray:
    e = np.exp(z - z.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def _sigmoid(z: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-np.clip(z, -60, 60)))


ACTIVATIONS = {
    "linear": lambda z: z,
    "relu": lambda z: np.maximum(z, 0),
    "leaky_relu": lambda z: np.where(z > 0, z, 0.2 * z),
    "tanh": np.tanh,
    "sigmoid": _sigmoid,
    "softmax": _softmax,
}
SLOPES = {
    "linear": lambda z, a: np.ones_like(z),
    "relu": lambda z, a: (z > 0).astype(z.dtype),
    "leaky_relu": lambda z, a: np.where(z > 0, 1.0, 0.2),
    "tanh": lambda z, a: 1 - a**2,
    "sigmoid": lambda z, a: a * (1 - a),
}
EPSILON = 1e-7


class Net:
    """Dense layers with one head.

    Args:
        sizes: inputs, hidden units, head units.
        hidden: activation of the hidden layers.
        head: activation of the head.
        loss: its canonical name; `from_logits` is said apart.
        optimizer: `"sgd"` or `"adam"`.
        start: from (random, inputs, outputs) to a kernel; `"glorot"`, `"he"` or a function.
        l2: penalty on every kernel.
        dropout: rate behind each hidden layer.
    """

    def __init__(
        self,
        sizes: list[int],
        hidden: str = "relu",
        head: str = "softmax",
        loss: str = "sparse_categorical_crossentropy",
        optimizer: str = "adam",
        rate: float = 1e-3,
        momentum: float = 0.0,
        start: Any = "glorot",
        l2: float = 0.0,
        dropout: float = 0.0,
        from_logits: bool = False,
        accuracy: bool = True,
        seed: int = 0,
    ) -> None:
        self.random = np.random.default_rng(seed)
        self.activations = [hidden] * (len(sizes) - 2) + [head]
        self.loss, self.optimizer, self.rate, self.momentum = loss, optimizer, rate, momentum
        self.l2, self.dropout, self.from_logits, self.accuracy = l2, dropout, from_logits, accuracy
        self.names = [f"hidden{i}" for i in range(1, len(sizes) - 1)] + ["head"]
        self.sizes = sizes
        self.start_name = start if isinstance(start, str) else "custom"
        self.kernels = [self._kernel(start, a, b) for a, b in pairwise(sizes)]
        self.biases = [np.zeros(b) for b in sizes[1:]]
        self.slots = [[np.zeros_like(v), np.zeros_like(v)] for v in self.variables]
        self.steps = 0

    def _kernel(self, start: Any, a: int, b: int) -> np.ndarray:
        if start == "glorot":
            limit = np.sqrt(6 / (a + b))
            return self.random.uniform(-limit, limit, (a, b))
        if start == "he":
            return self.random.normal(0, np.sqrt(2 / a), (a, b))
        return np.asarray(start(self.random, a, b), float)

    @property
    def variables(self) -> list[np.ndarray]:
        return [v for pair in zip(self.kernels, self.biases, strict=True) for v in pair]

    def forward(self, x: np.ndarray, training: bool = False) -> tuple[list[np.ndarray], list[np.ndarray], list[Any]]:
        inputs, pre, outputs, masks = x, [], [], []
        for i, (kernel, bias) in enumerate(zip(self.kernels, self.biases, strict=True)):
            z = inputs @ kernel + bias
            a = ACTIVATIONS[self.activations[i]](z)
            pre.append(z)
            outputs.append(a)
            mask = None
            inputs = a
            if training and self.dropout and i < len(self.kernels) - 1:
                mask = (self.random.random(a.shape) >= self.dropout) / (1 - self.dropout)
                inputs = a * mask
            masks.append(mask)
        return pre, outputs, masks

    def value(self, out: np.ndarray, y: np.ndarray) -> float:
        if self.loss == "mean_squared_error":
            return float(np.mean((out - y) ** 2))
        if self.loss == "mean_absolute_error":
            return float(np.mean(np.abs(out - y)))
        if self.loss == "binary_crossentropy":
            p = np.clip(_sigmoid(out) if self.from_logits else out, EPSILON, 1 - EPSILON)
            return float(-np.mean(y * np.log(p) + (1 - y) * np.log(1 - p)))
        p = _softmax(out) if self.from_logits else out / np.maximum(out.sum(axis=-1, keepdims=True), 1e-30)
        p = np.clip(p, EPSILON, 1 - EPSILON)
        return float(-np.mean(np.log(p[np.arange(len(y)), y.astype(int).ravel()])))

    def slope(self, z: np.ndarray, out: np.ndarray, y: np.ndarray) -> np.ndarray:
        """d loss / d z of the head."""
        n, act = len(out), self.activations[-1]
        if self.loss == "mean_squared_error":
            d = 2 * (out - y) / out.size
        elif self.loss == "mean_absolute_error":
            d = np.sign(out - y) / out.size
        elif self.loss == "binary_crossentropy":
            if self.from_logits or act == "sigmoid":
                return (_sigmoid(z) - y) / out.size
            p = np.clip(out, EPSILON, 1 - EPSILON)
            d = np.where((out > EPSILON) & (out < 1 - EPSILON), (p - y) / (p * (1 - p)), 0) / out.size
        else:
            hot = np.eye(out.shape[1])[y.astype(int).ravel()]
            if self.from_logits or act == "softmax":
                return (_softmax(z) - hot) / n
            total = np.maximum(out.sum(axis=-1, keepdims=True), 1e-30)
            p = np.clip(out / total, EPSILON, 1)
            d = (-hot / p / total + 1 / total) / n
        if act == "softmax":
            return out * (d - (d * out).sum(axis=-1, keepdims=True))
        return d * SLOPES[act](z, out)

    def step(self, x: np.ndarray, y: np.ndarray) -> dict[str, Any]:
        pre, outputs, masks = self.forward(x, training=True)
        loss = self.value(outputs[-1], y) + self.l2 * sum(float(np.sum(k**2)) for k in self.kernels)
        delta = self.slope(pre[-1], outputs[-1], y)
        gradients: list[np.ndarray] = [np.zeros(0)] * (2 * len(self.kernels))
        above: list[np.ndarray] = [np.zeros(0)] * len(self.kernels)
        for i in reversed(range(len(self.kernels))):
            inputs = x if i == 0 else outputs[i - 1] if masks[i - 1] is None else outputs[i - 1] * masks[i - 1]
            gradients[2 * i] = inputs.T @ delta + 2 * self.l2 * self.kernels[i]
            gradients[2 * i + 1] = delta.sum(axis=0)
            if i:
                d = delta @ self.kernels[i].T
                if masks[i - 1] is not None:
                    d = d * masks[i - 1]
                above[i - 1] = d
                delta = d * SLOPES[self.activations[i - 1]](pre[i - 1], outputs[i - 1])
        updates = self._update(gradients)
        return {"loss": loss, "layer_outputs": outputs, "gradients": gradients, "updates": updates, "above": above[:-1]}

    def _update(self, gradients: list[np.ndarray]) -> list[np.ndarray]:
        self.steps += 1
        updates = []
        for variable, gradient, slot in zip(self.variables, gradients, self.slots, strict=True):
            if self.optimizer == "sgd":
                slot[0] = self.momentum * slot[0] - self.rate * gradient
                update = slot[0]
            else:
                slot[0] = 0.9 * slot[0] + 0.1 * gradient
                slot[1] = 0.999 * slot[1] + 0.001 * gradient**2
                first, second = slot[0] / (1 - 0.9**self.steps), slot[1] / (1 - 0.999**self.steps)
                update = -self.rate * first / (np.sqrt(second) + 1e-7)
            variable += update
            updates.append(np.array(update))
        return updates

    def metrics(self, x: np.ndarray, y: np.ndarray) -> dict[str, float]:
        out = self.forward(x)[1][-1]
        found = {"loss": self.value(out, y) + self.l2 * sum(float(np.sum(k**2)) for k in self.kernels)}
        if self.accuracy:
            if out.shape[1] > 1 and (y.ndim == 1 or y.shape[1] == 1):
                right = out.argmax(axis=1) == y.ravel()
            elif out.shape[1] > 1:
                right = out.argmax(axis=1) == y.argmax(axis=1)
            else:
                right = (out > (0.0 if self.from_logits else 0.5)) == y
            found["accuracy"] = float(np.mean(right))
        return found

    def describe(self) -> dict[str, Any]:
        initializer = {"glorot": "GlorotUniform", "he": "HeNormal"}.get(self.start_name, "RandomNormal")
        layers = [
            {
                "name": name,
                "class": "Dense",
                "trainable": True,
                "activation": act,
                "units": len(bias),
                "kernel_initializer": {"class": initializer},
                **({"regularizers": {"kernel_regularizer": {"l2": self.l2}}} if self.l2 else {}),
            }
            for name, act, bias in zip(self.names, self.activations, self.biases, strict=True)
        ]
        head = {"name": "head", "class": "Dense", "units": self.sizes[-1], "activation": self.activations[-1]}
        name = {"sgd": "SGD", "adam": "Adam"}[self.optimizer]
        return {
            "layers": layers,
            "outputs": [head],
            "losses": [{"output": "", "loss": self.loss, "from_logits": self.from_logits}],
            "optimizer": {"name": name, "learning_rate": self.rate, "momentum": self.momentum},
            "custom_step": False,
        }

    def fit(
        self,
        x: np.ndarray,
        y: np.ndarray,
        epochs: int = 15,
        batch: int = 32,
        validation: float = 0.2,
        describe: bool = True,
    ) -> Recording:
        """Trains, and returns what was observed: all views, moments, activity and quantiles."""
        recording = Recording()
        x = np.asarray(x, float)
        y = np.asarray(y, float)
        y = y[:, None] if y.ndim == 1 and self.sizes[-1] == 1 else y
        cut = len(x) - int(len(x) * validation)
        xv, yv, x, y = x[cut:], y[cut:], x[:cut], y[:cut]
        variables = [f"{name}/{kind}" for name in self.names for kind in ("kernel", "bias")]
        shapes = [v.shape for v in self.variables]
        outputs = [(None, len(b)) for b in self.biases]
        for epoch in range(epochs):
            seen: dict[str, list[Any]] = {"layer_outputs": [], "gradients": [], "updates": [], "above": []}
            losses, first = [], self.steps
            order = self.random.permutation(len(x))
            for start in range(0, len(x), batch):
                at = order[start : start + batch]
                found = self.step(x[at], y[at])
                losses.append(found["loss"])
                for key, values in seen.items():
                    values.append(found[key])
            logs = self.metrics(x, y) | {"loss": float(np.mean(losses))}
            if len(xv):
                logs |= {f"val_{key}": value for key, value in self.metrics(xv, yv).items()}
            recording.add_logs(epoch, logs)
            steps = np.arange(first, self.steps)
            recording.add_steps("metrics", steps, ["metrics"], [()], {"loss": np.array(losses)[:, None]})
            size = np.array([np.sqrt(np.mean(v**2)) for v in self.variables])
            for view, key, names, forms in (
                ("weights", None, variables, shapes),
                ("gradients", "gradients", variables, shapes),
                ("updates", "updates", variables, shapes),
                ("layer_outputs", "layer_outputs", self.names, outputs),
                ("output_gradients", "above", self.names[:-1], outputs[:-1]),
            ):
                if not names:
                    continue
                pooled = (
                    [v[None] for v in self.variables]
                    if key is None
                    else [
                        np.stack(steps) if len({s.shape for s in steps}) == 1 else np.concatenate(steps)
                        for steps in zip(*seen[key], strict=True)
                    ]
                )
                values = statistics(pooled, view)
                if view == "updates":
                    values["update_ratio"] = np.divide(
                        values["rms"], size, out=np.full(len(size), np.nan), where=size > 0
                    )
                recording.add_epoch(view, epoch, names, forms, values, quantile_levels=LEVELS)
        recording.metadata = {"optimizer": {"sgd": "SGD", "adam": "Adam"}[self.optimizer]}
        if describe:
            recording.metadata["description"] = self.describe()
        return recording


def statistics(tensors: list[np.ndarray], view: str) -> dict[str, np.ndarray]:
    """The statistics of each tensor, whose elements are those of an epoch."""
    rows: dict[str, list[Any]] = {}
    with np.errstate(all="ignore"):
        for tensor in tensors:
            finite = tensor[np.isfinite(tensor)]
            some = len(finite) > 0
            found = {
                "count": len(finite),
                "nonfinite": tensor.size - len(finite),
                "mean": finite.mean() if some else np.nan,
                "std": finite.std() if some else np.nan,
                "rms": np.sqrt(np.mean(finite**2)) if some else np.nan,
                "l2_norm": np.sqrt(np.sum(finite**2)) if some else np.nan,
                "mean_abs": np.abs(finite).mean() if some else np.nan,
                "min": finite.min() if some else np.nan,
                "max": finite.max() if some else np.nan,
                "activation_rate": np.mean(tensor != 0),
                "dead_rate": np.mean((tensor.reshape(-1, tensor.shape[-1]) == 0).all(axis=0)),
                "quantiles": np.percentile(finite, LEVELS) if some else np.full(len(LEVELS), np.nan),
                "magnitude_quantiles": np.percentile(np.abs(finite), LEVELS) if some else np.full(len(LEVELS), np.nan),
            }
            for key, value in found.items():
                rows.setdefault(key, []).append(value)
    return {key: np.array(values, float) for key, values in rows.items()}


def data_of(x: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    """The description of inputs and targets that a recording holds."""

    def about(values: np.ndarray) -> list[dict[str, Any]]:
        values = np.asarray(values, float)
        flat = values.reshape(-1, values.shape[-1]) if values.ndim > 1 else values[:, None]
        spread = flat.std(axis=0)
        return [
            {
                "name": "",
                "shape": [None, *values.shape[1:]],
                "dtype": "float32",
                "count": values.size,
                "min": float(values.min()),
                "max": float(values.max()),
                "mean": float(values.mean()),
                "std": float(values.std()),
                "feature_std_min": float(spread.min()),
                "feature_std_max": float(spread.max()),
                "integers": bool((values == np.round(values)).all()),
            }
        ]

    return {"inputs": about(x), "targets": about(y)}
