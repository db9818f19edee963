"""What we need of TensorFlow and Keras, checked before anything else of ours touches them."""

import importlib.metadata
import importlib.util
import json
import os
import sys

MINIMUM = {"tensorflow": (2, 18), "keras": (3, 10)}


def check() -> None:
    """Raises ImportError, saying what is wrong and how to mend it, unless we can work here."""
    trouble = problem()
    if trouble is not None:
        raise ImportError(trouble)


def problem() -> str | None:
    """What keeps us from working here, or `None`."""
    for package, minimum in MINIMUM.items():
        if importlib.util.find_spec(package) is None:
            return f"keras_introspect needs {package}, which is not installed: pip install {package}"
        version = _version(package)
        if version is not None and version < minimum:
            wanted = ".".join(map(str, minimum))
            return (
                f"keras_introspect needs {package} {wanted} or newer; installed is {'.'.join(map(str, version))}. "
                f"Update it: pip install --upgrade {package}"
            )
    backend = _keras_backend()
    if backend != "tensorflow":
        return (
            f"keras_introspect observes training on Keras's TensorFlow backend; Keras is set to backend {backend!r}. "
            'Set the environment variable KERAS_BACKEND="tensorflow" before Keras is imported. Recordings can be read '
            "and plotted under any backend."
        )
    return None


def _version(package: str) -> tuple[int, ...] | None:
    module = sys.modules.get(package)
    version = getattr(module, "__version__", None)
    for name in (package, f"{package}-cpu", f"{package}-gpu"):
        if version is not None:
            break
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    if version is None:
        return None  # built from source under another name
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())


def _keras_backend() -> str:
    """The backend that Keras has, or would have: asking Keras itself would import that backend."""
    keras = sys.modules.get("keras")
    if keras is not None and hasattr(keras, "backend") and hasattr(keras.backend, "backend"):
        return str(keras.backend.backend())
    if os.environ.get("KERAS_BACKEND"):
        return os.environ["KERAS_BACKEND"]
    home = os.environ.get("KERAS_HOME") or os.path.join(os.path.expanduser("~"), ".keras")
    try:
        with open(os.path.join(home, "keras.json")) as file:
            return str(json.load(file).get("backend", "tensorflow"))
    except (OSError, ValueError, AttributeError):
        return "tensorflow"
