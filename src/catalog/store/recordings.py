"""Recordings: the passages around a moment, the end, the file and the name of a recording.

Transcript and frames of a recording are often separate documents. Those with the same value of the
field ``media`` in a dataset belong together. A document without the field is a recording by itself.
"""

from functools import cache
from pathlib import PurePosixPath

from sqlalchemy import Connection, Select, and_, bindparam, case, func, select

from catalog.core.documents import Chunk
from catalog.core.results import TIMED_MODALITIES
from catalog.store.chunks import load_chunks
from catalog.store.document_names import original_of
from catalog.store.filter_sql import among
from catalog.store.restriction import Restriction
from catalog.store.schema import chunks, document_fields, documents, manifest
from catalog.store.sql_forms import PlainText, shortened

_MOST = 200  # passages around a moment that are loaded
_MOST_ALLOWED = 4_000  # passages that are checked against the restriction
_VIDEO = ("mp4", "mkv", "webm", "mov", "avi", "m4v", "mpg", "mpeg", "wmv", "flv", "ogv", "3gp")
_AUDIO = ("mp3", "m4a", "wav", "flac", "ogg", "opus", "aac", "wma", "aiff")


def media_key(chunk: Chunk) -> str | None:
    """Return the recording that the passage's document names; ``None`` if it names no recording."""
    key = chunk.metadata.get("media")
    return key if isinstance(key, str) and key else None


def read_originals(connection: Connection, dataset: str, *, unread: bool = False) -> set[str]:
    """Return the files from which documents of the dataset say that they were made.

    With ``unread``, return only files that have no document themselves.
    """
    fields = document_fields.c
    named = select(fields.text_value).join(documents, documents.c.id == fields.document_id)
    named = named.where(documents.c.dataset == dataset, fields.field == "media_file")
    files = {str(file) for file in connection.scalars(named.where(fields.kind == "s"))}
    if unread and files:
        own = select(documents.c.file).where(documents.c.dataset == dataset)
        files -= set(connection.scalars(own.where(among(documents.c.file, files))))
    return files


def load_chunks_between(
    connection: Connection, restriction: Restriction, chunk: Chunk, start: float, end: float
) -> list[Chunk]:
    """Return the timed passages of the chunk's recording between two seconds, both included.

    Only passages that the restriction allows are returned, in order of time. Of passages with the
    same start, the transcript comes first. If there are very many, those nearest to the chunk are
    returned.
    """
    query, _ = _statements(media_key(chunk) is not None)
    middle = {"middle": chunk.locator.time_start or 0.0, "row": chunk.seq}
    between = {"first": start, "last": end, **middle}
    seqs = list(connection.scalars(query, _recording(chunk) | between))
    if seqs and not restriction.is_whole_dataset:
        # A separate query: in a joint one SQLite would scan the dataset, not the recording.
        query_allowed = select(chunks.c.seq).where(among(chunks.c.seq, seqs), restriction.clause())
        allowed = set(connection.scalars(query_allowed))
        seqs = [seq for seq in seqs if seq in allowed]
    found = load_chunks(connection, restriction.dataset, seqs[:_MOST]).values()
    return sorted(
        found,
        key=lambda one: (one.locator.time_start or 0.0, one.modality == "video_frame", one.seq),
    )


def find_media_end(connection: Connection, chunk: Chunk) -> float:
    """Return the end of the chunk's recording in seconds; 0 if nothing in it is timed.

    The end is the latest one of all its passages, allowed or not, or the ``duration`` in the
    metadata of the chunk's document if that is later.
    """
    _, query = _statements(media_key(chunk) is not None)
    latest_end = connection.scalar(query, _recording(chunk))
    tagged = chunk.metadata.get("duration")
    duration = tagged if isinstance(tagged, int | float) and not isinstance(tagged, bool) else 0.0
    return float(max(0.0, latest_end or 0.0, duration))


def find_media_file(connection: Connection, chunk: Chunk) -> str | None:
    """Return the recording's file, relative to the dataset's folder, ``None`` if unknown.

    The document names it in ``media_file``. Otherwise it is the listed file, read or not, with the
    recording's name and an extension of video or audio.
    """
    if (own := original_of(chunk)) is not None:
        return own
    stem = media_key(chunk) or chunk.path.removesuffix(PurePosixPath(chunk.path).suffix)
    kinds = (*_AUDIO, *_VIDEO) if chunk.modality == "audio_transcript" else (*_VIDEO, *_AUDIO)
    file = manifest.c.file
    # The slash is the character after the full stop.
    named = (manifest.c.dataset == chunk.dataset, file > f"{stem}.", file < f"{stem}/")
    files = connection.scalars(select(file).where(*named).order_by(file))
    beside = {one[len(stem) + 1 :].lower(): one for one in files}
    return next((beside[kind] for kind in kinds if kind in beside), None)


def recording_name(file: str | None, chunk: Chunk) -> str:
    """Return a recording's name: its file without folders, else the document's title or path."""
    return PurePosixPath(file or "").name or chunk.title or PurePosixPath(chunk.path).name


@cache  # to build a statement takes longer than to run it
def _statements(of_several: bool) -> tuple[Select[int], Select[float | None]]:
    """Select the passages between two seconds, and the last second, of a recording.

    With ``of_several`` the parameters name the recording by its ``media`` value; otherwise they
    name its only document.
    """
    document_ids, fields = select(documents.c.id), document_fields.c
    if of_several:
        is_named = and_(
            documents.c.dataset == bindparam("dataset"),
            fields.field == "media",
            fields.kind == "s",
            fields.text_value == bindparam("media"),
            shortened(fields.text_value) == shortened(bindparam("media", type_=PlainText)),
        )
        joined = document_ids.join(document_fields, fields.document_id == documents.c.id)
        document_ids = joined.where(is_named)
    else:
        document_ids = document_ids.where(documents.c.source_doc_id == bindparam("document"))
    is_of = and_(chunks.c.document_id.in_(document_ids), chunks.c.modality.in_(TIMED_MODALITIES))
    start, end = chunks.c.time_start, func.coalesce(chunks.c.time_end, chunks.c.time_start)
    latest = case((end > start, end), else_=start)
    is_in = and_(start <= bindparam("last"), latest >= bindparam("first"))
    distance = func.abs(start - bindparam("middle")), func.abs(chunks.c.seq - bindparam("row"))
    between = select(chunks.c.seq).where(is_of, is_in).order_by(*distance).limit(_MOST_ALLOWED)
    return between, select(func.max(latest)).where(is_of)


def _recording(chunk: Chunk) -> dict[str, object]:
    """Return the parameters that identify the chunk's recording."""
    key = media_key(chunk)
    if key is None:
        return {"document": chunk.source_doc_id}
    return {"dataset": chunk.dataset, "media": key}
