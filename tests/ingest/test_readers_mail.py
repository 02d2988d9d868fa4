"""Mail: text, people, dates, quotations, attachments, threads, mailboxes."""

from __future__ import annotations

import base64
import io
import zipfile
from dataclasses import replace
from email.message import EmailMessage
from hashlib import blake2b
from pathlib import Path

import pytest
from reportlab.pdfgen.canvas import Canvas

from catalog.core.documents import ParsedDocument
from catalog.core.errors import (
    DocumentNotFoundError,
    EmptyDocumentError,
    InputError,
    ReadError,
    TransientReadError,
)
from catalog.core.places import AS_IN_FILE
from catalog.ingest.readers.base import DEFAULT_LIMITS, ReadFailure, ReadLimits
from catalog.ingest.readers.mail.mailbox import MboxReader
from catalog.ingest.readers.mail.message import MailReader
from catalog.ingest.readers.mail.quotes import tell_kinds
from catalog.ingest.readers.registry import read_file, sniff
from catalog.library.get import find_document
from catalog.library.indexing import Indexer
from catalog.search_v2.service import SearchServiceV2
from fakes import open_library
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


def body(document):
    return document.text.partition("\n\n")[2]


def pdf(*pages):
    data = io.BytesIO()
    canvas = Canvas(data)
    for page in pages:
        canvas.drawString(72, 700, page)
        canvas.showPage()
    canvas.save()
    return data.getvalue()


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


def line_of(document, words):
    assert document.places == AS_IN_FILE  # a citation names the lines of the text
    return document.text.split("\n").index(words) + 1


def test_subject_people_and_date_are_text_and_fields(read):
    documents, failures = read(
        HEAD + "Cc: Mia <mia@example.org>\nKeywords: house, keys\n\nHello.\n"
    )
    document = documents["mail.eml"]
    assert (document.title, document.file_type, document.source_type) == ("Keys", "eml", "mail")
    assert document.text.startswith("Subject: Keys\nFrom: Ines Dahl <ines@example.org>\nTo: Bo")
    assert body(document) == "Hello."
    assert failures == []
    assert dict(document.metadata) == {
        "author": ("Ines Dahl", "ines@example.org"),
        "to": ("Bo", "bo@example.org"),
        "cc": ("Mia", "mia@example.org"),
        "created": "2024-05-31T10:15:00+02:00",
        "message_id": "key@example.org",
        "thread": "key@example.org",
        "tags": ("house", "keys"),
    }


ENCODED = {
    "quoted-printable": (
        f"{PLAIN}iso-8859-1\nContent-Transfer-Encoding: quoted-printable\n\n".encode()
        + b"Der Schl=FCssel h=E4ngt am Bre=\ntt.",
        "Der Schlüssel hängt am Brett.",
    ),
    "base64": (
        f"{PLAIN}utf-8\nContent-Transfer-Encoding: base64\n\n".encode()
        + base64.encodebytes("Schlüssel".encode()),
        "Schlüssel",
    ),
    "Windows-1252 called iso-8859-1": (
        f"{PLAIN}iso-8859-1\n\n".encode() + "“€40”".encode("cp1252"),
        "“€40”",
    ),
    "iso-2022-jp": (f"{PLAIN}iso-2022-jp\n\n".encode() + "鍵は板".encode("iso-2022-jp"), "鍵は板"),
    "JIS without a charset": ("\n会議は金曜日".encode("iso-2022-jp"), "会議は金曜日"),
    "JIS called ASCII": (f"{PLAIN}us-ascii\n\n".encode() + "灯台".encode("iso-2022-jp"), "灯台"),
    "a text of another kind": (b"Content-Type: text/asciidoc\n\n= Quay\n", "= Quay"),
    "koi8-r": (f"{PLAIN}koi8-r\n\n".encode() + "Ключ".encode("koi8-r"), "Ключ"),
    "no charset": ("\nЦена 40 €".encode(), "Цена 40 €"),
    "a charset in pieces without numbers": (
        b"Content-Type: text/plain; charset*0=a; charset*=b\n\nText.",
        "Text.",
    ),
    "an unknown charset": (f"{PLAIN}x-unknown\n\nSchlüssel".encode(), "Schlüssel"),
    "flowed": (
        f"{PLAIN}us-ascii; format=flowed\n\nA long \nline.\n> so \n> quoted".encode(),
        "A long \nline.\n> so \n> quoted",
    ),
    "a boundary that never comes": (
        b"Content-Type: multipart/mixed; boundary=B\n\nNo parts.\n",
        "No parts.",
    ),
}


