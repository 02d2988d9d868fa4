"""The names of documents: every argument accepts the names that outputs show.

A path takes precedence over any other name. Other names are ``#docid``, a link, the file from which
a document was made, a passage's reference or citation, an address, a title. The documents that a
role may see are chosen here, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial, reduce
from posixpath import basename, normpath
from typing import TYPE_CHECKING, Literal
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from catalog.core.documents import Locator, MetadataScalar
from catalog.core.errors import InputError
from catalog.core.filters import WORD_FIELDS, And, Condition, Filter, Not, Op, Or, matches
from catalog.core.kept import LRUCache
from catalog.core.places import format_clock
from catalog.core.scope import ALL, CALLER_ROLE, Scope
from catalog.store import document_names
from catalog.store.chunks import find_by_docid, find_root, list_paths
from catalog.store.document_names import DocumentNames
from catalog.store.filter_sql import text_values
from catalog.store.manifest import list_record_files, paths_of_files, paths_of_records
from catalog.store.restriction import read_stamps

if TYPE_CHECKING:
    from pathlib import Path

    from sqlalchemy import Connection

    from catalog.core.settings import Settings
    from catalog.store import Database


URI_SCHEME = "catalog://"  # of the resources that the MCP server lists
UNLABELLED = "unlabelled"
"""The level, in a role's list, of documents that state none."""
DOCID = re.compile(r"#([0-9a-f]{4,64})")
_MAX_ADDRESS = 8000  # characters, the least that is to be expected: RFC 9110, 4.1
_MAX_PLACE = 2000  # characters of the place at the end of a name
_HEADER = re.compile(r"@@ (.*) @@", re.DOTALL)
_RANK = re.compile(r"^\[\d{1,4}\] ")
_AFTER_TITLE, _MAX_TITLES = " — ", 5
_NUMBERS = r"\d{1,18}(?::\d{1,18}){0,2}"
_COLONS = re.compile(rf":(?:t=)?({_NUMBERS})(?:-({_NUMBERS}))?$")
_LINKED = re.compile(r"[#?&](?P<unit>page|t|start)=(?P<at>\d{1,9})s?(?=[&#]|$)")
_LINES = re.compile(r"#L(\d{1,9})(?:-L?(\d{1,9}))?$")
_CITATION = re.compile(r"\[source: (.*)\]", re.DOTALL)
_CLOCK = r"\d{1,9}(?::\d\d){1,2}"
AREA = r"(?:'(?:[^']|''){1,99}+'|[\w.]{1,99}+)![A-Z]{1,3}\d{1,7}(?::[A-Z]{1,3}\d{1,7})?"
_PLACE = re.compile(
    rf"(?:,? (?:(?:t=)?(?P<from>{_CLOCK})(?:-(?P<to>{_CLOCK}))?"
    r"|(?P<unit>page|slide|line|cell|paragraph|record)s? "
    r"(?P<first>\d{1,9})(?:-(?P<last>\d{1,9}))?"
    r"(?: \((?:page|slide)s (?P<pages>\d{1,9}-\d{1,9})\))?"
    r"(?:, lines? (?P<line>\d{1,9})(?:-(?P<line_end>\d{1,9}))?)?"
    r"(?: of (?P<file>[^\[\]]{1,1000}))?)"
    rf"| › (?P<cells>{AREA}(?:, {AREA})*+))$"
)
_SHEET = re.compile(r" › ([^›]++)$")
_WORD = re.compile(r"\w+")
_NO_PLAIN_TEXT = re.compile(r"[#:%\[]")  # in a name that is no part of a path, title or recording
_NAMING = frozenset(["path", "source_doc_id", "docid", "title", "media"])
_NEGATED = {Op.NE: Op.EQ, Op.NIN: Op.IN}
_EQUAL = frozenset([Op.EQ, Op.CONTAINS, Op.IN, Op.ANY])
_MATCHING = frozenset([Op.TEXT_MATCH, Op.TEXT_MATCH_INSENSITIVE])
_WHOLE: LRUCache[Hashable, Filter] = LRUCache(64)  # filters as one state of datasets reads them


@dataclass(frozen=True, slots=True)
class DocumentPart:
    """The requested part of a document: numbers of its unit, lines of a cell, seconds, or cells.

    Both ends of each range are included; ``None`` is from the beginning, or to the end. Cells are
    ``Costs!A12:F30``, or a whole sheet, ``Costs``.
    """

    first: int | None = None
    last: int | None = None
    lines: tuple[int, int] | None = None
    seconds: tuple[int, int] | None = None
    cells: str | None = None


