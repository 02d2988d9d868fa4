"""The one resolver of names: every argument accepts the names that outputs show.

A path takes precedence over any other name. Other names are ``#docid``, a link, the file from which
a document was made, a passage's reference or citation, an address, a title. The documents that a
role may see are chosen here, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import cached_property, partial
from itertools import chain
from typing import TYPE_CHECKING
from urllib.parse import unquote

from catalog.core.documents import MetadataScalar
from catalog.core.errors import InputError
from catalog.core.filters import WORD_FIELDS, And, Condition, Filter, Not, Op, Or, matches
from catalog.core.lru_cache import LRUCache
from catalog.core.scope import ALL, Scope, caller_role
from catalog.library.document_parts import read_cited_place, without_seconds
from catalog.store.chunks import find_by_docid, list_paths
from catalog.store.document_names import (
    DocumentNames,
    Member,
    list_addresses,
    list_titles,
    live_documents,
    read_levels,
)
from catalog.store.engine_types import read_stamps
from catalog.store.filter_sql import matching_values
from catalog.store.manifest import list_record_files, paths_of_files, paths_of_records

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from catalog.core.settings import Settings
    from catalog.store import Database


DOCID = re.compile(r"#([0-9a-f]{4,64})")
_PLACE = re.compile(r"(?::\d{1,18}){1,3}(?:-\d{1,18}(?::\d{1,18}){0,2})?$")
_LINES = re.compile(r":(\d{1,18})(?:-(\d{1,18}))?$")
_WORD = re.compile(r"\w+")
_CITATION = re.compile(r"\[source: (.*)\]", re.DOTALL)
_NO_PLAIN_TEXT = re.compile(r"[#:%\[]")  # in a name that is no part of a path, title or recording
_NAMING = frozenset(["path", "source_doc_id", "docid", "title", "media"])
_NEGATED = {Op.NE: Op.EQ, Op.NIN: Op.IN}
_EQUAL = frozenset([Op.EQ, Op.CONTAINS, Op.IN, Op.ANY])
_TELLING = _EQUAL | {Op.TEXT_MATCH, Op.TEXT_MATCH_INSENSITIVE}
_MAX_PLACE = 2000  # characters of the place in a citation
_WHOLE: LRUCache[Hashable, Filter] = LRUCache(64)  # filters as one state of datasets reads them
UNLABELLED = "unlabelled"
"""The level, in a role's list, of documents that state none."""


