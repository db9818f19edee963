"""What the pictures read: checked input, the layers and epochs chosen, names and numbers that fit."""

import re
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np

from keras_introspect.diagnosis.places import is_kernel
from keras_introspect.errors import NOTHING_OBSERVED, UnknownNameError, a_type, unknown_name
from keras_introspect.recording import Recording, Series

Layers: TypeAlias = str | Iterable[str] | None
Iterations: TypeAlias = slice | range | Iterable[int] | None

MAX_EPOCHS = 1000  # more are thinned evenly: a picture has no more columns than that
METRICS = "metrics"  # the one view that holds no tensors
VIEWS = ("weights", "gradients", "updates", "layer_outputs", "output_gradients")

_COLLECT = (
    'observe tensors too: compile(…, collectors=[StepMetrics(), Gradients(), …]), or "default" for the usual ones'
)
_MEND = {
    "rms": 'Collect it with statistics=["moments", …] on the collector.',
    "nonfinite": 'Collect it with statistics=["moments", …] on the collector.',
    "activation_rate": 'Collect it with statistics=["activity", …] on the collector.',
    "dead_rate": 'Collect it with statistics=["activity", …] on the collector.',
    "quantiles": 'Collect it with statistics=["quantiles", …] on the collector.',
    "magnitude_quantiles": 'Collect it with statistics=["quantiles", …] on the collector.',
    "update_ratio": "It is what the collector Updates observes.",
}


class Chosen:
    """The layers and epochs of a series that a picture draws; answers always have the axes (T, L, …).

    Attributes:
        view: key of the view.
        names: the L tensors chosen.
        shapes: their shapes.
        epochs: shape (T,).
    """

    def __init__(
        self,
        series: Series,
        picture: str,
        needs: Sequence[str] = (),
        layers: Layers = None,
        iterations: Iterations = None,
    ) -> None:
        if not isinstance(series, Series):
            hint = _views_to_choose(series, picture) if isinstance(series, Recording) else ""
            raise ValueError(f"{picture}() got {a_type(series)}; expected a Series.{hint}")
        if layers is not None:
            series = series.sel(layers)
        if series.view == METRICS and not (needs and set(needs) <= set(series.statistics)):
            raise _of_batches(series, picture)
        if not len(series.names) or not len(series.epochs):
            raise ValueError(
                f"{picture}() got a series of {series.view!r} with {len(series.names)} tensors and "
                f"{len(series.epochs)} epochs; expected at least one of each. {_observe(series)}"
            )
        for statistic in needs:
            require(series, statistic)
        self.series = series
        self.view = series.view
        self.names = series.names
        self.shapes = series.shapes
        self.iterations = iterations
        self.rows = rows_of(series.epochs, iterations)
        self.epochs = series.epochs[self.rows]

    def has(self, statistic: str) -> bool:
        return statistic in self.series.statistics

    def epoch(self, statistic: str) -> np.ndarray:
        """Shape (T, L), or (T, L, Q); infinities, which have no place on an axis, are NaN."""
        value = self.series.epoch(statistic)
        value = (value[:, None] if self.series._single else value)[self.rows]
        return np.where(np.isfinite(value), value, np.nan)

    def kernels(self) -> "Chosen | None":
        """The kernels alone; `None` where all tensors are to be taken, see `kernel_rows`."""
        rows = kernel_rows(self.view, self.names, self.shapes)
        if rows is None:
            return None
        epochs = None if self.iterations is None else [int(epoch) for epoch in self.epochs]
        return Chosen(self.series, "", (), [self.names[i] for i in rows], epochs)

    @property
    def levels(self) -> np.ndarray:
        """Quantile levels in percent, shape (Q,)."""
        if self.series.quantile_levels is None:
            raise ValueError(f"The series of {self.view!r} has no quantile_levels. {_MEND['quantiles']}")
        return self.series.quantile_levels

    def one(self, picture: str) -> str:
        """The name of the only tensor chosen."""
        if len(self.names) != 1:
            raise ValueError(
                f"{picture}() draws one tensor, got {len(self.names)} of {self.view!r}: "
                f"{', '.join(self.names[:5])}{', …' if len(self.names) > 5 else ''}. "
                f"Choose one: {picture}(series, layers={self.names[0]!r}); or draw all with "
                f"{'activity_board' if picture == 'unit_activity' else 'distribution_board'}."
            )
        return self.names[0]