WHOLE = DocumentPart()


@dataclass(frozen=True, slots=True)
class Reading:
    """One way to read a reference: a name, and the part that is meant, by the unit that it counts.

    A place after a colon fits ``any`` unit; ``second`` is what it is in a document named other than
    by its path, ``moment`` a second with what is around it. ``parts`` is ``None`` without a place,
    and empty for one that cannot be read. A ``title`` is cited, so it is no path.
    """

    name: str
    form: Literal["name", "colon", "shown", "sheet", "title"] = "name"
    parts: Mapping[str, DocumentPart] | None = None


def readings(reference: str) -> Iterator[Reading]:
    """Yield the ways to read what somebody typed or copied from an output, likeliest first.

    >>> [one.name for one in readings("@@ notes.md:3-4 @@")]
    ['notes.md:3-4', 'notes.md']
    """
    bare = without_marks(reference)
    line = _RANK.sub("", bare)  # a passage's first line: ``[1] Title — scan.pdf — scan.md:23``
    titles = range(min(line.count(_AFTER_TITLE), _MAX_TITLES) + 1)
    ends = (line.split(_AFTER_TITLE, at)[at] for at in titles)
    for form in dict.fromkeys((bare, *ends, unquote(bare))):
        yield Reading(form)
        if cited := _CITATION.fullmatch(form):
            yield from _read_shown(cited[1], is_cited=True)
            continue
        if colon := _COLONS.search(form):
            start, last = colon[1].split(":"), colon[2].split(":") if colon[2] else []
            for at in range(len(start)):
                name = ":".join((form[: colon.start()], *start[:at]))
                yield Reading(name, "colon", _counted(start[at:], last))
        if "://" in form or "#" in form[1:]:
            name = without_seconds(form) if "://" in form else form.rpartition("#")[0]
            parts: dict[str, DocumentPart] = {}
            if linked := _LINKED.search(form):
                told = int(linked["at"])
                parts = {"page": DocumentPart(told, told)}
                if linked["unit"] != "page":
                    parts = {"moment": DocumentPart(seconds=(told, told))}
            elif lines := _LINES.search(form):  # as on code hosts
                parts = {"line": DocumentPart(int(lines[1]), int(lines[2] or lines[1]))}
            yield Reading(name, "shown", parts if parts or "#" in form else None)
        yield from _read_shown(form)


def _counted(start: list[str], last: list[str]) -> dict[str, DocumentPart]:
    """Return the parts that numbers after a colon may mean."""
    if len(start) == 1 and len(last) < 2:
        ends = int(start[0]), int((last or start)[0])
        return {"any": DocumentPart(*ends), "second": DocumentPart(seconds=ends)}
    parts = {"time": DocumentPart(seconds=(_seconds(start), _seconds(last or start)))}
    if len(start) == 2 and len(last) < 2:
        cell, line, line_end = map(int, (*start, (last or start[1:])[0]))
        parts["cell"] = DocumentPart(cell, cell, lines=(line, line_end))
    return parts


def _read_shown(form: str, *, is_cited: bool = False) -> Iterator[Reading]:
    """Yield the readings of a citation, or of a passage's header."""
    end = form[-_MAX_PLACE:]
    shown, sheet = _PLACE.search(end), _SHEET.search(end)
    parts = _shown_parts(shown) if shown else {}
    if shown and shown["file"]:
        yield Reading(shown["file"], "shown", parts)
    if is_cited:
        yield Reading(form, "title")
        for mark in (", ", " › "):  # what follows one: headings and a place
            name = form
            for _ in range(form.count(mark, -_MAX_PLACE)):
                name = name.rpartition(mark)[0]
                yield Reading(name, "title", parts)
    elif shown:
        yield Reading(form[: shown.start() - len(end)], "shown", parts)
    elif sheet:
        name = form[: sheet.start() - len(end)]
        yield Reading(name, "sheet", {"row": DocumentPart(cells=sheet[1])})


