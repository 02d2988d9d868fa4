"""Files as they come: encodings, binaries, and everything that may be wrong with them."""

from __future__ import annotations

import base64
import errno
import io
import json
import os
import random
import re
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.core.documents import ParsedDocument
from catalog.core.errors import ReadError
from catalog.ingest.readers import ReadFailure, ReadLimits, read_file
from catalog.ingest.readers.base import DEFAULT_LIMITS, WholeFileReader
from catalog.ingest.readers.decoding import decode, leave_out_base64
from catalog.ingest.readers.opening import open_regular
from catalog.ingest.readers.registry import load_reader, sniff
from growth import assert_linear


def read(path: Path, max_bytes: int = 1_000_000) -> ParsedDocument:
    (doc,) = read_file(path, path.name, limits=ReadLimits(text_bytes=max_bytes))
    assert isinstance(doc, ParsedDocument)
    return doc


def written(folder: Path, data: bytes, name: str = "a.txt") -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def test_line_ends_are_kept_and_a_byte_order_mark_is_not(tmp_path: Path) -> None:
    assert read(written(tmp_path, b"\xef\xbb\xbfa\r\nb\rc\n")).text == "a\r\nb\rc\n"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
def test_wide_encodings_are_known_by_their_mark(tmp_path: Path, encoding: str) -> None:
    assert read(written(tmp_path, "Grüße, 世界\n".encode(encoding))).text == "Grüße, 世界\n"


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize(
    "text", ["Grüße\r\nam Morgen, 世界\n", "Мама мыла раму, и шлюз закрыли.\nКонец.\n"]
)
def test_utf_16_is_known_without_its_mark(tmp_path: Path, text: str, encoding: str) -> None:
    assert read(written(tmp_path, text.encode(encoding))).text == text
    (tmp_path / "a.jsonl").write_bytes('{"_id": "1", "text": "é"}\n'.encode(encoding))
    document, remark = read_file(tmp_path / "a.jsonl", "a.jsonl")
    assert isinstance(document, ParsedDocument)
    assert document.text == '{"_id": "1", "text": "é"}\n'
    assert isinstance(remark, ReadFailure)
    assert "save it as UTF-8" in remark.reason


@pytest.mark.parametrize(
    "data",
    [
        b"\x01\x00\x02\x00\x03\x00\x04\x00" * 50,
        random.Random(7).randbytes(4000),
        struct.pack("<200h", *range(200)),
        "words\x00words".encode("utf-16-le"),
    ],
)
def test_numbers_are_not_taken_for_utf_16(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(ReadError, match="binary"):
        read(written(tmp_path, data))


_POLISH = (
    "Komisja portowa rozpatrzyła w kwietniu plan pogłębiania. Piloci prosili o nowy pomiar, gdyż "
    "boja się przesunęła. Żółta łódź stała przy nabrzeżu, a śluza była zamknięta.\n"
)
_ITALIAN = """1
00:00:01,000 --> 00:00:04,000
La città è più bella di così: perché no?

2
00:00:04,500 --> 00:00:08,000
Il caffè è già pronto, ma la virtù è rara.

3
00:00:08,500 --> 00:00:12,000
La libertà è cara, verrà però il lunedì.
"""


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("café", "cp1252"),
        ("Der Müller trinkt Kaffee in der Straße.", "latin-1"),
        ("Привет, это документ на русском языке, и он читается без ошибок.", "cp1251"),
        ("日本語のテキストです。これは文字コードのテストです。", "shift_jis"),
        (_POLISH, "iso-8859-2"),
        (_POLISH, "cp1250"),
        (_ITALIAN, "cp1252"),
        ("A ligação não está disponível; não é possível abrir o diretório.", "cp1252"),
        ("Le fichier a été supprimé après la dernière mise à jour du système.", "iso-8859-15"),
        ("Bu dosya açılamadı: lütfen geçerli bir dosya adı girin, sonra ığdır.", "cp1254"),
        ("Příliš žluťoučký kůň úpěl ďábelské ódy, když už bylo pozdě.", "cp1250"),
        ("A fájl megnyitása sikertelen; kérjük, ellenőrizze a jogosultságokat.", "iso-8859-2"),
        ("Файл не найден: проверьте имя и попробуйте ещё раз.", "koi8-r"),
        ("Файл не найден: проверьте имя и попробуйте ещё раз.", "cp866"),
        ("Файл не знайдено: перевірте ім'я і спробуйте ще раз.", "iso-8859-5"),
        ("Το αρχείο δεν βρέθηκε: ελέγξτε το όνομα και δοκιμάστε ξανά.", "iso-8859-7"),
        ("Failas nerastas: patikrinkite pavadinimą ir bandykite dar kartą, ačiū.", "cp1257"),
        ("Die Änderungen können für größere Dateien länger dauern.", "mac-roman"),
        ("找不到文件，请检查文件名，然后再试一次。", "gb18030"),
        ("找不到檔案，請檢查檔案名稱，然後再試一次。", "big5"),
        ("파일을 찾을 수 없습니다. 이름을 확인하고 다시 시도하십시오.", "euc-kr"),
        ("ファイルが見つかりません。名前を確認してください。", "euc-jp"),
    ],
)
def test_legacy_encodings_are_guessed(text: str, encoding: str) -> None:
    assert decode(text.encode(encoding)) == text