@pytest.mark.parametrize("kind", ENCODED)
def test_a_body_is_decoded(read, kind):
    content, text = ENCODED[kind]
    documents, _ = read(HEAD.encode() + content)
    assert body(documents["mail.eml"]) == text


@pytest.mark.parametrize(
    ("header", "subject"),
    [
        (b"=?utf-8?B?UsOkdW11bmc=?=", "Räumung"),
        (b"=?iso-8859-1?Q?R=E4u?=\n =?iso-8859-1?Q?mung?=", "Räumung"),
        (b"=?iso-2022-jp?B?" + base64.b64encode("鍵".encode("iso-2022-jp")) + b"?=", "鍵"),
        ("Räumung".encode(), "Räumung"),
        (b"=?utf-8?B?broken", "=?utf-8?B?broken"),
    ],
)
def test_a_subject_is_decoded(read, header, subject):
    documents, _ = read(b"Subject: " + header + b"\n\nText.\n")
    assert documents["mail.eml"].title == subject


def test_lines_are_those_of_the_text_in_every_encoding(read):
    coded = base64.encodebytes(b"\n".join(b"Line %d" % at for at in range(40))).decode()
    for part, words, line in [
        ("\nOne.\n\nTwo.\n", "Two.", 8),
        ("Content-Transfer-Encoding: quoted-printable\n\nA long =\nline.\nEnd.", "End.", 7),
        ("Content-Type: text/html\n\n<p>First</p>\n<p>Second\npart</p>\n", "Second part", 8),
        (f"Content-Transfer-Encoding: base64\n\n{coded}", "Line 39", 45),
    ]:
        document = read(HEAD + part)[0]["mail.eml"]
        assert line_of(document, words) == line


STUB = f"{PLAIN}utf-8\n\nYour program does not display HTML."
OFFER = "Content-Type: text/html\n\n<p>Varnish from the Lacewing yard costs eight crowns.</p>"


def test_a_plain_text_that_only_says_that_there_is_html_is_not_the_text(read):
    documents, _ = read(mixed(STUB, OFFER, kind="alternative"))
    assert body(documents["mail.eml"]) == "Varnish from the Lacewing yard costs eight crowns."
    short = f"{PLAIN}utf-8\n\nVarnish costs eight crowns."
    documents, _ = read(mixed(short, OFFER, kind="alternative"))
    assert body(documents["mail.eml"]) == "Varnish costs eight crowns."
    documents, _ = read(mixed(STUB, "Content-Type: text/html\n\n<img src=x>", kind="alternative"))
    assert body(documents["mail.eml"]) == "Your program does not display HTML."


def test_a_mail_of_apple_is_read_without_its_count_and_its_properties(read):
    mail = f"{HEAD}\nThe barometer fell.\n"
    content = f"{len(mail)}       \n{mail}<?xml version='1.0'?><plist><dict/></plist>\n"
    documents, failures = read(content, "Messages/4711.emlx")
    document = documents["Messages/4711.emlx"]
    assert (document.title, body(document), failures) == ("Keys", "The barometer fell.", [])


def test_plain_text_is_preferred_and_attachments_of_any_alternative_stay(read):
    attached = "Content-Type: text/csv; name=prices.csv\n\nroom;price\n"
    html = "Content-Type: text/html\n\n<p>Plain, in HTML"
    other = f"Content-Type: multipart/mixed; boundary=C\n\n--C\n{html}\n--C\n{attached}\n--C--"
    documents, _ = read(mixed(f"{PLAIN}utf-8\n\nPlain.", other, kind="alternative"))
    assert body(documents["mail.eml"]) == "Plain."
    assert documents["mail.eml › prices.csv"].text == "room;price\n"
    blank = mixed(
        f"{PLAIN}utf-8\n\n \n", "Content-Type: text/html\n\n<b>HTML</b>", kind="alternative"
    )
    assert body(read(blank)[0]["mail.eml"]) == "HTML"