def _shown_parts(shown: re.Match[str]) -> dict[str, DocumentPart]:
    if shown["cells"]:
        return {"row": DocumentPart(cells=shown["cells"])}
    if shown["unit"] is None:
        clocks = shown["from"], shown["to"] or shown["from"]
        begin, end = (_seconds(clock.split(":")) for clock in clocks)
        return {"moment" if begin == end else "time": DocumentPart(seconds=(begin, end))}
    numbers = shown["pages"] or f"{shown['first']}-{shown['last'] or shown['first']}"
    first, last = map(int, numbers.split("-"))
    line, line_end = shown["line"], shown["line_end"]
    lines = (int(line), int(line_end or line)) if line else None
    return {shown["unit"]: DocumentPart(first, last, lines=lines)}


def _seconds(clock: Iterable[str]) -> int:
    return reduce(lambda seconds, number: 60 * seconds + int(number), clock, 0)


def without_marks(reference: str) -> str:
    """Return the name in a passage's header or in a resource's URI; other texts unchanged.

    >>> without_marks("catalog://notes/a%20b.md")
    'notes:a b.md'
    """
    header = _HEADER.fullmatch(reference)
    name = reference if header is None else header[1]
    if name.startswith(URI_SCHEME):
        name = unquote(name.removeprefix(URI_SCHEME).replace("/", ":", 1))
    return name


def without_seconds(address: str) -> str:
    """Remove the second from an address; return an invalid or too long one unchanged."""
    if len(address) > _MAX_ADDRESS:
        return address
    try:
        url = urlsplit(address)
    except ValueError:
        return address
    query = [pair for pair in parse_qsl(url.query) if pair[0] not in ("t", "start")]
    return url._replace(query=urlencode(query), fragment="").geturl()


def refer_to(path: str, at: Locator) -> str:
    """Return the reference to a part of a document: ``notes.md:3-9``, ``talk.srt:0:14-0:20``."""
    if at.cells is not None:
        return f"{path} › {at.cells}"
    if at.time_start is not None and at.page is None:
        return f"{path}:{format_clock(at.time_start)}-{format_clock(at.time_end or at.time_start)}"
    if at.start is None:
        return path
    if at.unit == "cell" and at.line_start is not None:
        path, first, last = f"{path}:{at.start}", at.line_start, at.line_end
    else:
        first, last = at.start, at.end
    return f"{path}:{first}" if last in (None, first) else f"{path}:{first}-{last}"


