"""Deterministic ids: the same bytes under the same name have the same ids in every build.

source_doc_id  "{dataset}:{path}"                               stable over edits
content_hash   sha256 hex of the document's text and metadata   one content
revision_id    sha1 of "source_doc_id:content_hash"
chunk_id       sha1 of "revision_id:modality:start_offset"
docid          first hex digits of the content hash, short enough to type
"""

from __future__ import annotations

import hashlib
import re

from catalog.core.errors import InputError

DOCID_LENGTH = 8
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def check_dataset_name(name: str) -> None:
    """Raise :class:`InputError` unless the name is safe in ids, file names and collections."""
    if _NAME.fullmatch(name) is None:
        raise InputError(
            f"dataset {name!r}: use 1 to 100 letters, digits, '.', '_' or '-', "
            "starting with a letter or digit"
        )


def source_doc_id(dataset: str, path: str) -> str:
    """Return the stable name of a document: its dataset and its path there."""
    return f"{dataset}:{path}"


def sha1_hex(text: str) -> str:
    """Return SHA-1 of the UTF-8 bytes, as 40 hex digits; lone surrogates are kept distinct."""
    return hashlib.sha1(text.encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest()


def sha256_hex(text: str) -> str:
    """Return SHA-256 of the UTF-8 bytes, as 64 hex digits."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def revision_id(source_doc_id: str, content_hash: str) -> str:
    """Return the id of one content of one document."""
    return sha1_hex(f"{source_doc_id}:{content_hash}")


def chunk_id(revision_id: str, modality: str, start_offset: int) -> str:
    """Return the id of the chunk that starts at ``start_offset`` (characters) of a revision."""
    return sha1_hex(f"{revision_id}:{modality}:{start_offset}")


def docid(content_hash: str) -> str:
    """Return the short, typeable name of a content, without its ``#``."""
    return content_hash[:DOCID_LENGTH]