def test_an_attachment_is_read_by_its_reader_and_has_the_fields_of_its_mail(read):
    message = mail("Offer", "See below.\n", From="Mia <mia@example.org>", Message_ID="<o@x>")
    message["Date"] = "Thu, 9 May 2024 10:00:00 +0000"
    message.add_attachment(
        pdf("Terms", "Thirty days"), maintype="application", subtype="pdf", filename="contract.pdf"
    )
    document = read(message.as_bytes())[0]["mail.eml › contract.pdf"]
    assert (document.file_type, document.source_type) == ("pdf", "attachment")
    assert document.title == "mail.eml › contract.pdf"
    assert len(document.pages) == 2
    assert document.metadata["created"] == "2024-05-09T10:00:00+00:00"
    assert document.metadata["thread"] == "o@x"
    assert {"Mia", "mia@example.org"} <= set(document.metadata["author"])


def test_names_of_attachments_are_decoded_and_lead_nowhere(read):
    names = [
        "filename*0*=utf-8''%C3%9Cber; filename*1=sicht.txt",
        'filename="=?utf-8?B?UGzDpG5lLnR4dA==?="',
        'filename="../../etc/passwd.txt"',
        'filename="C:\\\\a › b.txt"',
        'filename=".."',
        'filename="passwd (2).txt"',
        'filename="passwd.txt"',
        'filename="größe.txt"',
    ]
    parts = [
        f"Content-Type: text/plain\nContent-Disposition: attachment; {name}\n\nText {at}.\n"
        for at, name in enumerate(names)
    ]
    documents, _ = read(mixed(*parts))
    assert [path.removeprefix("mail.eml › ") for path in documents][1:] == [
        "Übersicht.txt", "Pläne.txt", "passwd.txt", "a - b.txt", "part.txt", "passwd (2).txt",
        "passwd (2) (2).txt", "größe.txt",
    ]  # fmt: skip


def test_an_attached_mail_is_a_document_of_its_sender(read):
    inner = "Content-Type: message/rfc822\n\nFrom: Cy <cy@x.org>\nSubject: Otters\n\nThey swim.\n"
    document = read(mixed(f"{PLAIN}utf-8\n\nSee.", inner))[0]["mail.eml › Otters.eml"]
    assert document.metadata["author"] == ("Cy", "cy@x.org")
    assert (document.title, body(document)) == ("Otters", "They swim.")
    assert "to" not in document.metadata


def test_an_attached_mailbox_is_read(read):
    part = f"Content-Type: application/mbox; name=in.mbox\n\n{MBOX}"
    documents, failures = read(mixed(f"{PLAIN}utf-8\n\nSee.", part))
    names = ["in.mbox › Keys", "in.mbox › Re: Keys", "in.mbox › Re: Keys (2)"]
    assert [*documents][1:] == [f"mail.eml › {name}" for name in names]
    assert failures == []


def test_a_mailbox_in_a_folder_of_a_maildir_keeps_its_name(read):
    assert next(iter(read(MBOX, "new/in.mbox")[0])) == "new/in.mbox › Keys"


def test_what_is_not_read_is_named(read):
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as opened:
        opened.writestr("a.txt", "text")
    coded = base64.encodebytes(archive.getvalue()).decode()
    parts = [
        f"Content-Type: application/zip; name=a.zip\nContent-Transfer-Encoding: base64\n\n{coded}",
        "Content-Type: application/pgp-signature; name=signature.asc\n\n-----BEGIN",
        "Content-Type: image/png; name=logo.png\nContent-Transfer-Encoding: base64\n\niVBORw0K",
        "Content-Type: application/pkcs7-mime; name=smime.p7m\n\nMIAG",
        "Content-Type: application/pdf; name=x.pdf\nContent-Transfer-Encoding: base64\n\nAAEC",
    ]
    documents, failures = read(mixed(f"{PLAIN}utf-8\n\nText.", *parts))
    assert list(documents) == ["mail.eml"]
    assert failures == [
        ("mail.eml › a.zip", "a ZIP archive: unpack it"),
        ("mail.eml › x.pdf", "binary (data)"),
        (
            "mail.eml",
            "not read: signature.asc (application/pgp-signature), logo.png (image/png), "
            "smime.p7m (application/pkcs7-mime)",
        ),
    ]