class Names:
    """The names of the documents of a dataset that are ``seen``, each kind read when needed."""

    def __init__(self, connection: Connection, dataset: str, seen: Scope = ALL) -> None:
        self.connection, self.dataset, self._seen = connection, dataset, seen
        self.documents = DocumentNames(connection, dataset)

    @cached_property
    def paths(self) -> Mapping[str, None]:
        """The paths of all documents, in order."""
        return dict.fromkeys(self.only_seen(list_paths(self.connection, self.dataset)))

    @cached_property
    def _record_files(self) -> list[str]:
        return list_record_files(self.connection, self.dataset)

    @cached_property
    def _by_title(self) -> Mapping[str, list[str]]:
        return _by_key(document_names.list_titles(self.connection, self.dataset), _one_line)

    @cached_property
    def _by_address(self) -> Mapping[str, list[str]]:
        addresses = document_names.list_addresses(self.connection, self.dataset)
        return _by_key(addresses, without_seconds)

    def resolve(self, reference: str) -> list[str]:
        """Return the paths of the documents, or of the records, that a reference names."""
        ways = (one for one in readings(reference) if one.form != "sheet")
        for way in sorted(ways, key=lambda one: not self.exactly(one)):
            records = self.records_at(way)
            if records is not None:  # none in these lines: the other records are not meant
                return [path for path, _ in records[0]]
            if found := list(self.documents_of(way)):
                return [path for files in found for path in files]
        return []

    def documents_of(self, reading: Reading) -> Iterator[list[str]]:
        """Yield the files of each document of that name, the first to show first; a path is one."""
        exact = self.exactly(reading)
        yield from ([path] for path in exact)
        paths = [] if exact else self._otherwise(reading)
        while paths:
            whole = self.only_seen(self.documents.whole(paths[:1]))
            yield sorted(whole, key=lambda path: path not in paths)
            paths = [path for path in paths if path not in whole]

    def exactly(self, reading: Reading) -> list[str]:
        """Return the paths of the documents with this path, id or docid."""
        name = self.own(reading.name)
        if reading.form == "title" or not name:
            return []
        if docid := DOCID.fullmatch(name):
            found = find_by_docid(self.connection, docid[1], self.dataset)
            if paths := self.only_seen(document.path for document in found):
                return paths
        is_live = document_names.live_documents(self.connection, [f"{self.dataset}:{name}"])
        return self.only_seen([name]) if is_live else []

    def _otherwise(self, reading: Reading) -> list[str]:
        """Return the paths of the documents with this original, address or title."""
        name = self.own(reading.name)
        is_title = reading.form == "title"
        found = [] if is_title else [one.path for one in self.documents.named(name)]
        if not found and "://" in name:
            found = self._by_address.get(name, [])
        if not found and name:
            found = self._by_title.get(_one_line(name), [])
        return self.only_seen(found)

    def records_at(
        self, reading: Reading, given: DocumentPart = WHOLE
    ) -> tuple[list[tuple[str, int]], int] | None:
        """Return path and line of the records at a place of a file, and the file's last line.

        Without a place these are all records, in line 0. ``None`` is no file of records.
        """
        name, parts = self.own(reading.name), reading.parts or {}
        is_name = reading.form not in ("title", "sheet") and not self.exactly(reading)
        every = self.records(name.__eq__) if is_name else []
        if not every:
            return None
        if given == WHOLE and not parts:
            return [(path, 0) for path in every], 0
        told = parts.get("record") or parts.get("any") or DocumentPart(0, 0)
        part = told if given == WHOLE else given
        for file in (one for one in self._record_files if name in (one, basename(one))):
            records = paths_of_records(self.connection, self.dataset, file, part.first or 1, None)
            seen = [one for one in records if self.only_seen([one[0]])]
            if within := [one for one in seen if part.last is None or one[1] <= part.last]:
                return within, seen[-1][1]
        return [], 0

    def only_seen(self, paths: Iterable[str]) -> list[str]:
        """Return the paths of documents that are ``seen``."""
        return [path for path in paths if self._seen.allows(f"{self.dataset}:{path}")]

    def records(self, is_named: Callable[[str], bool]) -> list[str]:
        """Return the paths of all records of files with such a path, or name without folders."""
        every = self._record_files
        files = [one for one in every if is_named(one) or is_named(basename(one))]
        found = paths_of_files(self.connection, self.dataset, files) if files else []
        return self.only_seen(found)

    def own(self, name: str) -> str:
        """Return a name as the dataset writes it: without itself or its folder before it.

        So ``./a.md``, ``notes:a.md``, ``notes/a.md``, absolute paths, ``file://`` and backslashes.
        """
        forms = forms_of(name := name.removeprefix(f"{self.dataset}:"), self.folders)
        ids = [f"{self.dataset}:{one}" for one in forms]
        known = document_names.live_documents(self.connection, ids)
        seen = [one for one in forms if f"{self.dataset}:{one}" in known]
        found = self.only_seen(seen) or [one for one in forms if self.records(one.__eq__)]
        return next(iter(found), name if forms[2] == forms[1] else forms[2])

    @cached_property
    def folders(self) -> list[str]:
        """What may stand before a path: the folder, that of a file alone, and their names."""
        root = find_root(self.connection, self.dataset).replace("\\", "/")
        folder, _, name = root.rpartition("/")
        return [f"{root}/", f"{folder}/", f"{name}/", f"{self.dataset}/"]

    def keep_whole(self, tree: Filter) -> Filter:
        """Extend a filter: conditions on names accept every name, and keep all files together.

        Those on :data:`~catalog.core.filters.WORD_FIELDS` accept every value with the words.
        """
        match tree:
            case And() | Or():
                return type(tree)(tuple(map(self.keep_whole, tree.parts)))
            case Not():
                return Not(self.keep_whole(tree.part))
        if tree.field not in WORD_FIELDS | _NAMING:
            return tree
        by_words = tree.field in WORD_FIELDS
        equal = replace(tree, op=_NEGATED.get(tree.op, tree.op))
        if equal.op not in _EQUAL | ({Op.ALL} if by_words else _MATCHING):
            return tree
        whole = self._with_words(equal) if by_words else self._with_names(equal)
        return whole if equal.op is tree.op else Not(whole)

    def _with_words(self, tree: Condition) -> Filter:
        """Return the condition with all values of the dataset that have the words of its values."""
        values = tree.value if isinstance(tree.value, tuple) else (tree.value,)
        if tree.op is Op.ALL:
            return And(tuple(self._with_words(Condition(tree.field, Op.EQ, one)) for one in values))
        found: dict[MetadataScalar, None] = {}
        for value in values:
            found |= {} if value is None else {value: None}
            if isinstance(value, str) and (words := {*_WORD.findall(value.casefold())}):
                longest = max(words, key=len)
                every = text_values(self.connection, self.dataset, tree.field, longest)
                fitting = (one for one in every if words <= {*_WORD.findall(one.casefold())})
                found |= dict.fromkeys(fitting)
        return Condition(tree.field, Op.IN, tuple(found))

    def _with_names(self, tree: Condition) -> Filter:
        """Extend the condition by the documents that are named but missed by the filter itself."""
        values = tree.value if isinstance(tree.value, tuple) else (tree.value,)
        paths = {
            member.path: None
            for group in self.documents.groups.values()
            if any(matches(tree, member.values) for member in group)
            for member in group
            if not matches(tree, partial(member.values, is_stored=True))
        }
        prefix = {"path": "", "source_doc_id": f"{self.dataset}:"}.get(tree.field)
        if prefix is not None:
            of_files = self.records(lambda file: matches(tree, lambda _: (f"{prefix}{file}",)))
            paths |= dict.fromkeys(of_files)
        for name in values if tree.field != "title" else ():
            if isinstance(name, str) and (tree.op in _EQUAL or _NO_PLAIN_TEXT.search(name)):
                whole = self.documents.whole(self.resolve(name))
                paths |= {one: None for one in whole if prefix is None or f"{prefix}{one}" != name}
        return Or((tree, Condition("path", Op.IN, tuple(paths)))) if paths else tree


