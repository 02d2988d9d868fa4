"""Mail through a whole build, and mails that cost their reader much; see cases/mail.toml, too."""

import base64
from dataclasses import replace
from email.message import EmailMessage
from hashlib import blake2b
from pathlib import Path

import pytest

from catalog.core.documents import ParsedDocument
from catalog.core.errors import DocumentNotFoundError, InputError, ReadError, TransientReadError
from catalog.ingest.readers.base import DEFAULT_LIMITS, ReadFailure
from catalog.ingest.readers.mail.mailbox import MboxReader
from catalog.ingest.readers.mail.message import MailReader
from catalog.ingest.readers.registry import read_file
from catalog.library.get import find_document
from catalog.library.indexing import Indexer
from catalog.search_v2.service import SearchServiceV2
from fakes import open_library
from ingest.made_files import MAKERS
from outlook_file import outlook_message

HEAD = """From: Ines Dahl <ines@example.org>
To: Bo <bo@example.org>
Date: Fri, 31 May 2024 10:15:00 +0200
Message-ID: <key@example.org>
Subject: Keys
"""
PLAIN = "Content-Type: text/plain; charset="


@pytest.fixture
def read(tmp_path):
    """Return the documents by path and the remarks of a file with this content."""

    def read_content(content, name="mail.eml", limits=DEFAULT_LIMITS):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        items = list(read_file(path, name, limits=limits))
        failures = [(one.path, one.reason) for one in items if isinstance(one, ReadFailure)]
        return {one.path: one for one in items if not isinstance(one, ReadFailure)}, failures

    return read_content


def mail(subject, text, **fields):
    message = EmailMessage()
    message["Subject"] = subject
    for name, value in fields.items():
        message[name.replace("_", "-")] = value
    message.set_content(text)
    return message


def mixed(*parts, kind="mixed"):
    joined = "".join(f"--B\n{part}\n" for part in parts)
    return f"{HEAD}MIME-Version: 1.0\nContent-Type: multipart/{kind}; boundary=B\n\n{joined}--B--\n"


def test_parts_nested_deeply_are_read_as_text(read):
    part = "Content-Type: multipart/mixed; boundary=b{0}\n\n--b{0}\n{1}\n--b{0}\n"
    content = "".join(part.format(n, f"\nText {n}.") for n in range(300))
    documents, failures = read(f"Subject: a\n{content}")
    assert all(f"Text {n}." in documents["mail.eml"].text for n in (9, 299))
    assert failures == []
    assert read("Subject: a\n" + "Content-Type: message/rfc822\n\n" * 30_000)[0]


CSV = "Content-Type: text/csv; name=t.csv\nContent-Transfer-Encoding: base64\n\n"
CODED = base64.encodebytes(b"a;b\n" * 200).decode()


def test_a_mail_that_was_cut_short_keeps_what_was_read_before(tmp_path):
    folder = tmp_path / "mail"
    folder.mkdir()
    whole = mixed(
        f"{PLAIN}utf-8\n\nThe walrus sleeps.", CSV + CODED, CSV.replace("t.", "u.") + CODED[77:]
    )
    folder.joinpath("mail.eml").write_text(whole)
    with open_library(tmp_path) as library:
        Indexer(library).build(folder, "mail")
        folder.joinpath("mail.eml").write_text(whole.replace("sleeps", "swims")[:900])
        for _ in range(2):
            report = Indexer(library).update("mail", reread=True)
            assert (report.documents, report.kept, report.removed) == (3, 3, 0)
        hits = SearchServiceV2(library).search("walrus", dataset="mail", mode="lexical")
        assert ["sleeps" in hit.text for hit in hits] == [True]
        folder.joinpath("mail.eml").write_text(whole.replace("sleeps", "swims"))
        report = Indexer(library).update("mail")
        assert (report.kept, report.updated, report.unchanged, report.failed) == (0, 1, 2, ())


class Died(BaseException):
    """The end of a process."""


class Crashing:
    """A process that ends when it comes to a table with ``bad``."""

    def ask(self, request):
        yield "mail"
        told = []

        def starting(name):
            told.append(f"attached {name}")
            if name == BAD:
                raise Died

        limits = replace(request.limits, starting=starting)
        try:
            reader = MboxReader() if request.path == "box.mbox" else MailReader()
            with Path(request.absolute).open("rb") as handle:
                yield from reader.read(handle, request.path, limits=limits)
        except Died:
            yield from told
            raise TransientReadError("the reader crashed (exit -11)") from OSError()


BAD = blake2b(b"a;bad", digest_size=20).hexdigest()
TABLES = [f"Content-Type: text/csv; name={it}.csv\n\na;{it}" for it in ("one", "bad", "two")]


def test_an_attachment_that_ends_its_process_costs_only_itself(tmp_path, read, monkeypatch):
    monkeypatch.setattr("catalog.ingest.readers.isolated._WORKERS", Crashing())
    damaged = "reading it takes too much memory or time, or it is damaged"
    documents, failures = read(mixed(f"{PLAIN}utf-8\n\nText.", *TABLES))
    assert list(documents) == ["mail.eml", "mail.eml › one.csv", "mail.eml › two.csv"]
    assert failures == [("mail.eml › bad.csv", damaged)]
    mails = [mixed(f"{PLAIN}utf-8\n\nText {it}.", table) for it, table in enumerate(TABLES)]
    box = tmp_path / "box.mbox"
    box.write_text("".join(f"From a Mon Jan  1 10:00:00 2024\n{mail}\n\n" for mail in mails))
    items = list(read_file(box, "box.mbox"))
    assert len([it for it in items if isinstance(it, ParsedDocument)]) == 5
    assert [(it.path[-7:], it.reason) for it in items[5:]] == [("bad.csv", damaged)]