def test_base64_in_the_text_is_left_out_and_reported(read):
    coded = "\n".join(["aGVsbG8gd29ybGQhIQ9JUzFhQmMxMjM0NTY3ODlBQkNERUZHSElKS0xNTk9QUVJT"] * 8)
    documents, failures = read(f"{HEAD}\nThe picture:\n{coded}\nEnd.\n")
    assert "aGVsbG8" not in documents["mail.eml"].text
    assert line_of(documents["mail.eml"], "End.") == 15
    assert failures[0][1].endswith("characters of base64")


@pytest.mark.parametrize(
    ("date", "created"),
    [
        ("", None),
        ("Date: 31 May 24 10:15 EST\n", "2024-05-31T10:15:00-05:00"),
        ("Date: nonsense\n", None),
    ],
)
def test_a_date_comes_from_the_header(read, date, created):
    document = read(f"Subject: a\n{date}\nText.\n")[0]["mail.eml"]
    assert str(document.metadata.get("created"))[: len(str(created))] == str(created)


@pytest.mark.parametrize("content", ["X-Foo: bar\n\n", "Subject:\n\n \n"], ids=["fields", "blank"])
def test_a_mail_without_anything_is_empty(read, content):
    with pytest.raises(EmptyDocumentError):
        read(content)


def test_a_mail_cut_off_to_no_byte_is_broken(read):
    with pytest.raises(ReadError, match="broken: 0 bytes"):
        read("")


def test_a_mail_of_an_attachment_alone_is_read(read):
    content = 'Subject: \nContent-Type: application/json; name=t.json\n\n{"a": 1}\n'
    assert list(read(content)[0]) == ["mail.eml › t.json"]


TOP_POSTED = """Agreed.

On Fri, 31 May 2024 at 10:15, Ines Dahl
<ines@example.org> wrote:

> The key hangs on the board.
>> Where is it?

> Bye
Thanks again!

--
Bo Lind
"""
OUTLOOK = """Agreed.

________________________________
Von: Ines Dahl <ines@example.org>
Gesendet: Freitag, 31. Mai 2024 10:15
An: Bo
Betreff: Keys

The key hangs on the board.
"""
ORIGINAL = """Agreed.
-----Ursprüngliche Nachricht-----
From: Ines
Sent: 31 May

The key hangs on the board."""
FORWARDED = """FYI

---------- Forwarded message ---------
From: Ines
Date: Fri

The key hangs on the board."""


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        (TOP_POSTED, "ttqqqqqqqttsss"),
        (OUTLOOK, "ttqqqqqqqq"),
        (ORIGINAL, "tqqqqq"),
        (FORWARDED, "ttqqqqq"),
        ("Note:\n\nFrom: here on\nit is my own text.", "tttt"),
        ("Prices:\n> 40", "tq"),
    ],
    ids=["top-posted", "outlook", "original", "forwarded", "own text", "no attribution"],
)
def test_quotations_and_signatures_are_told_from_new_text(text, kinds):
    assert "".join(kind[0] for kind in tell_kinds(text.split("\n"))) == kinds


def test_a_blockquote_of_html_is_a_quotation(read):
    html = (
        "<p>Agreed.</p><div>On Fri, 31 May 2024 Ines wrote:</div>"
        "<blockquote><p>The key</p><p>hangs.</p></blockquote><p>Bye</p>"
    )
    document = read(f"{HEAD}Content-Type: text/html\n\n{html}")[0]["mail.eml"]
    (segment,) = document.segments
    assert segment.modality == "quote"
    assert document.text[segment.start : segment.end] == (
        "On Fri, 31 May 2024 Ines wrote:\n\n> The key\n\n> hangs."
    )
    assert body(document).startswith("Agreed.")
    assert document.text.endswith("\n\nBye")