def test_a_guessed_encoding_is_reported_with_how_sure_it_is(tmp_path: Path) -> None:
    path = written(tmp_path, _POLISH.encode("iso-8859-2"))
    parsed, told = read_file(path, path.name)
    assert isinstance(parsed, ParsedDocument)
    assert parsed.text == _POLISH
    assert isinstance(told, ReadFailure)
    assert re.fullmatch(
        r"read as iso8859-2, a guess; save it as UTF-8 to be certain",
        told.reason,
    )


def test_a_long_legacy_file_is_read_to_its_end() -> None:
    text = "x" * 1001 + "找不到文件，请检查文件名，然后再试一次。" * 5000
    assert decode(text.encode("gb18030")) == text
    text = _ITALIAN * 500 + "“La città”\n"
    assert decode(text.encode("cp1252")) == text


def test_a_declared_encoding_is_believed(tmp_path: Path) -> None:
    page = '<html><head><meta charset="iso-8859-7"></head><p>Καλημέρα</p></html>'
    assert read(written(tmp_path, page.encode("iso-8859-7"), "a.html")).text == "Καλημέρα"
    page = '<html><head><meta charset="iso-8859-1"></head><p>“5 €” – é</p></html>'
    assert read(written(tmp_path, page.encode("cp1252"), "a.html")).text == "“5 €” – é"
    code = "# -*- coding: koi8-r -*-\nx = 'да'\n"
    assert read(written(tmp_path, code.encode("koi8-r"), "a.py")).text == code


def test_one_damaged_byte_does_not_spoil_the_rest_of_a_utf8_file() -> None:
    assert decode("Grüße aus Köln, schöne Straße. ".encode() + b"\xff") == (
        "Grüße aus Köln, schöne Straße. \ufffd"
    )


@given(st.binary(max_size=300), st.booleans())
def test_any_bytes_decode_to_text_that_a_database_can_store(data: bytes, declared: bool) -> None:
    text = decode(data, declared=declared)
    assert "\x00" not in text
    text.encode("utf-8")


@settings(deadline=None)  # the first one imports the reader
@given(st.text(max_size=300), st.sampled_from(["md", "rst", "html", "txt", "py"]))
def test_any_text_is_read_with_structure_inside_its_bounds(text: str, extension: str) -> None:
    reader = load_reader(sniff(f"a.{extension}", b"", b"")[0])
    assert isinstance(reader, WholeFileReader)
    try:
        doc = reader.parse(text, f"a.{extension}")
    except ReadError:
        assert extension == "html"
        return
    length = len(doc.text)
    assert 0 <= doc.body_start <= length
    assert all(0 <= start < end <= length for start, end in doc.atomic)
    assert all(0 <= h.start < h.end <= length and h.title for h in doc.headings)
    assert doc.title == " ".join(doc.title.split())
    assert 0 < len(doc.title) <= 300


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"\x89PNG\r\n\x1a\n\x00\x00", "png"),
        (b"MZ\x00\x01", "data"),
        (b"text\x00text", "data"),
        (b"\x01\x02\x03\x04\x05\x06", "data"),
    ],
)
def test_binary_content_is_refused_by_name_whatever_the_extension(
    tmp_path: Path, data: bytes, kind: str
) -> None:
    with pytest.raises(ReadError, match=rf"binary \({kind}\)"):
        read(written(tmp_path, data, "a.md"))