class Names:
    """The names of the documents of a dataset, each kind read when first needed.

    Documents that are not ``seen`` are ignored.
    """

    def __init__(self, connection: Connection, dataset: str, seen: Scope = ALL) -> None:
        self._connection, self.dataset, self._seen = connection, dataset, seen
        self.documents = DocumentNames(connection, dataset)

    @cached_property
    def paths(self) -> Mapping[str, None]:
        """The paths of all documents, in order."""
        return dict.fromkeys(self.only_seen(list_paths(self._connection, self.dataset)))

    @cached_property
    def _record_files(self) -> list[str]:
        files = list_record_files(self._connection, self.dataset)
        if self._seen.is_all:
            return files
        paths = partial(paths_of_files, self._connection, self.dataset)
        return [file for file in files if self.only_seen(paths([file]))]

    @cached_property
    def _by_title(self) -> Mapping[str, list[str]]:
        return _by_key(list_titles(self._connection, self.dataset), _one_line)

    @cached_property
    def _by_address(self) -> Mapping[str, list[str]]:
        return _by_key(list_addresses(self._connection, self.dataset), without_seconds)

    def resolve(self, name: str) -> list[str]:
        """Return the paths of the documents with that name, which is not a glob; may be empty.

        The name of an original is a name of all files made from it, the first to show first.
        """
        docid = DOCID.fullmatch(name)
        if docid is not None:
            found = find_by_docid(self._connection, docid[1], self.dataset)
            return self.only_seen(document.path for document in found)
        for form in _forms(name.removeprefix(f"{self.dataset}:")):
            if paths := next(filter(None, map(self.only_seen, self._meanings(form))), None):
                return paths
            if self._names_record(form):
                break  # in a line without one: the other records are not meant
        return []

    def only_seen(self, paths: Iterable[str]) -> list[str]:
        """Return the paths of documents that are ``seen``."""
        return [path for path in paths if self._seen.allows(f"{self.dataset}:{path}")]

    def records(self, is_named: Callable[[str], bool]) -> list[str]:
        """Return the paths of all records of files with such a path, or name without folders.

        Each may be a document with its own path; only JSON Lines files and mails have several.
        """
        files = [
            file for file in self._record_files if is_named(file) or is_named(_without_folder(file))
        ]
        found = paths_of_files(self._connection, self.dataset, files) if files else []
        return self.only_seen(found)

    def records_at(self, file: str, first: int, last: int | None) -> list[tuple[str, int]]:
        """Return path and line of the records in these lines of a file; may be empty.

        The file is named by its path, or without folders; ``None`` is up to its end.
        """
        named = (one for one in self._record_files if file in (one, _without_folder(one)))
        found = (
            paths_of_records(self._connection, self.dataset, one, first, last) for one in named
        )
        seen = (
            [(path, line) for path, line in records if self._seen.allows(f"{self.dataset}:{path}")]
            for records in found
        )
        return next(filter(None, seen), [])

    def keep_whole(self, tree: Filter) -> Filter:
        """Extend the filter so that all files of a document that a name fits stay together.

        Conditions on fields that name documents accept every name, those on
        :data:`~catalog.core.filters.WORD_FIELDS` every value with the words.
        """
        match tree:
            case And():
                return And(tuple(map(self.keep_whole, tree.parts)))
            case Or():
                return Or(tuple(map(self.keep_whole, tree.parts)))
            case Not():
                return Not(self.keep_whole(tree.part))
        if tree.field in WORD_FIELDS:
            return self._with_words(tree)
        if tree.field not in _NAMING:
            return tree
        if tree.op in _NEGATED:
            equal = Condition(tree.field, _NEGATED[tree.op], tree.value)
            further = self._further(equal)
            return Not(Or((equal, *further))) if further else tree
        further = self._further(tree) if tree.op in _TELLING else ()
        return Or((tree, *further)) if further else tree

    def _with_words(self, tree: Condition) -> Filter:
        """Return the condition with all values of the dataset that have the words of its values."""
        values = tree.value if isinstance(tree.value, tuple) else (tree.value,)
        found = {value: tuple(self._values_with_words(tree.field, value)) for value in values}
        if tree.op is Op.ALL:
            return And(tuple(Condition(tree.field, Op.IN, found[value]) for value in values))
        if tree.op not in _EQUAL | _NEGATED.keys():
            return tree
        op = Op.NIN if tree.op in _NEGATED else Op.IN
        return Condition(tree.field, op, tuple(dict.fromkeys(chain.from_iterable(found.values()))))

    def _values_with_words(self, field: str, value: object) -> Iterator[MetadataScalar]:
        if isinstance(value, bool | int | float | str):
            yield value
        words = _WORD.findall(value.casefold()) if isinstance(value, str) else []
        if words:
            longest = Condition(field, Op.TEXT_MATCH_INSENSITIVE, max(words, key=len))
            for one in matching_values(self._connection, self.dataset, longest):
                if set(words) <= set(_WORD.findall(str(one).casefold())):
                    yield one

    def _meanings(self, name: str) -> Iterator[list[str]]:
        yield [name] if name in self.paths else []
        yield [member.path for member in self.documents.named(name)]
        yield self._records_named(name) or self.records(name.__eq__)
        if self._names_record(name):
            return
        if "://" in name:
            yield self.documents.whole(self._by_address.get(without_seconds(name), ()))
        citation = _CITATION.fullmatch(name)
        title = _one_line(citation[1] if citation else name)
        yield self.documents.whole(self._by_title.get(title, ()))
        for mark in (", ", " › ") if citation else ():  # what follows one: a place
            before = title
            for _ in range(title.count(mark, -_MAX_PLACE)):
                before = before.rpartition(mark)[0]
                yield self.documents.whole(self._by_title.get(before, ()))

    def _records_named(self, name: str) -> list[str]:
        """Return the paths of the records at the lines in a reference or a citation."""
        lines = _LINES.search(name)
        if lines is not None:
            first, last = int(lines[1]), int(lines[2] or lines[1])
            records = self.records_at(name[: lines.start()], first, last)
            return [path for path, _ in records]
        cited = read_cited_place(name)
        if cited is None or cited.file is None:
            return []
        return [
            path for path, _ in self.records_at(cited.file, cited.part.first or 1, cited.part.last)
        ]

    def _names_record(self, name: str) -> bool:
        """Return whether a name is a place in a file of records."""
        cited = read_cited_place(name)
        files = {_PLACE.sub("", name), "" if cited is None else cited.file} - {name}
        return any(file in files or _without_folder(file) in files for file in self._record_files)

    def _further(self, tree: Condition) -> tuple[Filter, ...]:
        """Return a condition on documents that are named but missed by the filter itself."""
        paths = {
            member.path: None
            for group in self.documents.groups.values()
            if any(matches(tree, member.values) for member in group)
            for member in group
            if not matches(tree, _stored(member))
        }
        if tree.field in ("path", "source_doc_id"):
            prefix = "" if tree.field == "path" else f"{self.dataset}:"
            of_files = self.records(lambda file: matches(tree, lambda _: (f"{prefix}{file}",)))
            paths |= dict.fromkeys(of_files)
        for name in self._unmatched(tree):
            paths |= dict.fromkeys(self.documents.whole(self.resolve(name)))
        return (Condition("path", Op.IN, tuple(paths)),) if paths else ()

    def _unmatched(self, tree: Condition) -> Iterator[str]:
        """Yield texts in a condition that may be other names of documents."""
        values = tree.value if isinstance(tree.value, tuple) else (tree.value,)
        names = [value for value in values if isinstance(value, str)]
        if tree.field == "title":
            return
        if tree.op not in _EQUAL:
            yield from filter(_NO_PLAIN_TEXT.search, names)
            return
        if tree.field == "docid":
            yield from (name for name in names if not DOCID.fullmatch(f"#{name}"))
            return
        prefixes = {"path": f"{self.dataset}:", "source_doc_id": ""}
        prefix, live = prefixes.get(tree.field, ""), set[str]()
        if tree.field in prefixes:
            live = live_documents(self._connection, [f"{prefix}{name}" for name in names])
            live = {one for one in live if self._seen.allows(one)}
        missing = (name for name in names if f"{prefix}{name}" not in live)
        yield from (
            name
            for name in missing
            if tree.field == "source_doc_id" or not self.documents.named(name)
        )


