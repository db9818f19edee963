"""Writing a file whole or not at all."""

import os
from pathlib import Path


def write_atomically(path: str | os.PathLike[str], content: bytes) -> None:
    """Writes under a temporary name beside `path`, then renames: a reader sees the old file or the new, never a part.

    Raises:
        OSError: the folder does not exist or is read-only, the disk is full, …; what was at `path` is as it was.

    Example:

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_atomically(Path(folder) / "a.txt", b"whole")
    ...     [file.name for file in Path(folder).iterdir()]
    ['a.txt']
    """
    temporary = f"{os.fspath(path)}.{os.getpid()}.tmp"
    try:
        with open(temporary, "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