def require(series: Series, statistic: str) -> None:
    """Raises a `ValueError` if the series lacks an epoch statistic."""
    if statistic not in series.statistics:
        raise unknown_name(
            f"statistic of {series.view!r} as an epoch series", statistic, series.statistics, _MEND.get(statistic, "")
        )


def check_recording(recording: Any, picture: str) -> Recording:
    """The recording, if it is one and holds an epoch or a step."""
    if not isinstance(recording, Recording):
        hint = " Pass the recording, not one view of it." if isinstance(recording, Series) else ""
        raise ValueError(f"{picture}() got {a_type(recording)}; expected a Recording.{hint}")
    if not len(recording.epochs) and not any(len(series.steps) for series in recording.values()):
        raise ValueError(f"{picture}() got an empty recording; expected at least one epoch. {NOTHING_OBSERVED}")
    return recording


def _observe(series: Series) -> str:
    """How a series that has nothing to draw would have something."""
    if len(series.steps):
        return "Only single steps are in it: it is complete when the epoch ends."
    return NOTHING_OBSERVED


def views_of(recording: Recording, views: Sequence[str], picture: str, mend: str) -> list[Series]:
    """The views that a picture cannot do without; the error says which are missing, what there is, how to mend it."""
    missing = [view for view in views if view not in recording]
    if missing:
        needed = f"the view{'s' if len(views) > 1 else ''} {_listed(views)}"
        lacking = f"; {_listed(missing)} is missing" if len(missing) < len(views) else ""
        there = f"it has {_listed(recording)}" if len(recording) else "it has no view, only logs"
        raise UnknownNameError(f"{picture}() needs {needed} in the recording{lacking}: {there}. {mend}")
    return [recording[view] for view in views]


def _listed(names: Iterable[str]) -> str:
    *others, last = [repr(name) for name in names]
    return f"{', '.join(others)} and {last}" if others else last


def _of_batches(series: Series, picture: str) -> UnknownNameError:
    held = list(dict.fromkeys([*series.statistics, *series.step_statistics]))
    return UnknownNameError(
        f"{picture}() got the series of 'metrics', of the collector StepMetrics: each batch's own "
        f"{_listed(held) if held else 'loss'}; expected a series of tensors. Draw these with "
        f"training_curves(recording); for {picture}() {_COLLECT}."
    )


def _views_to_choose(recording: Recording, picture: str) -> str:
    """What to give to a picture of one view instead of the whole recording."""
    views = [view for view in recording if view != METRICS]
    if views:
        outputs = [view for view in views if "layer_outputs" in view]
        best = (outputs if "activity" in picture and outputs else views)[0]
        return f' Choose a view of it, such as {picture}(recording["{best}"]); it has {_listed(views)}.'
    there = "only the batches' losses and metrics" if METRICS in recording else "only logs"
    return f" There is none of tensors in it, {there}: draw them with training_curves(recording), or {_COLLECT}."


def rows_of(epochs: np.ndarray, iterations: Iterations) -> np.ndarray:
    """Indices of the epochs chosen: by position for a slice, by number for a range or a list.

    Raises:
        ValueError: nothing is chosen, an epoch of a list was not recorded, or it is none of the three.
    """
    rows = np.arange(len(epochs))
    known = f"{len(epochs)} epochs, {epochs[0]} to {epochs[-1]}" if len(epochs) else "no epochs"
    if isinstance(iterations, slice):
        rows = rows[iterations]
    elif isinstance(iterations, range):
        rows = np.flatnonzero(np.isin(epochs, np.array(list(iterations), np.int64)))
    elif iterations is not None:
        if isinstance(iterations, str | bytes) or not isinstance(iterations, Iterable):
            raise ValueError(f"iterations={iterations!r}: expected a slice, a range or a list of epoch numbers.")
        given = list(iterations)
        if not all(isinstance(i, int | np.integer) for i in given):
            raise ValueError(f"iterations={given!r}: expected epoch numbers (integers).")
        wanted = np.array(given, np.int64)
        unknown = wanted[~np.isin(wanted, epochs)]
        if len(unknown):
            raise ValueError(f"iterations: epoch {unknown[0]} was not recorded; recorded are {known}.")
        rows = np.flatnonzero(np.isin(epochs, wanted))
    if not len(rows):
        raise ValueError(f"iterations={iterations!r} chooses no epoch; recorded are {known}.")
    if len(rows) > MAX_EPOCHS:
        rows = rows[np.unique(np.linspace(0, len(rows) - 1, MAX_EPOCHS).round().astype(int))]
    return rows