def find_named(connection: Connection, dataset: str, name: str) -> list[str]:
    """Return the paths of exactly one document: by path, source or file, or by ``#docid``.

    Raises :class:`InputError` if there is none, with the nearest path.
    """
    bare = name.removeprefix(f"{dataset}:")
    paths = paths_of_files(connection, dataset, [bare])
    if not paths and live_documents(connection, [f"{dataset}:{bare}"]):
        paths = [bare]
    if not paths and (docid := DOCID.fullmatch(name)):
        paths = [one.path for one in find_by_docid(connection, docid[1], dataset)]
    if not paths:
        near = get_close_matches(bare, list_paths(connection, dataset), n=1)
        meant = f"; did you mean {near[0]!r}?" if near else ""
        raise InputError(f"{dataset!r} has no document {name!r}{meant}")
    return paths


def keep_whole(
    connection: Connection, datasets: tuple[str, ...], tree: Filter | None, seen: Scope = ALL
) -> Filter | None:
    """Extend the filter like :meth:`Names.keep_whole` in each of the datasets."""
    if tree is None:
        return None
    stamps = read_stamps(connection, datasets)
    key = None if None in stamps or not seen.is_all else (stamps, datasets, repr(tree))
    whole = None if key is None else _WHOLE.get(key)
    if whole is None:
        whole = _keep_whole(connection, datasets, tree, seen)
        if key is not None:
            _WHOLE.put(key, whole)
    return whole


def _keep_whole(
    connection: Connection, datasets: tuple[str, ...], tree: Filter, seen: Scope
) -> Filter:
    trees = {name: Names(connection, name, seen).keep_whole(tree) for name in datasets}
    if len(trees) == 1 or all(one == tree for one in trees.values()):
        return next(iter(trees.values()))
    named = (And((Condition("dataset", Op.EQ, name), one)) for name, one in trees.items())
    return Or(tuple(named))


def _without_folder(path: str) -> str:
    return path.rpartition("/")[2]


def _stored(member: Member) -> Callable[[str], tuple[MetadataScalar, ...]]:
    return lambda field: member.values(field, is_stored=True)


def _forms(name: str) -> Iterable[str]:
    """Return the names that a name, link or reference may contain, likeliest first."""
    bare = name.partition("#")[0]
    forms = (name, unquote(name), bare, unquote(bare), _PLACE.sub("", name))
    return dict.fromkeys(filter(None, forms))


def _by_key(named: Iterable[tuple[str, str]], key: Callable[[str], str]) -> Mapping[str, list[str]]:
    by_key: dict[str, list[str]] = {}
    for name, path in named:
        by_key.setdefault(key(name), []).append(path)
    return by_key


def _one_line(title: str) -> str:
    """Return the title in the form of a citation."""
    return " ".join(title.replace("[", "(").replace("]", ")").split())


def roles_in_force(settings: Settings, role: str | None) -> list[str]:
    """Return the roles that limit a call: its own, its sender's and the process's; maybe none."""
    given = (settings.answers.role, caller_role(), role)
    return list(dict.fromkeys(one for one in given if one is not None))


def levels_seen(settings: Settings, role: str | None) -> frozenset[str] | None:
    """Return the folded levels that every role in force may see; ``None`` without a role.

    Raises :class:`InputError` for a role that the settings do not name.
    """
    in_force = roles_in_force(settings, role)
    if not in_force:
        return None
    roles = settings.answers.levels()
    for one in in_force:
        if one not in roles:
            known = (
                f"; roles: {', '.join(roles)}" if roles else "; set them with IDX_ANSWERS__ROLES"
            )
            is_bound = in_force != [role]  # then the other roles are not for the caller to know
            raise InputError(f"there is no role {one!r}{'' if is_bound else known}")
    return frozenset.intersection(*(roles[one] for one in in_force))


def role_scope(
    database: Database, settings: Settings, role: str | None, datasets: Iterable[str]
) -> Scope:
    """Return the documents of the datasets that a call as this role may see; all without a role.

    They are those that every role in force may see. A document is seen by who may see all its
    levels, whatever their case. Raises as :func:`levels_seen` does.
    """
    seen = levels_seen(settings, role)
    if seen is None:
        return Scope.all()
    with database.read() as connection:
        levels = read_levels(connection, datasets)
    return Scope.of(name for name, stated in levels.items() if (stated or {UNLABELLED}) <= seen)
