"""Recordings: what was said and shown in one of them around a moment, and what it is called.

Transcript and frames of a recording are often documents of their own; those with the same value
of the field ``media`` in one dataset belong together. A document without it is by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import PurePosixPath

from sqlalchemy import Connection, Select, and_, bindparam, case, func, select

from catalog.core.documents import Chunk
from catalog.core.results import TIMED_MODALITIES
from catalog.store.chunks import load_chunks
from catalog.store.engine_types import Restriction
from catalog.store.filter_sql import among
from catalog.store.schema import chunks, document_fields, documents, manifest

_VIDEO = ("mp4", "mkv", "webm", "mov", "avi", "m4v", "mpg", "mpeg", "wmv", "flv", "ogv", "3gp")
_AUDIO = ("mp3", "m4a", "wav", "flac", "ogg", "opus", "aac", "wma", "aiff")


def media_key(chunk: Chunk) -> str | None:
    """What the passage's document gives as its recording; ``None``: it is one by itself."""
    key = chunk.metadata.get("media")
    return key if isinstance(key, str) and key else None


def load_chunks_between(
    connection: Connection, restriction: Restriction, chunk: Chunk, start: float, end: float
) -> list[Chunk]:
    """The timed passages of the chunk's recording from second ``start`` to ``end``, both included.

    Only those that may answer under the restriction. In the order of time; of passages that begin
    together the transcript first.
    """
    query, whose = _statements(media_key(chunk) is not None).between, _recording(chunk)
    seqs = list(connection.scalars(query, {**whose, "first": start, "last": end}))
    if seqs and not restriction.is_whole_dataset:
        # Apart, for SQLite would rather go through the dataset than through the recording.
        narrowed = select(chunks.c.seq).where(among(chunks.c.seq, seqs), restriction.clause())
        allowed = set(connection.scalars(narrowed))
        seqs = [seq for seq in seqs if seq in allowed]
    found = load_chunks(connection, restriction.dataset, seqs)
    return [found[seq] for seq in seqs if seq in found]


def find_media_end(connection: Connection, chunk: Chunk) -> float:
    """The last second of the chunk's recording, 0 if nothing of it is timed.

    That of its passages, whichever of them may answer, or the ``duration`` that the chunk's
    document tells, if later.
    """
    query = _statements(media_key(chunk) is not None).end
    found = connection.scalar(query, _recording(chunk))
    told = chunk.metadata.get("duration")
    duration = told if isinstance(told, int | float) and not isinstance(told, bool) else 0.0
    return float(max(0.0, found or 0.0, duration))


def find_media_file(connection: Connection, chunk: Chunk) -> str | None:
    """The recording's own file, relative to the dataset's folder; ``None``: it is not known.

    As the chunk's document tells in ``media_file``, else the file of the recording's name and an
    extension of videos or sound among all that were listed, read or not.
    """
    own = chunk.metadata.get("media_file")
    if isinstance(own, str) and own:
        return own
    stem = media_key(chunk) or chunk.path.removesuffix(PurePosixPath(chunk.path).suffix)
    kinds = (*_AUDIO, *_VIDEO) if chunk.modality == "audio_transcript" else (*_VIDEO, *_AUDIO)
    # The slash is the character after the full stop.
    named = {"dataset": chunk.dataset, "after": f"{stem}.", "before": f"{stem}/"}
    files = sorted(connection.scalars(_LISTED, named))
    beside = {file[len(stem) + 1 :].lower(): file for file in files}
    return next((beside[kind] for kind in kinds if kind in beside), None)


def media_name(connection: Connection, chunk: Chunk) -> str:
    """What to call the recording: its file without folders, else the document's title or path."""
    return recording_name(find_media_file(connection, chunk), chunk)


def recording_name(file: str | None, chunk: Chunk) -> str:
    """The same for a recording's file that was found."""
    return PurePosixPath(file or "").name or chunk.title or PurePosixPath(chunk.path).name


@dataclass(frozen=True, slots=True)
class _Statements:
    """What is asked about a recording; the parameters say about which."""

    between: Select[int]
    end: Select[float | None]


_LISTED = select(manifest.c.file).where(
    manifest.c.dataset == bindparam("dataset"),
    manifest.c.file > bindparam("after"),
    manifest.c.file < bindparam("before"),
)


@cache  # making a statement takes longer than running it
def _statements(of_several: bool) -> _Statements:
    """For a recording of several documents, or for a document that is one by itself."""
    fields = document_fields.c
    its = select(documents.c.id).where(documents.c.source_doc_id == bindparam("document"))
    if of_several:
        its = select(documents.c.id).join(document_fields, fields.document_id == documents.c.id)
        its = its.where(documents.c.dataset == bindparam("dataset"), fields.field == "media")
        its = its.where(fields.kind == "s", fields.text_value == bindparam("media"))
    is_of = and_(chunks.c.document_id.in_(its), chunks.c.modality.in_(TIMED_MODALITIES))
    start, end = chunks.c.time_start, func.coalesce(chunks.c.time_end, chunks.c.time_start)
    latest = func.max(start, end)
    is_in = and_(start <= bindparam("last"), latest >= bindparam("first"))
    is_frame = case((chunks.c.modality == "video_frame", 1), else_=0)
    return _Statements(
        select(chunks.c.seq).where(is_of, is_in).order_by(start, is_frame, chunks.c.seq),
        select(func.max(latest)).where(is_of),
    )


def _recording(chunk: Chunk) -> dict[str, object]:
    """The parameters that say which recording the chunk is of."""
    key = media_key(chunk)
    if key is None:
        return {"document": chunk.source_doc_id}
    return {"dataset": chunk.dataset, "media": key}