def test_a_compressed_file_says_to_unpack_it(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match="a compressed file: unpack it"):
        read(written(tmp_path, b"\x1f\x8b\x08rest", "a.md"))


def test_text_that_begins_like_a_binary_is_text(tmp_path: Path) -> None:
    assert read(written(tmp_path, b"MZ is a magic number")).text == "MZ is a magic number"


@pytest.mark.parametrize("data", [b"", b" \r\n\t", b"\xef\xbb\xbf", b"\xff\xfe"])
def test_files_without_text_are_reported_as_empty(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(ReadError, match="empty"):
        read(written(tmp_path, data))


def test_a_file_that_grew_past_the_limit_is_not_read_into_memory(tmp_path: Path) -> None:
    path = written(tmp_path, b"x" * 101)
    assert len(read(path, max_bytes=101).text) == 101
    with pytest.raises(ReadError, match="too large"):
        read(path, max_bytes=100)


def test_a_vanished_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match="disappeared"):
        read(tmp_path / "gone.txt")


def test_a_file_that_may_not_be_opened_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    path = written(tmp_path, b"x")
    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(ReadError, match="Permission denied"), open_regular(path):
        pass


def test_a_fifo_is_refused_without_waiting_for_a_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.txt")
    with pytest.raises(ReadError, match="FIFO"):
        read(tmp_path / "pipe.txt")


def test_folders_devices_and_swapped_symlinks_are_refused(tmp_path: Path) -> None:
    (tmp_path / "link.txt").symlink_to(written(tmp_path, b"secret", "target.txt"))
    for path in (tmp_path, Path("/dev/zero"), tmp_path / "link.txt"):
        with pytest.raises(ReadError, match="not a regular file"):
            read(path)


def records(folder: Path, text: str | bytes, max_bytes: int = 1000) -> list[object]:
    data = text.encode() if isinstance(text, str) else text
    path = written(folder, data, "corpus.jsonl")
    return [
        (item.path, item.reason) if isinstance(item, ReadFailure) else item
        for item in read_file(path, "corpus.jsonl", limits=ReadLimits(text_bytes=max_bytes))
    ]


def test_each_json_line_is_a_document_named_by_its_id(tmp_path: Path) -> None:
    first, second, third = records(
        tmp_path,
        '\ufeff{"_id": "4983", "title": "T", "text": "Body.", "metadata": {"tag": "x"}}\r\n\n'
        '{"_id": 7, "text": "No title."}\n{"_id": "8", "title": "Only", "text": ""}',
    )
    assert isinstance(first, ParsedDocument)
    assert (first.path, first.title, first.text) == ("4983", "T", "T\n\nBody.")
    assert (first.file_type, first.source_type) == ("jsonl", "record")
    assert dict(first.metadata) == {"tags": ("x",)}
    assert isinstance(second, ParsedDocument)
    assert (second.path, second.title, second.text) == ("7", "7", "No title.")
    assert isinstance(third, ParsedDocument)
    assert third.text == "Only"


