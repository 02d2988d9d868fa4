"""Turn a document into stored passages: cut it, build the text to embed, publish it.

``ingest/readers`` reads, :func:`catalog.ingest.sync.sync` decides which documents changed, and
:mod:`catalog.ingest.embedding` asks the model.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Literal

from catalog.core import ids
from catalog.core.documents import Chunk, ChunkSpan, Cue, ParsedDocument
from catalog.core.settings import RAGv2Settings
from catalog.embedding.model import EmbeddingModel
from catalog.ingest.chunking import Cut, DocumentChunker
from catalog.ingest.summaries import summarise
from catalog.ingest.sync_report import in_groups
from catalog.store import Database, embedding_cache
from catalog.store.publish import NewChunk, NewRevision, content_hash, publish_all

if TYPE_CHECKING:
    from catalog.store.embedding_cache import Vector

TEXTS_VERSION = 17  # +1 when the same file gives other chunks, metadata, or other text to embed
TOGETHER = 100  # chunks published in one transaction: more would block other writers for long


@dataclass(frozen=True)
class Source:
    """A document on its way into a dataset.

    ``file`` is the listed file from which it came; ``modified`` is dated by it (ISO 8601, UTC).
    """

    dataset: str
    file: str
    parsed: ParsedDocument
    modified: str | None = None

    @cached_property
    def content_hash(self) -> str:
        """The hash of the document's content; see :mod:`catalog.store.publish`."""
        return content_hash(self.parsed)

    def fingerprint(self, pipeline: str) -> str:
        """Return the fingerprint of how it was cut, which changes if text only moved in a file."""
        form = self.parsed.places.to_dict()
        return pipeline if form is None else f"{pipeline}:{ids.sha1_hex(json.dumps(form))[:8]}"

    @cached_property
    def source_doc_id(self) -> str:
        """The stable id ``dataset:path``."""
        return ids.source_doc_id(self.dataset, self.parsed.path)

    @cached_property
    def revision_id(self) -> str:
        """The id of this content of the document."""
        return ids.revision_id(self.source_doc_id, self.content_hash)

    def revision(
        self,
        chunks: Iterable[NewChunk],
        pipeline: str,
        embedded_by: str,
        vectors: Mapping[str, Vector] | None = None,
    ) -> NewRevision:
        """Return the revision to publish; chunks without a vector wait for it."""
        what = self.dataset, self.file, self.parsed, self.content_hash, tuple(chunks)
        how = self.fingerprint(pipeline), self.modified, vectors or {}, embedded_by
        return NewRevision(*what, *how, summarise(self.parsed.text))

    def chunk_id(self, span: ChunkSpan) -> str:
        """Return the id of one passage of the document."""
        return ids.chunk_id(self.revision_id, span.modality, span.start)


@dataclass(frozen=True, slots=True)
class EmbeddedText:
    """Build the text to embed: the prefix, the place of the passage, and the passage.

    The prefix never reaches the stored text, an index, a snippet or a prompt. With ``context``, one
    line before the passage has the path, the title and the headings that the passage itself does
    not show; with the ``form`` of ``labels``, it has title, type and headings, each with its name.
    A minute of speech has several thoughts, which one vector blurs. So parts of about
    ``part_seconds`` are embedded in addition to the whole, and the best score counts.
    """

    model: EmbeddingModel
    context: bool = True
    form: Literal["place", "labels"] = "place"
    part_seconds: float = 20.0

    def windows(self, document: ParsedDocument, span: ChunkSpan) -> tuple[str, ...]:
        """Return the texts to embed for a document's passage, each short enough for the model."""
        text, lead = document.text[span.start : span.end], ""
        if self.context and self.form == "labels":
            name = document.title or PurePosixPath(document.path).name
            lead = format_labels(name, document.file_type, span.heading_path)
        elif self.context:
            names = (document.title, *span.heading_path, *span.sections)
            lead = format_place(document.path, names, text)
        lead += "\n".join((*span.context, "\n")) if span.context else ""
        windows = self.model.windows(text, lead, tokens=span.tokens or None)
        for part in split_by_time(text, span.cues, self.part_seconds):
            windows += self.model.windows(part, lead)
        return tuple(windows)

    def stored_windows(self, chunk: Chunk) -> tuple[str, ...]:
        """Return the texts to embed for a stored chunk, the same as when it was cut."""
        same = ["heading_path", "modality", "locator", "cues", "sections", "context"]
        known = {name: getattr(chunk, name) for name in same}
        span = ChunkSpan(0, len(chunk.text), **known)
        document = ParsedDocument(chunk.path, chunk.text, chunk.title, chunk.file_type)
        return self.windows(document, span)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """How a dataset's documents are cut and embedded; ``fingerprint`` identifies it."""

    chunker: DocumentChunker
    embedded: EmbeddedText
    fingerprint: str

    @classmethod
    def of(
        cls,
        settings: RAGv2Settings,
        model: EmbeddingModel,
        *,
        chunk_size: int | None = None,
        chunk_overlap: int | None = None,
    ) -> Pipeline:
        """Return the pipeline of the settings; sizes are in the model's tokens."""
        chunker = DocumentChunker(
            model.encoder.counter,
            chunk_size=settings.chunk_size if chunk_size is None else chunk_size,
            chunk_overlap=settings.chunk_overlap if chunk_overlap is None else chunk_overlap,
            min_size=settings.chunk_min_size,
            window_seconds=settings.transcript_window_seconds,
        )
        form, seconds = settings.embed_context_form, settings.transcript_part_seconds
        embedded = EmbeddedText(model, settings.embed_context, form, seconds)
        return cls(chunker, embedded, pipeline_fingerprint(settings, model))

    @property
    def model(self) -> EmbeddingModel:
        """The model that embeds the documents."""
        return self.embedded.model

    def prepare(self, source: Source) -> tuple[NewRevision, str | None]:
        """Cut a document to publish; the second value says why a tokenizer did not count."""
        cut, chunks = cut_document(self.chunker, source), list[NewChunk]()
        for span in cut.spans:
            keys = embed_keys(self.model, self.embedded.windows(source.parsed, span))
            chunks.append(NewChunk(source.chunk_id(span), span, keys))
        embedded_by = self.model.encoder.fingerprint
        return source.revision(chunks, self.fingerprint, embedded_by), cut.fallback

    def stored_texts(self, chunks: Iterable[Chunk]) -> dict[str, str]:
        """Return the texts to embed for stored chunks, by key."""
        windows = [window for chunk in chunks for window in self.embedded.stored_windows(chunk)]
        return dict(zip(embed_keys(self.model, windows), windows, strict=True))


