"""Encodings, long lines and decompression in bounded memory."""

import codecs
import zipfile

import pytest
from table_bytes import cells, peak_growth, read

from altbi.io._files import LINE_BYTES


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32", "utf-16-le", "utf-16-be", "utf-32-le"]
)
def test_encodings_are_detected(open_bytes, encoding):
    source = open_bytes("name,b\nélan €,2\n".encode(encoding))
    assert cells(source) == {"name": ["élan €"], "b": ["2"]}
    assert source.notes == []


@pytest.mark.parametrize("mark", [codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE])
def test_big_endian_byte_order_marks_are_detected(open_bytes, mark):
    encoding = "utf-16-be" if len(mark) == 2 else "utf-32-be"
    assert cells(open_bytes(mark + "é\nü\n".encode(encoding))) == {"é": ["ü"]}


def test_json_lines_are_decoded(open_bytes):
    assert cells(open_bytes('{"é": "ü"}\n'.encode("utf-16"))) == {"é": ["ü"]}


def test_invalid_utf8_is_read_as_cp1252_with_a_note(open_bytes):
    source = open_bytes("name,b\nélan €,2\n".encode("cp1252"))
    assert cells(source) == {"name": ["élan €"], "b": ["2"]}
    assert "is not UTF-8 (byte 0xe9 in line 2), read as cp1252" in source.notes[0]


def test_late_letter_decides_the_encoding(open_bytes):
    source = open_bytes(b"a,b\n" + b"x,y\n" * 1_500_000 + b"\xe9,y\n")
    assert read(source).num_rows == 1_500_001
    assert "line 1500002" in source.notes[0]
    assert read(source).column("a")[-1].as_py() == "é"


def test_damaged_utf8_raises(error_of):
    text = "name,b\né,2\n".encode()
    assert "byte 0xff in line 3" in error_of(text + b"\xff,2\n")
    assert "byte 0xff in line 1" in error_of(b"\xff,2\n" + text)
    assert "byte 0xc3 in line 3" in error_of(text + b"x,\xc3")
    assert "byte 0xff in line 1" in error_of(b"\xff,2\n" + b"x,2\n" * 2_500_000 + text)


def test_letter_across_two_pieces_is_decoded(open_bytes):
    data = b"a\n" + b"x" * ((1 << 22) - 3) + "é\n".encode()
    source = open_bytes(data)
    assert source.notes == []
    assert read(source).column("a")[0].as_py().endswith("xé")


def test_incomplete_letter_at_a_piece_end_is_located(open_bytes):
    source = open_bytes(b"a\n" + b"x" * ((1 << 22) - 3) + b"\xc3" + b"\nx" * 2_500_000)
    read(source)
    assert "(byte 0xc3 in line 2)" in source.notes[0]


def test_encoding_can_be_passed(open_bytes, error_of):
    assert cells(open_bytes(b"a\n\xe9\n", encoding="cp850")) == {"a": ["Ú"]}
    assert cells(open_bytes(codecs.BOM_UTF8 + b"a\nx\n", encoding="UTF8")) == {"a": ["x"]}
    assert "byte 0xe9 in line 2 cannot be read as ascii" in error_of(b"a\n\xe9\n", encoding="ascii")
    assert "byte 0x81 in line 2 cannot be read as cp1252" in error_of(b"a\n\x81\n")


@pytest.mark.slow
def test_values_below_the_limit_are_read(open_bytes):
    long = b"x" * (LINE_BYTES - 100)
    assert read(open_bytes(b"a,b\n" + long + b",2\n3,4\n")).column("b").to_pylist() == ["2", "4"]


@pytest.mark.slow
@pytest.mark.parametrize("start", [b"a,b\n1,", b'a,b\n1,"', b'{"a": "x"}\n{"a": "'])
def test_huge_line_is_refused_in_bounded_memory(tmp_path, start):
    path = tmp_path / "a.txt"
    with path.open("wb") as file:
        file.write(start)
        for _ in range(200):
            file.write(b"x" * (1 << 20))

    growth, message = peak_growth(path)

    assert any(words in message for words in ("longer than 16 MiB", "not closed properly"))
    assert growth < 120


@pytest.mark.slow
def test_zip_bomb_is_refused_in_bounded_memory(tmp_path):
    path = tmp_path / "bomb"
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("a.csv", "w") as member,
    ):
        for _ in range(300):
            member.write(b"a" * (1 << 20))

    growth, message = peak_growth(path)

    assert "longer than 16 MiB" in message
    assert growth < 120
