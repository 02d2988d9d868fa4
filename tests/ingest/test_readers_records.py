"""Exports of chats and notes: one document for each record, or one for a list of messages."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import pytest

from catalog.core.documents import ParsedDocument
from catalog.ingest.readers.base import DEFAULT_LIMITS, ReadFailure
from catalog.ingest.readers.registry import load_reader, sniff
from growth import assert_linear


def read(value: Any, path: str = "export.json") -> tuple[list[ParsedDocument], list[str]]:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    reader = load_reader(sniff(path, data[:8192], data[-2048:])[0])
    items = list(reader.read(io.BytesIO(data), path, limits=DEFAULT_LIMITS))
    documents = [item for item in items if isinstance(item, ParsedDocument)]
    return documents, [item.reason for item in items if isinstance(item, ReadFailure)]


def node(name: str, parent: str | None, role: str, text: str) -> dict[str, Any]:
    said = {"author": {"role": role}, "create_time": 1767340000.1, "content": {"parts": [text]}}
    return {"id": name, "parent": parent, "message": said}


def test_each_conversation_is_a_document_with_the_branch_that_was_kept() -> None:
    tree = {
        "root": {"id": "root", "message": None, "parent": None},
        "a": node("a", "root", "user", 'Which knot holds?\nI have "slippery" cord.'),
        "b": node("b", "a", "assistant", "Use a granny knot."),
        "c": node("c", "a", "assistant", "Use a timber hitch."),
    }
    chat = {"title": "Knots", "create_time": 1767340000.1, "current_node": "c", "mapping": tree}
    first, second, third = read([chat, chat, {**chat, "title": "", "id": "x7"}])[0]
    assert first.text == (
        'Knots\n\nuser: Which knot holds?\nI have "slippery" cord.\n\n'
        "assistant: Use a timber hitch."
    )
    assert (first.path, first.title) == ("export.json › Knots", "Knots")
    assert (second.path, third.path) == ("export.json › Knots (2)", "export.json › x7")
    assert (second.places.unit, second.places.numbers) == ("record", (2,))
    assert (first.metadata["created"], first.source_type) == ("2026-01-02T07:46", "record")


def test_a_conversation_with_pieces_and_senders_is_read_too() -> None:
    said = {"text": "", "content": [{"type": "text", "text": "Tar it."}], "sender": "assistant"}
    asked = {"text": "How?", "sender": "human", "created_at": "2026-03-05T10:12:00Z"}
    (document,) = read([{"uuid": "u", "name": "Rope", "chat_messages": [asked, said]}])[0]
    assert document.text == "Rope\n\nhuman: How?\n\nassistant: Tar it."


def test_messages_without_titles_are_paragraphs_of_one_document() -> None:
    pieces = ["Meet at the ", {"type": "bold", "text": "lantern"}, " house."]
    messages = [
        {"id": 1, "date": "2026-03-14T18:03:11", "from": "Ilse Moor", "text": pieces,
         "text_entities": [{"type": "plain", "text": "Meet at the "}]},
        {"id": 2, "date": "2026-03-14T18:04:00", "from": "Jory Penn", "text": "Паруса"},
        {"id": 3, "date": "2026-03-15T08:00:00", "from": "Jory Penn", "text": "Late."},
        {"id": 4, "date": "2026-03-15T08:01:00", "type": "service", "title": "Crew", "text": ""},
    ]  # fmt: skip
    (document,) = read({"name": "Regatta crew", "id": 77, "messages": messages})[0]
    assert document.text == (
        "Regatta crew\n\nIlse Moor, 2026-03-14 18:03: Meet at the lantern house.\n\n"
        "Jory Penn, 2026-03-14 18:04: Паруса\n\nJory Penn, 2026-03-15 08:00: Late."
    )
    assert (document.path, document.title) == ("export.json", "Regatta crew")
    at = document.text.index("Jory")
    assert document.places.numbers_of(at, len(document.text)) == (2, 3)


@pytest.mark.parametrize(
    "message",
    [
        {"user": "Ann", "ts": "1709633520.000200", "text": "Ahoy"},
        {"author": {"name": "Ann"}, "timestamp": "2024-03-05T10:12:00+00:00", "content": "Ahoy"},
        {"sender_name": "Ann", "timestamp_ms": 1709633520000, "content": "Ahoy"},
    ],
)
def test_author_and_time_come_from_the_usual_keys(message: dict[str, Any]) -> None:
    assert read([message])[0][0].text == "Ann, 2024-03-05 10:12: Ahoy"


def test_a_chat_of_several_is_a_document_each_with_its_times() -> None:
    said = {"from": "Ann", "date": "2024-03-05T10:12:00", "text": "Ahoy"}
    chats = [{"name": name, "messages": [said]} for name in ("Crew", "Guild")]
    documents, _ = read({"about": "Your data", "chats": {"list": chats}})
    assert [one.text for one in documents] == [
        "Crew\n\nAnn, 2024-03-05 10:12: Ahoy", "Guild\n\nAnn, 2024-03-05 10:12: Ahoy",
    ]  # fmt: skip


def test_letters_that_were_taken_for_latin_1_are_mended() -> None:
    wrong = {"sender_name": "Zo\u00c3\u00a9", "content": "Cet \u00c3\u00a9t\u00c3\u00a9"}
    assert read({"messages": [wrong]})[0][0].text == "Zoé: Cet été"


def test_a_note_has_its_text_once_and_its_labels_as_tags() -> None:
    note = {
        "title": "Boat paint", "textContent": "Hull: Verdigris 40\nDeck: sand", "isPinned": False,
        "createdTimestampUsec": 1772600000000000, "labels": [{"name": "boat"}], "shelf": "Loft",
        "textContentHtml": "<p dir='ltr'><span>Hull: Verdigris 40</span></p>",
    }  # fmt: skip
    (document,), remarks = read(note, "Boat paint.json")
    assert document.text == "Boat paint\n\nHull: Verdigris 40\nDeck: sand"
    assert dict(document.metadata) == {"tags": ("boat",), "created": "2026-03-04T04:53"}
    assert remarks == ["fields that are not read: shelf, textContentHtml"]


def test_a_list_with_titles_gives_a_document_each() -> None:
    records = [
        {"id": at, "title": f"Boat {at}", "text": f"<p>Number PV{at}X</p>"} for at in range(3)
    ]
    documents, _ = read({"items": records, "next": "page 2"})
    assert [one.text for one in documents][1] == "Boat 1\n\nNumber PV1X"
    assert [one.places.numbers for one in documents] == [(1,), (2,), (3,)]


@pytest.mark.parametrize(
    "value",
    [
        {"name": "gate", "description": "Opens the gate.", "scripts": {"test": "pytest"}},
        [{"name": "Ann", "age": 3}, {"name": "Bo", "age": 4}],
        {"rules": [{"id": 1, "message": "Use two spaces"}]},
        {"hello": {"message": "Hello there"}, "bye": {"message": "See you"}},
        [[1, 2], [3, 4]],
        {"text": "no title"},
    ],
)
def test_settings_and_tables_stay_text(value: Any) -> None:
    (document,) = read(value)[0]
    assert document.text == json.dumps(value)
    assert document.places.unit == "line"


def test_a_transcript_comes_before_records() -> None:
    cues = [{"text": "Ahoy there", "start": at, "end": at + 1, "author": "Ann"} for at in range(3)]
    assert read(cues)[0][0].source_type == "transcript"


def test_notes_of_evernote_are_documents_without_markup() -> None:
    body = (
        '<?xml version="1.0"?><!DOCTYPE en-note SYSTEM "x"><en-note><div>Press <b>tape</b>&nbsp;on.'
        '</div><div><en-todo checked="true"/>buy needles</div></en-note>'
    )
    note = (
        "<note><title>Sail repair</title><created>20250102T090000Z</created><tag>boat</tag>"
        "<note-attributes><author>Ilse Moor</author></note-attributes>"
        f"<content><![CDATA[{body}]]></content>"
        '<resource><data encoding="base64">LUeBXg==</data></resource></note>'
    )
    export = f"<?xml version='1.0'?><en-export>{note}{note}</en-export>".encode()
    (first, second), remarks = read(export, "notes.enex")
    assert first.text == "Sail repair\n\nPress tape on.\n\nbuy needles"
    assert [first.path, second.path] == ["notes.enex › Sail repair", "notes.enex › Sail repair (2)"]
    assert dict(first.metadata) == {
        "author": "Ilse Moor", "tags": ("boat",), "created": "2025-01-02T09:00",
    }  # fmt: skip
    assert remarks == ["fields that are not read: data"]


@pytest.mark.parametrize(
    "export",
    [
        lambda size: [
            {"title": "a", "text": "b " * 20, **{f"k{at}": "word " * 9 for at in range(size)}}
        ],
        lambda size: [{"from": "Ann", "date": "2024-03-05", "text": ["x", {"text": "y"}] * size}],
        lambda size: {
            "current_node": "n0",
            "mapping": {
                f"n{at}": node(f"n{at}", f"n{(at + 1) % size}", "user", "x") for at in range(size)
            },
        },
        lambda size: [
            {"date": 1e300, "ts": -5, "time": "9" * 17, "text": "x", "from": "a"}
        ] * size,
    ],
)  # fmt: skip
def test_odd_exports_take_linear_time(export: Callable[[int], Any]) -> None:
    assert_linear(lambda size: read(export(size)), 2_000)