@pytest.mark.slow
def test_of_many_parts_the_first_thousand_are_read(read):
    parts = (f"Content-Type: text/csv; name={n}.csv\n\na;{n}" for n in range(1_200))
    documents, failures = read(mixed(f"{PLAIN}utf-8\n\nText.", *parts))
    assert len(documents) == 1_000
    assert failures == [("mail.eml", "read as far as 1,000 parts")]


def test_a_mailbox_answers_with_the_original_and_not_with_who_quotes_it(tmp_path):
    folder = tmp_path / "mail"
    folder.mkdir()
    said = "The walrus key hangs on the blue board.\n"
    original = mail("Keys", said, From="Ines <ines@x.org>", Message_ID="<1@x>")
    quoted = f"Thanks.\n\nOn Fri, 31 May 2024, Ines wrote:\n> {said}"
    reply = mail("Re: Keys", quoted, From="Bo <bo@x.org>", Message_ID="<2@x>", In_Reply_To="<1@x>")
    box = b"".join(
        b"From x Fri May 31 10:15:00 2024\n" + one.as_bytes() + b"\n" for one in (original, reply)
    )
    (folder / "in.mbox").write_bytes(box)
    with open_library(tmp_path / "home", distinct_text=True) as library:
        search = SearchServiceV2(library).search
        Indexer(library).build(folder, "d")
        first, *others = search("walrus key", dataset="d").results
        assert first.path == "in.mbox › Keys"
        assert [other.path for other in first.also_in] == ["in.mbox › Re: Keys"]
        assert all(one.modality == "text" for one in others)
        (alone,) = search("walrus", dataset="d", mode="lexical", filters="author=bo@x.org").results
        assert (alone.modality, alone.snippet.splitlines()[-1]) == ("quote", f"> {said.strip()}")
        assert alone.citation.startswith("[source: Re: Keys, quoted, line")
        assert find_document(library.database, alone.citation).text in alone.text
        thread = search("key thanks", dataset="d", filters="thread=1@x").results
        assert {one.path for one in thread} == {"in.mbox › Keys", "in.mbox › Re: Keys"}
        found = find_document(library.database, f"{first.path}:{first.snippet_lines[0]}-99")
        assert said.strip() in found.text
        with pytest.raises(InputError, match="2 documents: one of them is in"):
            find_document(library.database, "in.mbox:2-9")
        with (folder / "in.mbox").open("ab") as box_file:
            box_file.write(b"From x Fri May 31 10:18:00 2024\nSubject: New\n\nA new mail.\n")
        report = Indexer(library).build(folder, "d")
        assert (report.added, report.updated, report.unchanged) == (1, 0, 2)


def test_a_part_that_a_mail_does_not_have_is_no_document(tmp_path):
    folder = tmp_path / "mail"
    folder.mkdir()
    part = "Content-Type: text/csv; name=t.csv\n\na;b"
    (folder / "mail.eml").write_text(mixed(f"{PLAIN}utf-8\n\nText.", part))
    with open_library(tmp_path) as library:
        Indexer(library).build(folder, "mail")
        for name in ("mail.eml › u.csv", "mail:mail.eml › u.csv:3", "mail.eml › t.csv › x"):
            with pytest.raises(DocumentNotFoundError) as refused:
                find_document(library.database, name)
            assert "mail:mail.eml › t.csv" in refused.value.suggestions


def test_an_outlook_message_is_read_with_its_attachments(read):
    head = (
        "From: Ines <ines@x.org>\r\nDate: Fri, 31 May 2024 10:15:00 +0200\r\nMessage-ID: <1@x>\r\n"
    )
    content = outlook_message(
        subject="Keys",
        body="One.\r\n\r\nTwo.\r\n",
        headers=head,
        attached=(("t.csv", b"a;b\n" * 9),),
    )
    documents, failures = read(content, "mail.msg")
    document = documents["mail.msg"]
    assert (document.title, document.file_type) == ("Keys", "msg")
    assert document.metadata["author"] == ("Ines", "ines@x.org")
    assert document.text.split("\n")[6] == "Two."
    assert documents["mail.msg › t.csv"].text == "a;b\n" * 9
    assert failures == []
    with pytest.raises(ReadError, match="a broken Outlook message"):
        read(content[:600], "mail.msg")


def test_an_attachment_is_read_by_its_reader_and_has_the_fields_of_its_mail(read):
    message = mail("Offer", "See below.\n", From="Mia <mia@example.org>", Message_ID="<o@x>")
    message["Date"] = "Thu, 9 May 2024 10:00:00 +0000"
    pdf = MAKERS["pdf"]("", {"pages_drawn": ["Terms", "Thirty days"]})
    message.add_attachment(pdf, maintype="application", subtype="pdf", filename="contract.pdf")
    document = read(message.as_bytes())[0]["mail.eml › contract.pdf"]
    assert (document.file_type, document.source_type) == ("pdf", "attachment")
    assert document.title == "mail.eml › contract.pdf"
    assert len(document.pages) == 2
    assert document.metadata["created"] == "2024-05-09T10:00:00+00:00"
    assert document.metadata["thread"] == "o@x"
    assert {"Mia", "mia@example.org"} <= set(document.metadata["author"])