MBOX = """From ines@example.org Fri May 31 10:15:00 2024
From: ines@example.org
Subject: Keys
Message-ID: <1@x>

>From here on it is text.
From nowhere: no time.

From b@example.org Fri May 31 10:16:00 2024
From: b@example.org
Subject: Re: Keys
Message-ID: <2@x>
In-Reply-To: <1@x>

Second.

From c@example.org Fri May 31 10:17:00 2024
From: c@example.org
Subject: Re: Keys
Message-ID: <3@x>
In-Reply-To: <2@x>

Third.
"""


def test_each_mail_of_a_mailbox_is_a_document_with_lines_of_its_text(read):
    documents, failures = read(MBOX, "in.mbox")
    assert list(documents) == ["in.mbox › Keys", "in.mbox › Re: Keys", "in.mbox › Re: Keys (2)"]
    first, second, third = documents.values()
    assert body(first) == "From here on it is text.\nFrom nowhere: no time."
    assert line_of(third, "Third.") == 4
    assert {one.metadata["thread"] for one in (first, second, third)} == {"1@x"}
    assert {one.file_type for one in documents.values()} == {"mbox"}
    assert failures == []


def test_mails_without_a_subject_are_told_apart(read):
    line = "From x Fri May 31 10:15:00 2024\n"
    documents, _ = read(f"{line}From: a@x\n\nOne.\n\n{line}From: a@x\n\nTwo.\n", "in.mbox")
    assert [(path, one.title) for path, one in documents.items()] == [
        ("in.mbox › mail", "in.mbox › mail"),
        ("in.mbox › mail (2)", "in.mbox › mail (2)"),
    ]


def test_an_attachment_in_a_mailbox_has_the_thread_and_the_date_of_its_mail(read):
    inner = "Content-Type: message/rfc822\n\nSubject: Otters\nMessage-ID: <o@x>\n\nThey swim.\n"
    part = "Content-Type: text/csv; name=t.csv\n\na;b"
    reply = mixed(part, inner).replace("Subject", "In-Reply-To: <2@x>\nSubject", 1)
    box = f"{MBOX}\nFrom x Fri May 31 10:15:00 2024\n{reply}"
    documents, _ = read(box, "in.mbox")
    attached = documents["in.mbox › 2024-05-31 Keys › t.csv"]
    assert (attached.title, attached.metadata["thread"]) == (attached.path, "1@x")
    assert documents["in.mbox › 2024-05-31 Keys › Otters.eml"].metadata["thread"] == "o@x"


def test_a_mail_that_is_twice_in_a_mailbox_is_read_once_but_not_another_with_its_id(read):
    documents, failures = read(MBOX + "\n" + MBOX.replace("Second.", "Changed."), "in.mbox")
    assert len(documents) == 4
    assert [reason for _, reason in failures] == ["the same mail is above it in the file"] * 2


def test_a_mail_that_fails_leaves_the_others_of_its_mailbox(read):
    empty = "From x Fri May 31 10:15:00 2024\nX-Mailer: a\n\n"
    documents, failures = read(f"{empty}\n{MBOX}", "in.mbox")
    assert len(documents) == 3
    assert failures[0][0] == "in.mbox:1"


def test_a_mail_three_deep_is_named(read):
    inner = "Content-Type: message/rfc822\nSubject: {}\n\n"
    content = "".join(inner.format(name) for name in "abcd") + "Subject: e\n\nText.\n"
    documents, failures = read(content)
    assert list(documents) == ["mail.eml", "mail.eml › b.eml", "mail.eml › b.eml › c.eml"]
    deepest = "mail.eml › b.eml › c.eml › d.eml"
    assert failures == [(deepest, "a mail in a mail in a mail: save it as a file")]
    assert read("Subject: a\n" + "Content-Type: message/rfc822\n\n" * 30_000)[0]


def test_parts_nested_deeply_are_read_as_text(read):
    part = "Content-Type: multipart/mixed; boundary=b{0}\n\n--b{0}\n{1}\n--b{0}\n"
    content = "".join(part.format(n, f"\nText {n}.") for n in range(300))
    documents, failures = read(f"Subject: a\n{content}")
    assert all(f"Text {n}." in documents["mail.eml"].text for n in (9, 299))
    assert failures == []


