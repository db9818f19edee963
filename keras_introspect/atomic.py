"""Writing a file whole or not at all."""

import errno
import os


def write_atomically(path: str | os.PathLike[str], content: bytes, durable: bool = False) -> None:
    """Writes under a temporary name beside `path`, then renames: a reader sees the old file or the new, never a part.

    Args:
        path: the file.
        content: all of it.
        durable: wait until the content is on the disk, or a crash of the machine could leave the name on an empty file.

    Raises:
        OSError: the folder does not exist or is read-only, the disk is full, …; what was at `path` is as it was. It
            names `path`, not the temporary file.

    Example:

    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_atomically(Path(folder) / "a.txt", b"whole")
    ...     [file.name for file in Path(folder).iterdir()]
    ['a.txt']
    """
    path = os.fspath(path)
    check_folder(path)
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        if os.path.exists(temporary):
            os.unlink(temporary)
        if isinstance(error, OSError) and error.filename is not None:
            raise OSError(error.errno, error.strerror, path) from None
        raise


def check_folder(path: str | os.PathLike[str]) -> None:
    """Raises FileNotFoundError, naming both, if the folder that is to hold a file does not exist."""
    path = os.fspath(path)
    folder = os.path.dirname(path)
    if folder and not os.path.isdir(folder):
        why = "is no folder" if os.path.exists(folder) else "does not exist; make it first, or choose another"
        raise FileNotFoundError(errno.ENOENT, f"{os.strerror(errno.ENOENT)}: the folder {folder!r} {why}", path)
