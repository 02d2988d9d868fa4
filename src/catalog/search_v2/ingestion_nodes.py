"""Documents and chunks as LlamaIndex nodes, and any LlamaIndex nodes as documents."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain, count, pairwise
from pathlib import Path, PurePosixPath
from typing import Any, Literal
from urllib.parse import urlsplit
from uuid import UUID

from llama_index.core.schema import (
    BaseNode,
    Document,
    MetadataMode,
    NodeRelationship,
    RelatedNodeInfo,
    TextNode,
)
from pydantic import Field, InstanceOf

from catalog.core import ids
from catalog.core.documents import UNLISTED, ChunkSpan, MetadataValue, ParsedDocument, part_label
from catalog.core.errors import InputError
from catalog.core.text import nfc, storable
from catalog.ingest.pipeline import Source
from catalog.ingest.readers.base import choose_title, file_type
from catalog.ingest.readers.markdown import MarkdownReader
from catalog.ingest.readers.metadata import (
    LEVEL,
    is_web_address,
    normalise,
    one_level,
    plain_json,
    take_title,
)
from catalog.ingest.readers.registry import label
from catalog.ingest.reading import TOLD_BY_CONTENT, drop_claims
from catalog.search_v2.nodes import FOR_MODELS, GIVEN, TEMPLATES
from catalog.store.publish import NewRevision


class ChunkNode(TextNode):
    """A LlamaIndex ``TextNode`` for one chunk: deterministic id, exact offsets.

    ``windows`` are the texts for the model, ``embed_keys`` the cache keys of their vectors,
    ``vectors`` the known vectors by key, ``embedded_by`` the model's fingerprint. None is in the
    node's text or metadata, so no prefix can leak from here. The first chunk of a document carries
    the ``revision`` to publish.
    """

    source: InstanceOf[Source] = Field(exclude=True, repr=False)
    span: InstanceOf[ChunkSpan] = Field(exclude=True, repr=False)
    windows: tuple[str, ...] = Field((), exclude=True, repr=False)
    embed_keys: tuple[str, ...] = Field((), exclude=True, repr=False)
    vectors: dict[str, Any] = Field(default_factory=dict, exclude=True, repr=False)
    embedded_by: str = Field("", exclude=True, repr=False)
    revision: InstanceOf[NewRevision] | None = Field(None, exclude=True, repr=False)

    @classmethod
    def of(
        cls, source: Source, span: ChunkSpan, style: Mapping[str, Any] | None = None
    ) -> ChunkNode:
        """Make the node of one span; ``style`` are its metadata, templates and exclusion keys.

        Its source node is the document as the user names it.
        """
        made_of = RelatedNodeInfo(node_id=source.file, metadata={_ROW: source.source_doc_id})
        return cls(
            id_=source.chunk_id(span),
            text=source.parsed.text[span.start : span.end],
            start_char_idx=span.start,
            end_char_idx=span.end,
            relationships={NodeRelationship.SOURCE: made_of},
            source=source,
            span=span,
            **{name: type(value)(value) for name, value in (style or {}).items()},
        )


KnownBy = Literal["id", "address", "name", "text"]
"""What names a source: the user's id, a path or address, the bare name of a file, or the text."""
_ROW = "source_doc_id"  # in the relationship of a chunk to its source: which stored document
GIVEN_STYLE = ("metadata", "excluded_embed_metadata_keys", "excluded_llm_metadata_keys", *TEMPLATES)
LEAD = "embedding_lead"  # in the metadata of a node of another pipeline
_PROMPT = "prompt_metadata"


def lead_with(node: TextNode, lead: str) -> TextNode:
    """Return the node with text that an embedding model reads first, and a language model never.

    It is in the metadata, so that LlamaIndex's caches and stores keep it. A language model reads
    metadata and text as before, in this order: templates of the node are replaced.
    """
    if not lead.strip():
        return node
    own, space = list(node.metadata), lead[len(lead.rstrip()) :]
    told, prompt = {LEAD: lead.strip()}, node.get_metadata_str(MetadataMode.LLM)
    if prompt:
        told[_PROMPT] = prompt
    changed = {
        "metadata": {**node.metadata, **told},
        "metadata_template": "{value}",
        "text_template": "{metadata_str}" + space + "{content}",
        "excluded_embed_metadata_keys": [*own, _PROMPT],
        "excluded_llm_metadata_keys": [*own, LEAD],
    }
    return node.model_copy(update=changed)