def test_a_mail_of_a_maildir_keeps_its_name_when_it_is_read_and_flagged(read):
    content = f"Return-Path: <a@x.org>\n{HEAD}\nHello.\n"
    for name in ("in/new/17.M1P2.host", "in/cur/17.M1P2.host:2,S"):
        assert list(read(content, name)[0]) == ["in/17.M1P2.host"]
    assert list(read(content, "new/letter.eml")[0]) == ["new/letter.eml"]


def test_mail_is_recognised_by_its_content():
    head = b"Return-Path: <a@x.org>\nReceived: from x\n by y\nSubject: a\n\nText"
    assert sniff("17.M1P2.host", head, b"") == ("mail", None)
    assert sniff("Inbox", b"From a@x Fri May 31 10:15:00 2024\n" + head, b"") == ("mbox", None)
    with pytest.raises(ReadError, match="Thunderbird's index"):
        sniff("Inbox.msf", b'// <!-- <mdb:mork:z v="1.4"/> -->\n< <(a=c)> >\n', b"")
    assert sniff("quay.adoc", b"MIME-Version: 1.0\n\n= Quay\n", b"") == ("asciidoc", None)
    assert sniff("list.txt", b"Received: five boxes\nFrom: the harbour\n", b"") == ("plain", None)


def test_confidentiality_of_a_mail_holds_for_its_attachments(read):
    stated = HEAD + "Confidentiality: secret\n"
    documents, _ = read(mixed("Content-Type: text/csv; name=t.csv\n\na;b").replace(HEAD, stated))
    assert {one.metadata["confidentiality"] for one in documents.values()} == {"secret"}
    other = "Content-Type: text/html; name=t.html\n\n<meta name=confidentiality content=public>Text"
    documents, _ = read(mixed(f"{PLAIN}utf-8\n\nText.", other).replace(HEAD, stated))
    levels = {path: one.metadata["confidentiality"] for path, one in documents.items()}
    assert levels == {"mail.eml": "secret", "mail.eml › t.html": "unreadable"}
    documents, _ = read(HEAD + "X-Confidentiality: secret\n\nText.\n")
    assert documents["mail.eml"].metadata["confidentiality"] == "secret"
    documents, _ = read(HEAD + "Confidentiality-Level: secret\n\nText.\n")
    assert documents["mail.eml"].metadata["confidentiality"] == "unreadable"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (f"{HEAD}\n" + "a" * 20_000, "too long: over 10,000 characters"),
    ],
    ids=["one line"],
)
def test_a_hostile_mail_is_refused_with_a_reason(read, content, reason):
    with pytest.raises(ReadError, match=reason):
        read(content, limits=ReadLimits(text_bytes=10_000))


def test_a_mail_of_many_quotations_does_not_become_as_many_passages(read):
    document = read(f"{HEAD}\n" + "> a\nb\n" * 5_000)[0]["mail.eml"]
    assert len(document.segments) == 100


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
    assert line_of(document, "Two.") == 7
    assert documents["mail.msg › t.csv"].text == "a;b\n" * 9
    assert failures == []
    with pytest.raises(ReadError, match="a broken Outlook message"):
        read(content[:600], "mail.msg")


def test_hostile_fields_and_html_are_read_in_bounded_time(read):
    documents, _ = read("Subject: a\nTo: " + "a@x.org, " * 200_000 + "\n\nText.\n")
    assert body(documents["mail.eml"]) == "Text."
    html = "<div>" * 20_000 + "Text." + "<blockquote>" * 20_000 + "<script>alert(1)</script>"
    documents, _ = read(f"Subject: a\nContent-Type: text/html\n\n{html}")
    assert body(documents["mail.eml"]) == "Text."


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


CSV = "Content-Type: text/csv; name=t.csv\nContent-Transfer-Encoding: base64\n\n"
CODED = base64.encodebytes(b"a;b\n" * 200).decode()