def test_a_title_that_the_text_begins_with_is_not_repeated(tmp_path: Path) -> None:
    (doc,) = records(tmp_path, '{"_id": "1", "title": "Cells", "text": "Cells divide."}\n')
    assert isinstance(doc, ParsedDocument)
    assert doc.text == "Cells divide."


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{broken", "not valid JSON"),
        ("[1]", "no _id"),
        ('{"text": "x"}', "no _id"),
        ('{"_id": "", "text": "x"}', "no _id"),
        ('{"_id": "2"}', "no text"),
        ('{"_id": "2", "text": 5}', "no text"),
        ('{"_id": "2", "text": "  "}', "no text"),
        ('{"_id": "1", "text": "again"}', "'1'"),
        ('{"_id": "2", "text": "%s"}' % ("x" * 2000), "too large"),
        ("[" * 900, "not valid JSON"),
        ('{"_id": "2", "text": "x", "n": %s}' % ("9" * 900), ""),
    ],
)
def test_a_bad_line_is_named_and_the_other_lines_are_read(
    tmp_path: Path, line: str, reason: str
) -> None:
    good = '{"_id": "1", "text": "a"}'
    items = records(tmp_path, f'{good}\n{line}\n{{"_id": "3", "text": "c"}}\n')
    assert [item.path for item in items if isinstance(item, ParsedDocument)][::2][0] == "1"
    assert isinstance(items[-1], ParsedDocument)
    assert items[-1].path == "3"
    if reason:
        assert isinstance(items[1], tuple)
        assert items[1][0] == "corpus.jsonl:2"
        assert reason in items[1][1]


def test_a_broken_first_line_does_not_turn_a_corpus_into_plain_text(tmp_path: Path) -> None:
    failure, doc = records(tmp_path, '{"_id": "0", "te\n{"_id": "1", "text": "a"}\n')
    assert isinstance(failure, tuple)
    assert failure[0] == "corpus.jsonl:1"
    assert isinstance(doc, ParsedDocument)


def test_json_lines_of_another_kind_are_plain_text(tmp_path: Path) -> None:
    text = '{"level": "info"}\n{"level": "error"}\n'
    doc, told = records(tmp_path, text)
    assert isinstance(doc, ParsedDocument)
    assert (doc.path, doc.text, doc.source_type) == ("corpus.jsonl", text, "file")
    assert isinstance(told, tuple)
    assert told[1].startswith(
        "read as text, not as records: none of its first lines has both an _id"
    )


def test_a_record_is_called_by_its_id_where_it_has_no_underscored_one(tmp_path: Path) -> None:
    lines = ['{"id": 7, "text": "a"}', '{"id": "b", "_id": "c", "text": "d"}', '{"id": "torn", "te']
    one, other, torn = records(tmp_path, "\n".join([*lines, ""]))
    assert isinstance(one, ParsedDocument)
    assert isinstance(other, ParsedDocument)
    assert (one.path, other.path) == ("7", "c")
    assert isinstance(torn, tuple)


def test_surrogates_and_nul_in_json_escapes_are_replaced(tmp_path: Path) -> None:
    (doc,) = records(tmp_path, r'{"_id": "1", "text": "a\ud800b\u0000c \ud83d\ude00"}')
    assert isinstance(doc, ParsedDocument)
    assert doc.text == "a\ufffdb\ufffdc 😀"


def test_base64_in_records_is_left_out_and_reported(tmp_path: Path) -> None:
    picture = f"A pump. ![](data:image/png;base64,{coded(900)}) It leaks."
    line = json.dumps({"_id": "1", "text": picture}) + "\n"
    document, (path, reason) = records(tmp_path, line, max_bytes=10_000)
    assert isinstance(document, ParsedDocument)
    assert document.text == "A pump. ![](data:image/png;base64,…) It leaks."
    assert path == "corpus.jsonl:1"
    assert "1,200 characters of base64" in reason


def test_json_lines_are_streamed_not_loaded(tmp_path: Path) -> None:
    lines = "".join(f'{{"_id": "{number}", "text": "x"}}\n' for number in range(2000))
    assert len(records(tmp_path, lines, max_bytes=100)) == 2000


def coded(size: int, width: int = 0, gap: str = "\n") -> str:
    """Return base64 of noise, in lines of ``width``."""
    text = base64.b64encode(random.Random(7).randbytes(size)).decode()
    return gap.join(text[at : at + width] for at in range(0, len(text), width)) if width else text