@dataclass(frozen=True)
class GivenText:
    """The text of a plain node, the name of its source, its page, and its metadata.

    A source is named by the id that the user set, else by its full path or address, else by its
    file name, else by its text. ``label`` is its page as written, "" without one: texts of one
    source differ in it. ``given`` are the ids that the user set, as metadata.
    """

    source: str
    path: str
    text: str
    style: Mapping[str, Any]
    label: str = ""
    page: int | None = None
    given: Mapping[str, str] = field(default_factory=dict, compare=False)
    known_by: KnownBy = "id"
    node: BaseNode = field(default_factory=TextNode, compare=False, repr=False)

    @classmethod
    def of(cls, node: BaseNode, root: str = "") -> GivenText:
        """Read a node; a path below the ``root`` of its dataset is relative to it."""
        if not isinstance(node, BaseNode):
            raise InputError(f"give a list of Documents: {node!r:.60} is no document")
        text = storable(node.get_content(metadata_mode=MetadataMode.NONE))
        style = {name: getattr(node, name) for name in GIVEN_STYLE}
        full, bare = _find_address(node.metadata)
        name, address = _find_id(node, has_address=bool(full)), path_below(root, full)
        is_path = bool(full) and _PART.sub("", name) == full
        source = storable(address if is_path else path_below(root, name) or address or bare)
        has_id = bool(name) and not is_path
        label, page = part_label(node.metadata, has_id=has_id), None
        if "page_label" in node.metadata and label.isdecimal() and 0 < int(label) <= _MOST_PAGES:
            metadata = {key: it for key, it in node.metadata.items() if key != "page_label"}
            style, page = style | {"metadata": metadata}, int(label)
        path = storable(address or bare) or source
        given = {"doc_id": name} if name else {}
        if not isinstance(node, Document) and not is_drawn(node.node_id):
            given["node_id"] = node.node_id
        known_by: KnownBy = "id" if has_id else "address" if full else "name" if bare else "text"
        if has_id and not isinstance(node, Document) and node.ref_doc_id:
            known_by = "address"  # other nodes may be of the same document
        source = source or f"text-{int(ids.sha1_hex(text)[:12], 16)}"  # of equal texts, equal paths
        return cls(source, path, text, style, label, page, given, known_by, node)

    @property
    def is_markdown(self) -> bool:
        path = urlsplit(self.path).path if is_web_address(self.path) else self.path
        return PurePosixPath(path).suffix.lower() in _MARKDOWN


_PART = re.compile(r"_part_\d+\Z")  # in ids of SimpleDirectoryReader(filename_as_id=True)
_MOST_PAGES = 100_000
_UNNAMED_TITLE = 80  # characters of the first line that name a text without a name
_MARKDOWN = ("", ".md", ".markdown", ".mdown", ".mkd", ".mdx")
_DATES = {"last_modified_date": "modified", "creation_date": "created"}  # of LlamaIndex readers
_ADDRESSES = ("source_url", "url", "permalink", "source", "link")


def _find_address(metadata: Mapping[str, Any]) -> tuple[str, str]:
    """Return the full path or address that metadata name, and the bare file name; "" if none."""
    paths = (metadata.get(key) for key in ("path", "file_path"))
    said = {str(key).casefold(): value for key, value in metadata.items()}
    addresses = (said.get(key) for key in _ADDRESSES)
    full = next(filter(None, paths), None) or next(filter(is_web_address, addresses), None)
    return str(full or ""), str(metadata.get("file_name") or "")


def path_below(root: str, path: str) -> str:
    """Return a path below the folder ``root`` as ``catalog index build`` names it, or as it is."""
    for real in (Path(path).absolute(), Path(path).resolve()) if root else ():
        if real.is_relative_to(root) and (Path(path).is_absolute() or real.exists()):
            return nfc(real.relative_to(root).as_posix() if real != Path(root) else real.name)
    return path


def _find_id(node: BaseNode, *, has_address: bool) -> str:
    """Return the id that a user gave the node's document; "" if LlamaIndex or a reader drew it.

    Drawn ids are random UUIDs. A user may set one too, for a document without path and address.
    """
    name = node.ref_doc_id or node.node_id
    is_set = isinstance(node, Document) and "id_" in node.model_fields_set
    return "" if is_drawn(name) and (has_address or not is_set) else name


def is_drawn(name: str) -> bool:
    """Return whether LlamaIndex drew an id."""
    try:
        return UUID(name).version == 4
    except ValueError:
        return False


