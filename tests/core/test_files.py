"""Files are read whole or refused in one sentence: no hang, no flood of memory, no steering of the terminal."""

import os
from dataclasses import dataclass

import pytest

from trustirl.core.errors import InputError
from trustirl.core.files import read_arrays, read_bytes, read_form, read_json, read_text

READERS = (read_arrays, read_bytes, read_json, read_text)


@dataclass(frozen=True)
class Card:
    """A form with one field."""

    seeds: int


@pytest.mark.parametrize("read", READERS)
def test_a_pipe_is_refused_instead_of_waited_for(read, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="not a regular file"):
        read(tmp_path / "pipe")


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("path", ["missing", ".", "x" * 300, "nothing\0here"])
def test_a_file_that_cannot_be_opened_is_one_sentence(read, path, tmp_path):
    with pytest.raises(InputError, match=r"does not exist|cannot be read|not a regular file"):
        read(tmp_path / path)


def test_a_file_that_is_too_large_is_not_read(tmp_path):
    file = tmp_path / "sparse"
    with file.open("wb") as sparse:
        sparse.truncate(2**40)
    for read in READERS:
        with pytest.raises(InputError, match="bytes"):
            read(file)


@pytest.mark.parametrize(
    "content",
    [
        b"[" * 200_000,
        b'{"seeds": ' + b"9" * 5000 + b"}",
        b'{"seeds": "\\ud800"}',
        b'{"seeds": 1e999}',
        b'{"seeds": NaN}',
        b'{"seeds": "\xff"}',
        b'{"seeds": 1}{',
        b"",
        b"[1]",
    ],
)
def test_damaged_json_is_one_kind_of_error(content, tmp_path):
    (tmp_path / "card.json").write_bytes(content)
    with pytest.raises(InputError, match=r"card\.json"):
        read_json(tmp_path / "card.json")


def test_json_of_another_form_names_the_place(tmp_path):
    (tmp_path / "card.json").write_text('{"seeds": "five"}')
    with pytest.raises(InputError, match=r"card\.json does not hold what it should \(Expected int, got str - at"):
        read_form(tmp_path / "card.json", Card)


def test_no_message_can_steer_a_terminal():
    assert str(InputError("red \x1b[31m and a line\nmore \u202eleft")) == "red  [31m and a line more  left"
