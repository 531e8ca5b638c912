"""Folders that are written whole."""

import pytest

from mtlib.paths import written_whole


def test_a_folder_is_replaced_when_the_new_one_is_whole(tmp_path):
    folder = tmp_path / "model"
    for content in ("first", "second"):
        with written_whole(folder) as part:
            (part / content).touch()
        assert [path.name for path in folder.iterdir()] == [content]
    with pytest.raises(OSError), written_whole(folder) as part:
        (part / "torn").touch()
        raise OSError
    assert [path.name for path in folder.iterdir()] == ["second"]
    with written_whole(folder) as part:
        assert not [*part.iterdir()]  # what the one before has left
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