def parse_texts(
    name: str, group: list[GivenText], is_free: Callable[[str], bool]
) -> Iterator[tuple[ParsedDocument, Mapping[str, Any]]]:
    """Yield the documents of one source's texts, with their styles.

    They are ``name``, ``name#2``, ``name#3`` …; a text that is repeated with the same metadata
    counts once. Consecutive pages (``page_label``) with the same metadata are one document, named
    by the first page unless that is 1. A text is Markdown if its path says so or has no suffix.
    """
    if None not in (given := {text.page for text in group}) and len(given) == len(group):
        group = sorted(group, key=lambda text: text.page or 0)
    used: set[str] = set()
    for number, pages in enumerate(_join_pages(group), start=1):
        first = pages[0]
        if not any(text.text.strip() for text in pages):
            continue
        marks = chain([first.label or str(number)], map(str, count(number)))
        paths = (name if mark == "1" else f"{name}#{mark}" for mark in marks)
        path = next(path for path in paths if path not in used and is_free(path))
        used.add(path)
        yield _parse_pages(path, pages), first.style


def _join_pages(group: list[GivenText]) -> list[list[GivenText]]:
    """Return consecutive pages together, other texts one by one, without repetitions."""
    joined = list[list[GivenText]]()  # a number after itself: pages of several files alternate
    is_mixed = any(one.page == other.page is not None for one, other in pairwise(group))
    for text in group:
        last = joined[-1][-1] if joined else None
        is_next = last is not None and last.page is not None and text.page == last.page + 1
        if last is not None and is_next and not is_mixed and text.style == last.style:
            joined[-1].append(text)
        elif text.page is not None or [text] not in joined:
            joined.append([text])
    return joined


def _metadata_of(said: Mapping[str, Any]) -> dict[str, MetadataValue]:
    """Return the metadata to filter by; fields that become first-class ones keep their names."""
    own = {
        key: value
        for key, value in said.items()
        if isinstance(value, str | int | float)
        and LEVEL not in key.casefold()
        and key.casefold() != "title"
    }
    return own | normalise({_DATES.get(key, key): value for key, value in said.items()})


def keep_given(name: str, said: Mapping[str, Any]) -> dict[str, MetadataValue]:
    """Return metadata as they were given, to store under one name that filters do not see."""
    return {name: json.dumps(plain_json(said), default=str)}


def _stored_style(style: Mapping[str, Any]) -> dict[str, MetadataValue]:
    """Return what templates and excluded keys change in the prompts of passages."""
    stored: dict[str, MetadataValue] = {
        f"{UNLISTED}{name}": style[name]
        for name in TEMPLATES
        if style[name] != TextNode.model_fields[name].default
    }
    for name in ("excluded_llm_metadata_keys", "excluded_embed_metadata_keys"):
        if keys := tuple(key for key in FOR_MODELS if key in style[name]):
            stored[f"{UNLISTED}{name}"] = keys
    return stored


def _parse_pages(path: str, pages: list[GivenText]) -> ParsedDocument:
    """Return the document of these pages, or of a single text; its first page keeps its number."""
    first = pages[0]
    shared = set.intersection(*({*page.given.items()} for page in pages))  # ids of all the pages
    said = first.style["metadata"] | (named := dict(sorted(shared)))
    if said.get("path", first.source) != first.source:  # else the document's own path hides it
        said.setdefault("file_path", said.pop("path"))
    metadata = _metadata_of(said) | named
    for name in TOLD_BY_CONTENT:
        metadata.pop(name, None)
    title = take_title(metadata)
    metadata |= _stored_style(first.style)
    if title is not None and "title" in first.style["excluded_embed_metadata_keys"]:
        metadata["title"], title = title, None  # the title of a document is searched
    unnamed = "" if first.path else first.text.strip().partition("\n")[0][:_UNNAMED_TITLE]
    if first.is_markdown and first.page is None:
        parsed = drop_claims(MarkdownReader().parse(first.text, path))
        unnamed = parsed.title if parsed.headings or not unnamed else unnamed
    else:
        text = "\n\n".join(page.text for page in pages)
        parsed = ParsedDocument(path, text, "", file_type(first.path))
    if first.page is not None:
        lengths = [len(page.text) + 2 for page in pages]
        starts = accumulate(lengths[:-1], initial=0)
        parsed = replace(parsed, pages=(*[0] * (first.page - 1), *starts))
    given = keep_given(GIVEN, {**parsed.metadata, **said})
    level = one_level(parsed.metadata.get(LEVEL), metadata.get(LEVEL))
    title = choose_title(first.path or path, title, unnamed)
    metadata = {**parsed.metadata, **metadata, **level}
    parsed = label(replace(parsed, title=title, source_type="llama_index", metadata=metadata))
    return replace(parsed, metadata={**parsed.metadata, **given})
