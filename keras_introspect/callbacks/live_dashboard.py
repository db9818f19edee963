"""`LiveDashboard`: the dashboard, redrawn while the model trains."""

import io
import os
import time
from pathlib import Path
from typing import Any

from keras_introspect.atomic import write_atomically
from keras_introspect.callbacks._watching import Watching

_FORMATS = ("png", "svg", "pdf", "html")
_DPI = 80
_REFRESH = 10  # seconds after which a browser that shows the page looks again
_ALLOWANCE = 5.0  # seconds of drawing before the budget counts: the first epochs are always drawn


class LiveDashboard(Watching):
    """Redraws the dashboard after each epoch: in the notebook, or in a file.

    A file is replaced whole, so that whoever looks never sees half a picture; a page (`.html`) reloads itself in the
    browser while the training runs, and names what stands out and lists every tensor too. A drawing or a write that
    fails is a warning, once; the training goes on.

    Drawing takes a second or so, some seconds for a deep model. Where epochs are short it would slow the training
    down: then epochs are skipped, so that drawing takes no more than 5 seconds and 2 % of the time trained. The last
    epoch is always drawn.

    Args:
        path: a `.png`, `.svg`, `.pdf` or `.html` file to write; `None` shows the dashboard in the notebook, and needs
            IPython.
        every: draw after each n-th epoch.
        budget: the share of the training time that drawing may take; `None` draws however long it takes.

    Raises:
        ValueError: another file ending, or `every` or `budget` out of range.
        ImportError: no notebook to show it in and no `path`, or `.html` without Jinja2.

    Example:

    >>> import keras, numpy as np, tempfile
    >>> from keras_introspect import IntrospectiveSequential
    >>> model = IntrospectiveSequential([keras.Input((4,)), keras.layers.Dense(1, name="head")])
    >>> model.compile("sgd", "mse", collectors="economy")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     live = LiveDashboard(Path(folder) / "dashboard.png")
    ...     history = model.fit(np.ones((8, 4)), np.ones((8, 1)), epochs=2, verbose=0, callbacks=[live])
    ...     live.path.read_bytes()[1:4]
    b'PNG'
    """

    writes_files = True

    def __init__(self, path: str | os.PathLike[str] | None = None, every: int = 1, budget: float | None = 0.02) -> None:
        super().__init__()
        if isinstance(every, bool) or not isinstance(every, int) or every < 1:
            raise ValueError(f"LiveDashboard(every={every!r}): expected a whole number of epochs, 1 or more.")
        if budget is not None and not 0 < budget <= 1:
            raise ValueError(f"LiveDashboard(budget={budget!r}): expected a share above 0 and up to 1, or None.")
        self.path = None if path is None else Path(path)
        self.every = every
        self.budget = budget
        self._format = "notebook" if self.path is None else self.path.suffix.lower().removeprefix(".")
        if self.path is not None and self._format not in _FORMATS:
            raise ValueError(
                f"LiveDashboard(path={os.fspath(path)!r}): expected a file that ends in "  # type: ignore[arg-type]
                f"{', '.join(f'.{ending}' for ending in _FORMATS)}."
            )
        self._check_requirements()
        self._display: Any = None
        self._started = 0.0
        self._spent = 0.0
        self._drawn: int | None = None  # the last epoch that was

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        super().on_train_begin(logs)
        self._started, self._spent, self._drawn, self._display = time.perf_counter(), 0.0, None, None

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if (epoch + 1) % self.every == 0 and not self._over_budget():
            self._draw(last=False)

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        # A page is written once more in any case: without what makes the browser reload it.
        if self._latest() is not None and (self._drawn != self._latest() or self._format == "html"):
            self._draw(last=True)

    def _latest(self) -> int | None:
        epochs = self.recording.epochs
        return int(epochs[-1]) if len(epochs) else None

    def _over_budget(self) -> bool:
        if self.budget is None:
            return False
        return self._spent > _ALLOWANCE + self.budget * (time.perf_counter() - self._started)

    def _draw(self, last: bool) -> None:
        start = time.perf_counter()
        with self._training_goes_on(f"write {os.fspath(self.path)!r}" if self.path else "show the dashboard"):
            if self.path is None:
                self._show(self._picture("png"))
            else:
                content = self._page(last) if self._format == "html" else self._picture(self._format)
                self.path.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(self.path, content)
        self._drawn = self._latest()
        self._spent += time.perf_counter() - start

    def _picture(self, kind: str) -> bytes:
        from keras_introspect.plots import dashboard  # here, so that a training without a view loads no matplotlib

        buffer = io.BytesIO()
        dashboard(self.recording).savefig(buffer, format=kind, dpi=_DPI)
        return buffer.getvalue()

    def _page(self, last: bool) -> bytes:
        from keras_introspect.reporting.report import render

        return render(self.recording, chosen=(), refresh=None if last else _REFRESH).encode("utf-8")

    def _show(self, png: bytes) -> None:
        from IPython.display import Image, display

        image = Image(data=png, format="png")
        if self._display is None:
            self._display = display(image, display_id=True)
        else:
            self._display.update(image)

    def _check_requirements(self) -> None:
        """What is lacking is told where the callback is made, not after an epoch of training."""
        if self._format == "html":
            from keras_introspect.reporting.report import check_jinja2

            check_jinja2()
        if self.path is not None:
            return
        try:
            from IPython.core.getipython import get_ipython
        except ImportError as error:
            raise ImportError(
                "LiveDashboard() shows the dashboard in a notebook and needs IPython, which is not installed. "
                'Give it a file to write instead: LiveDashboard("dashboard.png").'
            ) from error
        if get_ipython() is None:
            raise ImportError(
                "LiveDashboard() shows the dashboard in a notebook, and this is none. "
                'Give it a file to write instead: LiveDashboard("dashboard.png").'
            )
