import os

import pytest

from keras_introspect.atomic import write_atomically


def test_a_fault_names_the_file_not_the_temporary_one(tmp_path, monkeypatch):
    path = tmp_path / "run.npz"
    path.write_bytes(b"old")
    for fails, known in (("open", "builtins.open"), ("replace", "os.replace")):

        def refuse(name, *_args, **_keywords):
            raise PermissionError(13, "Permission denied", name)

        with monkeypatch.context() as patch:
            patch.setattr(known, refuse)
            with pytest.raises(PermissionError) as error:
                write_atomically(path, b"new")
        assert str(error.value) == f"[Errno 13] Permission denied: {str(path)!r}", fails
        assert os.listdir(tmp_path) == ["run.npz"]
        assert path.read_bytes() == b"old"


def test_a_folder_that_does_not_exist_or_is_a_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"the folder '.*none' does not exist"):
        write_atomically(tmp_path / "none" / "a.txt", b"")
    (tmp_path / "file").touch()
    with pytest.raises(FileNotFoundError, match=r"the folder '.*file' is no folder"):
        write_atomically(tmp_path / "file" / "a.txt", b"")


@pytest.mark.parametrize("durable", [True, False])
def test_it_is_on_the_disk_before_it_has_its_name_if_asked(tmp_path, monkeypatch, durable):
    done = []
    monkeypatch.setattr(os, "fsync", lambda _: done.append("fsync"))
    rename = os.replace
    monkeypatch.setattr(os, "replace", lambda *paths: (done.append("replace"), rename(*paths)))
    write_atomically(tmp_path / "a.txt", b"whole", durable=durable)
    assert done == (["fsync", "replace"] if durable else ["replace"])
    assert (tmp_path / "a.txt").read_bytes() == b"whole"