def forms_of(name: str, folders: Iterable[str]) -> list[str]:
    """Return a name as it is, as a plain path, and without each of the folders before it."""
    plain = unquote(name.removeprefix("file://")) if name.startswith("file://") else name
    plain = normpath(plain.replace("\\", "/"))
    return [name, plain, *(plain.removeprefix(folder) for folder in folders)]


def dataset_name(folder: Path) -> str:
    """Return a dataset's name for a folder or file; raise :class:`InputError` if it has none."""
    path = folder.expanduser().resolve()
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", path.stem if path.is_file() else path.name)
    if not (name := name.strip("-._")[:100]):
        raise InputError(f"{folder} gives no name: name the dataset with --dataset")
    return name


def keep_whole(
    connection: Connection, datasets: tuple[str, ...], tree: Filter | None, seen: Scope = ALL
) -> Filter | None:
    """Extend the filter like :meth:`Names.keep_whole` in each of the datasets."""
    if tree is None:
        return None
    key = read_stamps(connection, datasets), datasets, repr(tree)
    is_kept = seen.is_all and None not in key[0]
    whole = _WHOLE.get(key) if is_kept else None
    if whole is None:
        trees = {name: Names(connection, name, seen).keep_whole(tree) for name in datasets}
        named = [And((Condition("dataset", Op.EQ, name), one)) for name, one in trees.items()]
        first = trees[datasets[0]]
        whole = first if all(one == first for one in trees.values()) else Or(tuple(named))
        if is_kept:
            _WHOLE.put(key, whole)
    return whole


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
    given = (settings.answers.role, CALLER_ROLE.get(), role)
    return list(dict.fromkeys(one for one in given if one is not None))


def levels_seen(settings: Settings, role: str | None) -> frozenset[str] | None:
    """Return the folded levels that every role in force may see; ``None`` without a role."""
    in_force = roles_in_force(settings, role)
    roles = settings.answers.levels() if in_force else {}
    for one in in_force:
        if one not in roles:
            known = f"roles: {', '.join(roles)}" if roles else "set them with IDX_ANSWERS__ROLES"
            is_bound = in_force != [role]  # then the other roles are not for the caller to know
            raise InputError(f"there is no role {one!r}{'' if is_bound else f'; {known}'}")
    return frozenset.intersection(*(roles[one] for one in in_force)) if in_force else None


def role_scope(
    database: Database, settings: Settings, role: str | None, datasets: Iterable[str]
) -> Scope:
    """Return the documents of which every role in force may see all levels; all without a role."""
    seen = levels_seen(settings, role)
    if seen is None:
        return ALL
    with database.read() as connection:
        levels = document_names.read_levels(connection, datasets)
    return Scope.of(name for name, stated in levels.items() if (stated or {UNLABELLED}) <= seen)