@pytest.mark.parametrize(
    ("content", "is_cut"),
    [
        (mixed(f"{PLAIN}utf-8\n\nText.", CSV + CODED), False),
        (mixed(f"{PLAIN}utf-8\n\nText.", CSV + CODED).removesuffix("--B--\n"), False),
        (mixed(f"{PLAIN}utf-8\n\nText.", CSV + CODED)[:-301], True),
        (
            mixed(f"{PLAIN}utf-8\n\nText.", CSV + CODED.rsplit("\n", 3)[0]).removesuffix(
                "\n--B--\n"
            ),
            True,
        ),
        (mixed(f"{PLAIN}utf-8\n\nText in the mid").removesuffix("\n--B--\n"), True),
        (f"{HEAD}{PLAIN}utf-8\n\nText without a line end", False),
        (HEAD + CSV.replace("csv; name=t.csv", "plain") + CODED[:199], True),
    ],
    ids=[
        "whole",
        "no last boundary",
        "base64",
        "a line of base64",
        "text",
        "one part",
        "one part of base64",
    ],
)
def test_a_mail_that_was_cut_short_is_read_with_a_remark(read, content, is_cut):
    documents, failures = read(content)
    assert set(documents) <= {"mail.eml", "mail.eml › t.csv"}
    assert all("a;b\n" in one.text or "Text" in one.text for one in documents.values())
    assert [reason.startswith("it ends in the middle") for _, reason in failures] == [True] * is_cut


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


def test_long_headers_and_many_parts_are_bounded_and_named(read):
    many = "; ".join(f'x{n}="{n}"' for n in range(200_000))
    documents, failures = read(
        f"{HEAD}Keywords: house\nContent-Type: text/plain; {many}\n\nText.\n"
    )
    assert (body(documents["mail.eml"]), failures) == ("Text.", [])
    documents, failures = read("Subject: " + "walrus " * 5_000 + f"\n{HEAD}\nText.\n")
    assert body(documents["mail.eml"]) == "Text."
    assert failures == [("mail.eml", "read as far as 20,000 characters of the header Subject")]
    for count in (1_200, 5_000):
        parts = (f"Content-Type: text/csv; name={n}.csv\n\na;{n}" for n in range(count))
        documents, failures = read(mixed(f"{PLAIN}utf-8\n\nText.", *parts))
        assert len(documents) == 1_000
        assert failures == [("mail.eml", "read as far as 1,000 parts")]


def test_a_mail_of_a_maildir_is_one_under_a_long_header(read):
    content = f"X-Signature: {'abc ' * 9_000}\n{HEAD}\nText.\n"
    assert list(read(content, "in/cur/17.M1P2.host:2,S")[0]) == ["in/17.M1P2.host"]


def test_an_attached_mail_without_a_date_has_that_of_its_mail(read):
    inner = "Content-Type: message/rfc822\n\nSubject: Otters\n{}\nThey swim.\n"
    documents, _ = read(mixed(inner.format(""), inner.format("Date: Mon, 1 Apr 2024 9:00 +0000\n")))
    assert documents["mail.eml › Otters.eml"].metadata["created"] == "2024-05-31T10:15:00+02:00"
    assert documents["mail.eml › Otters (2).eml"].metadata["created"].startswith("2024-04-01")


def test_a_part_may_state_a_confidentiality_of_its_own(read):
    secret = "X-Confidentiality: secret\nContent-Type: text/csv; name=t.csv\n\na;b"
    documents, _ = read(
        mixed(f"{PLAIN}utf-8\n\nText.", secret, secret.replace("X-Confidentiality", "Received"))
    )
    levels = {path: one.metadata.get("confidentiality") for path, one in documents.items()}
    assert levels == {"mail.eml": None, "mail.eml › t.csv": "secret"}
    documents, _ = read(
        mixed(
            f"X-Confidentiality: secret\n{PLAIN}utf-8\n\nText.",
            "Content-Type: text/csv; name=t.csv\n\na;b",
        )
    )
    assert {one.metadata["confidentiality"] for one in documents.values()} == {"secret"}
    documents, _ = read(
        mixed(f"{PLAIN}utf-8\n\nText.", secret).replace(HEAD, f"{HEAD}Confidentiality: public\n")
    )
    assert documents["mail.eml › t.csv"].metadata["confidentiality"] == "unreadable"


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