def epochs_inside(series: Series, chosen: np.ndarray | None) -> list[int] | None:
    """Those of the epochs chosen of a whole recording that a view has: views may be rarer than epochs are."""
    return None if chosen is None else [int(epoch) for epoch in chosen if epoch in series.epochs]


def over_layers(values: np.ndarray, levels: Sequence[float] = (0, 25, 50, 75, 100)) -> np.ndarray:
    """Percentiles over the last axis, shape (levels, T); NaN where a row has no finite value."""
    result = np.full((len(levels), len(values)), np.nan)
    seen = np.isfinite(values).any(axis=1)
    whole = np.isfinite(values).all(axis=1) & seen
    if whole.any():  # twenty times as fast
        result[:, whole] = np.percentile(values[whole], levels, axis=1)
    if (seen & ~whole).any():
        result[:, seen & ~whole] = np.nanpercentile(values[seen & ~whole], levels, axis=1)
    return result


def kernel_rows(view: str, names: Sequence[str], shapes: Sequence[tuple[int | None, ...]]) -> list[int] | None:
    """Where the kernels stand among the variables of a view.

    Biases, scales and embeddings are of another size than the kernels beside them, and begin at zero or one: they are
    left out where sizes are compared along the depth, or judged.

    Returns:
        The rows, or `None` where all are to be taken: the view is of layer outputs, it has fewer than two kernels, or
        nothing but kernels.

    Example:

    >>> kernel_rows("gradients", ["a/kernel", "a/bias", "b/kernel", "b/bias"], [(3, 4), (4,), (4, 2), (2, 1)])
    [0, 2]
    """
    if "output" in view or any(None in shape for shape in shapes):
        return None
    rows = [i for i, (name, shape) in enumerate(zip(names, shapes, strict=True)) if is_kernel(name, shape)]
    return rows if 2 <= len(rows) < len(names) else None


def counted(every: Chosen, kernels: Chosen | None, what: str = "tensor") -> str:
    """How many tensors a picture is of: '12 tensors', or '6 kernels of 12 tensors'."""
    total = f"{len(every.names)} {what}{'s' if len(every.names) > 1 else ''}"
    return f"{len(kernels.names)} kernels of {total}" if kernels else total


def latest(values: np.ndarray) -> np.ndarray:
    """The last finite value of each column; NaN where there is none."""
    seen = np.isfinite(values)
    if not seen.any():
        return np.full(values.shape[1:], np.nan)
    last = len(values) - 1 - seen[::-1].argmax(axis=0)
    result: np.ndarray = np.take_along_axis(values, last[None], axis=0)[0]
    return np.where(seen.any(axis=0), result, np.nan)