def read_text(name: str, text: str) -> tuple[ParsedDocument, list[str]]:
    reader = load_reader(sniff(name, text.encode()[:8192], b"")[0])
    first, *others = reader.read(io.BytesIO(text.encode()), name, limits=DEFAULT_LIMITS)
    assert isinstance(first, ParsedDocument)
    return first, [other.reason for other in others if isinstance(other, ReadFailure)]


@pytest.mark.parametrize(
    ("name", "text", "line", "left"),
    [
        ("g.md", f"# A\n\nRed.\n\n[i]: <data:image/png;base64,{coded(900)}>\n\nEnd.\n", 5,
         "# A\n\nRed.\n\n[i]: <data:image/png;base64,…>\n\nEnd.\n"),
        ("e.md", f"# A\n\n```compressed-json\n{coded(900, 256, chr(10) * 2)}\n```\n", 4,
         "# A\n\n```compressed-json\n…" + "\n" * 9 + "```\n"),
        ("mail.eml", f"Subject: A\n\nHello.\n\n{coded(400, 76)}\n--B--\n", 5,
         "Subject: A\n\nHello.\n\n…" + "\n" * 8 + "--B--"),
        ("d.html", f"<p>A <img src='data:image/png;base64,{coded(300)}'></p>", 0, "A"),
        ("x.json", f'{{"name": "A",\n"png": "{coded(300)}"}}', 2, '{"name": "A",\n"png": "…"}'),
        ("zeros.md", f"![](data:image/gif;base64,{'A' * 300})\n", 1,
         "![](data:image/gif;base64,…)\n"),
    ],
)  # fmt: skip
def test_base64_is_left_out_and_reported(name: str, text: str, line: int, left: str) -> None:
    doc, reasons = read_text(name, text)
    assert doc.text == left
    told = [re.fullmatch(r"read as text without [\d,]+ characters of base64", r) for r in reasons]
    assert len(told) == bool(line)
    assert all(told)


@pytest.mark.parametrize(
    "text",
    [
        "ACGTTGCA" * 60,
        "word" * 5000,
        "-" * 300,
        f"https://example.org/a?token={coded(300)}",
        "\n".join(["9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"] * 9),
        f"key {coded(60)}",
        "src/main/java/org/example/project/module/component/SomeAbstractFactoryProviderImpl2/" * 3,
    ],
)
def test_what_only_looks_like_base64_stays(text: str) -> None:
    doc, reasons = read_text("a.txt", text)
    assert (doc.text, reasons) == (text, [])


@pytest.mark.parametrize("piece", ["Ab1", f"{coded(45)} ", "a/"])
def test_base64_without_end_takes_linear_time(piece: str) -> None:
    assert_linear(lambda size: leave_out_base64(piece * size), 2_000_000 // len(piece))


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (r'{"from": "\u0418\u0440\u0430"}', '{"from": "Ира"}'),
        (r'["\ud83d\ude00 \u00fc", "\u00DF"]', '["😀 ü", "ß"]'),
        (r'["\\u0418", "a\u000a", "\u0022"]', r'["\\u0418", "a\u000a", "\u0022"]'),
    ],
)
def test_the_escapes_of_json_are_letters(text: str, read: str) -> None:
    doc, reasons = read_text("chat.json", text)
    assert (doc.text, reasons) == (read, [])
    assert json.loads(doc.text) == json.loads(text)


@pytest.mark.parametrize("name", ["a.qmd", "a.Rmd", "a.rmd"])
def test_quarto_and_r_markdown_are_markdown(name: str) -> None:
    fields = "---\ntitle: Pay\nconfidentiality: secret\ntags: [hr]\n---\n"
    text = f"{fields}\n# Salaries\n\n```{{r}}\n# no\n```\n"
    doc, reasons = read_text(name, text)
    assert (doc.title, [heading.title for heading in doc.headings]) == ("Pay", ["Salaries"])
    assert (doc.metadata["confidentiality"], doc.metadata["tags"]) == ("secret", ("hr",))
    assert reasons == []