def pipeline_fingerprint(settings: RAGv2Settings, embed_model: EmbeddingModel) -> str:
    """Identify how documents are read, cut and embedded; a change means to do it again."""
    chunks = ["chunk_size", "chunk_overlap", "chunk_min_size", "transcript_window_seconds"]
    used = [getattr(settings, it) for it in (*chunks, "transcript_part_seconds", "embed_context")]
    encoder, form = embed_model.encoder, settings.embed_context_form
    used += [embed_model.document_prefix, encoder.fingerprint, encoder.counter.name]
    used += [form] * (form != "place")  # documents were made before there was a choice
    return ids.sha1_hex("|".join(map(str, [TEXTS_VERSION, *used])))[:16]


def cut_document(
    chunker: DocumentChunker, source: Source, ranges: Sequence[tuple[int, int]] | None = None
) -> Cut:
    """Cut a document; ``ranges`` are passages that were cut elsewhere."""
    document = source.parsed
    cut = chunker.cut(document) if ranges is None else chunker.cut_at(document, ranges)
    # sizes in other tokens than the model's cannot show whether a passage fits its window
    spans = (replace(span, tokens=0) if cut.fallback else span for span in cut.spans)
    return Cut(tuple(spans), cut.fallback)


def embed_keys(model: EmbeddingModel, windows: Iterable[str]) -> tuple[str, ...]:
    """Return the cache keys for the vectors of these texts."""
    fingerprint = model.encoder.fingerprint
    return tuple(embedding_cache.embed_key(fingerprint, text) for text in windows)


def publish(
    database: Database,
    revisions: Iterable[NewRevision],
    clock: Callable[[], float] = time.time,
) -> None:
    """Store documents, several in a transaction; a search sees all of a document or nothing."""
    for group in in_groups(revisions, lambda one: len(one.chunks), TOGETHER):
        now = clock()
        with database.write() as connection:
            publish_all(connection, group, now)


def split_by_time(text: str, cues: Sequence[Cue], part_seconds: float) -> list[str]:
    """Split a passage with cues into parts of about ``part_seconds``, between cues.

    Return no parts if there would be a single one, or if ``part_seconds`` is 0.
    """
    begin = cues[0].time_start if cues else 0.0
    duration = max((cue.time_end for cue in cues), default=begin) - begin
    count = min(round(duration / part_seconds), len(cues)) if part_seconds > 0 else 0
    ends: dict[int, int] = {}
    for cue in cues if count > 1 else ():
        middle = (cue.time_start + cue.time_end) / 2 - begin
        part = max(max(ends, default=0), min(count - 1, int(middle * count / duration)))
        ends[part] = cue.end
    bounds = [cues[0].start, *ends.values()] if len(ends) > 1 else []
    return [text[start:end].strip() for start, end in pairwise(bounds)]


_SUFFIX = re.compile(r"\.\w{1,8}$")
_WORD = re.compile(r"[^\W\d_]{3,}")


def format_place(path: str, names: Iterable[str], text: str) -> str:
    """Return ``path > Title > Heading`` and a line break, without parts shown in the text.

    A path with fewer than two words, such as a number, and a suffix are left out.
    """
    path = _SUFFIX.sub("", path)
    is_telling = len(_WORD.findall(path)) > 1
    distinct = dict.fromkeys((path if is_telling else "", *names))
    unseen = [name for name in distinct if name and name not in text]
    return " > ".join(unseen) + "\n" if unseen else ""


def format_labels(name: str, file_type: str, headings: Iterable[str]) -> str:
    """Return ``[doc: Title] [type: pdf] [section: Heading > Heading]`` and a line break.

    Unknown values are left out.
    """
    labels = {"doc": name, "type": file_type, "section": " > ".join(filter(None, headings))}
    said = [f"[{label}: {' '.join(value.split())}]" for label, value in labels.items() if value]
    return " ".join(said) + "\n" if said else ""