def shorten(names: Sequence[str], width: int) -> list[str]:
    """Cuts long names so that no two become the same; wider than `width` only where that is needed.

    A first part that all paths share, such as the model's name, is left out first; then they are cut in the middle.

    Example:

    >>> shorten(["encoder/block_1/conv/kernel", "encoder/block_2/conv/kernel", "head"], 18)
    ['…block_1/co…kernel', '…block_2/co…kernel', 'head']
    """
    first = [name.split("/")[0] for name in names if "/" in name]
    root = f"{first[0]}/" if len(first) > 1 and len(set(first)) == 1 else ""

    def cut(name: str, size: int, tail: int) -> str:
        if len(name) <= size:
            return name
        if root and name.startswith(root):
            name = f"…{name[len(root) :]}"
        return name if len(name) <= size else f"{name[: size - 1 - tail]}…{name[len(name) - tail :]}"

    result = [cut(name, width, width * 2 // 3) for name in names]
    size = width
    while size < max(map(len, names), default=0):
        groups: dict[str, set[str]] = {}
        for name, short in zip(names, result, strict=True):
            groups.setdefault(short, set()).add(name)
        clashing = set().union(*(group for group in groups.values() if len(group) > 1))
        if not clashing:
            break
        for tail in (size * 2 // 3, size // 3, size - 3):
            trial = [
                cut(name, size, tail) if name in clashing else old for name, old in zip(names, result, strict=True)
            ]
            if len(set(trial)) == len(set(names)):
                return trial
        size += 2
        result = [
            cut(name, size, size * 2 // 3) if name in clashing else old for name, old in zip(names, result, strict=True)
        ]
    return result


def number(value: float) -> str:
    """Three figures, short: 0.00123 → '1.2e-3', 12.34 → '12.3', NaN → 'none'."""
    if not np.isfinite(value):
        return "none"
    if value == 0:
        return "0"
    if 0.01 <= abs(value) * (1 + 1e-9) < 10000:  # a tick at 0.01 is a little less
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa.removesuffix('.0')}e{int(exponent)}"


# Words of which a metric's name is made, as Keras, scikit-learn and their users call metrics.
_MORE = re.compile(
    "acc|accurac(y|ies)|auc|auroc|auprc|roc|prc|precision|recall|f1|fbeta|fscore|iou|jaccard|r2|topk|hits?|ndcg|mrr|"
    "bleu|rouge|psnr|ssim|kappa|mcc|matthews|sensitivity|specificity|tpr|tnr|tp|tn|similarity|correlation|pearson|"
    "spearman|concordance|explained|likelihood"
)
_LESS = re.compile(
    "loss(es)?|err(ors?)?|mse|mae|rmse|mape|msle|rmsle|smape|nll|bce|crossentropy|kl|kld|divergence|poisson|hinge|"
    "logcosh|huber|perplexity|ppl|fpr|fnr|fp|fn|wer|cer|brier|deviance|cost|miss(es)?|ece|regret|fid"
)
_JOINED = (  # as they are written apart, and as one word
    ("io_u", "iou"),
    ("f_1", "f1"),
    ("f_beta", "fbeta"),
    ("r_2", "r2"),
    ("r_squared", "r2"),
    ("cross_entropy", "crossentropy"),
    ("log_cosh", "logcosh"),
    ("negative_log", "neg_log"),
)


def more_is_better(metric: str) -> bool | None:
    """Whether a metric is the better the higher, told by its name alone: a trend may go the wrong way.

    The last word that tells counts, as the first may be the name of an output: `loss_head_accuracy` is an accuracy.

    Returns:
        `None` where the name does not tell.

    Example:

    >>> [more_is_better(name) for name in ("val_accuracy", "mean_io_u", "top_5_error", "mae_1")]
    [True, True, False, False]
    >>> more_is_better("gradient_norm") is None
    True
    """
    text = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", metric).lower()
    text = f"_{re.sub('[^a-z0-9]+', '_', text)}_".partition("_at_")[0] + "_"
    text = re.sub(r"_top_?(k|\d+)_", "_topk_", text)
    for apart, joined in _JOINED:
        text = text.replace(f"_{apart}_", f"_{joined}_")
    words = [word for word in text.split("_") if word]
    for i in reversed(range(len(words))):
        before = words[i - 1] if i else ""
        found = _of_word(words[i], before)
        if found is not None:
            return not found if {"neg", "minus"} & set(words[:i]) else found
    return None


def _of_word(word: str, before: str) -> bool | None:
    if word in ("positive", "positives", "negative", "negatives") and before in ("true", "false"):
        return before == "true"
    for known in (word, word.rstrip("0123456789")):  # auc_2, top5
        if _MORE.fullmatch(known) or _LESS.fullmatch(known):
            return bool(_MORE.fullmatch(known))
    return None


def percent(share: float) -> str:
    """A share in percent that never rounds something to nothing."""
    if not np.isfinite(share):
        return "none"
    if 0 < share < 0.01:
        return "<1 %"
    if 0.99 < share < 1:
        return ">99 %"
    return f"{100 * share:.0f} %"


def shape_text(shape: Sequence[int | None]) -> str:
    """(None, 28, 28, 32) → '28×28×32': without the batch axis."""
    if shape and shape[0] is None:
        shape = shape[1:]
    return "×".join("?" if d is None else str(d) for d in shape) or "scalar"
