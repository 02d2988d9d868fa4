"""The names of documents: every argument accepts the names that outputs show.

A path takes precedence over any other name. Other names are ``#docid``, a link, the file from which
a document was made, a passage's reference or citation, an address, a title. The documents that a
role may see are chosen here, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial, reduce
from itertools import chain
from typing import TYPE_CHECKING, Literal
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from catalog.core.documents import Locator, MetadataScalar
from catalog.core.errors import InputError
from catalog.core.filters import WORD_FIELDS, And, Condition, Filter, Not, Op, Or, matches
from catalog.core.lru_cache import LRUCache
from catalog.core.places import format_clock
from catalog.core.scope import ALL, CALLER_ROLE, Scope
from catalog.core.text import storable
from catalog.store import document_names
from catalog.store.chunks import find_by_docid, list_paths
from catalog.store.document_names import DocumentNames
from catalog.store.filter_sql import text_values
from catalog.store.manifest import list_record_files, paths_of_files, paths_of_records
from catalog.store.restriction import read_stamps

if TYPE_CHECKING:
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
_TELLING = _EQUAL | {Op.TEXT_MATCH, Op.TEXT_MATCH_INSENSITIVE}
_WHOLE: LRUCache[Hashable, Filter] = LRUCache(64)  # filters as one state of datasets reads them


@dataclass(frozen=True, slots=True)
class DocumentPart:
    """The requested part of a document: numbers of its unit, lines of a cell, or seconds.

    Both ends of each range are included; ``None`` is from the beginning, or to the end. ``cells``
    are a workbook's: ``Costs!A12:F30``, or a whole sheet, ``Costs``.
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
    by its path. ``moment`` is a second that means the passage around it. ``parts`` is ``None``
    without a place, and empty for one that cannot be read. A ``title`` is cited, so it is no path.
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
        clocks = shown["from"].split(":"), (shown["to"] or shown["from"]).split(":")
        begin, end = map(_seconds, clocks)
        return {"moment" if begin == end else "time": DocumentPart(seconds=(begin, end))}
    numbers = shown["pages"] or f"{shown['first']}-{shown['last'] or shown['first']}"
    first, last = map(int, numbers.split("-"))
    line, line_end = shown["line"], shown["line_end"]
    lines = (int(line), int(line_end or line)) if line else None
    return {shown["unit"]: DocumentPart(first, last, lines=lines)}


def _seconds(clock: Iterable[str]) -> int:
    """Return the seconds of minutes and seconds, or of hours, minutes and seconds."""
    return reduce(lambda seconds, number: 60 * seconds + int(number), clock, 0)


def without_marks(reference: str) -> str:
    """Return the name in a passage's header or in a resource's URI; other texts unchanged.

    >>> without_marks("catalog://notes/a%20b.md")
    'notes:a b.md'
    """
    header = _HEADER.fullmatch(reference)
    name = reference if header is None else header[1]
    if not name.startswith(URI_SCHEME):
        return name
    dataset, _, path = name.removeprefix(URI_SCHEME).partition("/")
    try:
        return storable(":".join(unquote(one, errors="surrogatepass") for one in (dataset, path)))
    except UnicodeError:
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
    """The names of the documents of a dataset, each kind read when first needed.

    Documents that are not ``seen`` are ignored.
    """

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
        """Return the paths of the documents that a reference, which is no glob, names, maybe none.

        The name of an original is a name of all files made from it, the first to show first. A
        place in the reference matters in a file of records alone, where it names the record.
        """
        ways = [one for one in readings(reference) if one.form != "sheet"]
        if paths := next(filter(None, map(self.exactly, ways)), None):
            return paths
        for way in ways:
            records = self.records_at(way)
            if records is not None:  # none in these lines: the other records are not meant
                return [path for path, _ in records[0]]
            if paths := self.otherwise(way):
                return paths
        return []

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

    def otherwise(self, reading: Reading) -> list[str]:
        """Return the paths of the documents that have the name other than as their path."""
        name, found = self.own(reading.name), list[str]()
        if reading.form != "title":
            found = [member.path for member in self.documents.named(name)]
        if not found and "://" in name:
            found = self.documents.whole(self._by_address.get(name, ()))
        if not found and name:
            found = self.documents.whole(self._by_title.get(_one_line(name), ()))
        return self.only_seen(found)

    def records_at(
        self, reading: Reading, given: DocumentPart = WHOLE
    ) -> tuple[list[tuple[str, int]], int] | None:
        """Return path and line of the records at a place of a file, and the file's last line.

        The place is the given or the read one; without any these are all records, in line 0.
        ``None`` if that is no file of records, and no records if there are none at the place.
        """
        name, parts = self.own(reading.name), reading.parts or {}
        is_name = reading.form not in ("title", "sheet") and not self.exactly(reading)
        every = self.records(name.__eq__) if is_name else []
        if not every:
            return None
        if given == WHOLE and not parts:
            return [(path, 0) for path in every], 0
        part = parts.get("record") or parts.get("any") or DocumentPart(0, 0)
        part = part if given == WHOLE else given
        for file in self._record_files:
            if name not in (file, _without_folder(file)):
                continue
            records = paths_of_records(self.connection, self.dataset, file, part.first or 1, None)
            seen = [one for one in records if self._seen.allows(f"{self.dataset}:{one[0]}")]
            if within := [one for one in seen if part.last is None or one[1] <= part.last]:
                return within, seen[-1][1]
        return [], 0

    def only_seen(self, paths: Iterable[str]) -> list[str]:
        """Return the paths of documents that are ``seen``."""
        return [path for path in paths if self._seen.allows(f"{self.dataset}:{path}")]

    def records(self, is_named: Callable[[str], bool]) -> list[str]:
        """Return the paths of all records of files with such a path, or name without folders.

        Each may be a document with its own path; only JSON Lines files and mails have several.
        """
        files = [
            one for one in self._record_files if is_named(one) or is_named(_without_folder(one))
        ]
        found = paths_of_files(self.connection, self.dataset, files) if files else []
        return self.only_seen(found)

    def own(self, name: str) -> str:
        """Return a name without the dataset before it."""
        return name.removeprefix(f"{self.dataset}:")

    def keep_whole(self, tree: Filter) -> Filter:
        """Extend the filter so that all files of a document that a name fits stay together.

        Conditions on fields that name documents accept every name, those on
        :data:`~catalog.core.filters.WORD_FIELDS` every value with the words.
        """
        match tree:
            case And() | Or():
                return type(tree)(tuple(map(self.keep_whole, tree.parts)))
            case Not():
                return Not(self.keep_whole(tree.part))
        if tree.field in WORD_FIELDS:
            return self._with_words(tree)
        equal = Condition(tree.field, _NEGATED.get(tree.op, tree.op), tree.value)
        if tree.field not in _NAMING or equal.op not in _TELLING:
            return tree
        if not (paths := self._further(equal)):
            return tree
        whole = Or((equal, Condition("path", Op.IN, paths)))
        return Not(whole) if tree.op in _NEGATED else whole

    def _with_words(self, tree: Condition) -> Filter:
        """Return the condition with all values of the dataset that have the words of its values."""
        if tree.op is not Op.ALL and tree.op not in _EQUAL | _NEGATED.keys():
            return tree
        found: list[tuple[MetadataScalar, ...]] = []
        for value in tree.value if isinstance(tree.value, tuple) else (tree.value,):
            words = set(_WORD.findall(value.casefold())) if isinstance(value, str) else set()
            values = [] if value is None else [value]
            if words:
                longest = max(words, key=len)
                every = text_values(self.connection, self.dataset, tree.field, longest)
                values += [one for one in every if words <= {*_WORD.findall(one.casefold())}]
            found.append(tuple(values))
        if tree.op is Op.ALL:
            return And(tuple(Condition(tree.field, Op.IN, one) for one in found))
        op = Op.NIN if tree.op in _NEGATED else Op.IN
        return Condition(tree.field, op, tuple(dict.fromkeys(chain.from_iterable(found))))

    def _further(self, tree: Condition) -> tuple[str, ...]:
        """Return the paths of documents that are named but missed by the filter itself."""
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
        return tuple(paths)


def keep_whole(
    connection: Connection, datasets: tuple[str, ...], tree: Filter | None, seen: Scope = ALL
) -> Filter | None:
    """Extend the filter like :meth:`Names.keep_whole` in each of the datasets."""
    if tree is None:
        return None
    stamps = read_stamps(connection, datasets)
    is_kept = seen.is_all and None not in stamps
    key = stamps, datasets, repr(tree)
    if is_kept and (known := _WHOLE.get(key)):
        return known
    trees = {name: Names(connection, name, seen).keep_whole(tree) for name in datasets}
    whole = next(iter(trees.values()))
    if any(one != whole for one in trees.values()):
        named = (And((Condition("dataset", Op.EQ, name), one)) for name, one in trees.items())
        whole = Or(tuple(named))
    if is_kept:
        _WHOLE.put(key, whole)
    return whole


def _without_folder(path: str) -> str:
    return path.rpartition("/")[2]


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
    """Return the folded levels that every role in force may see; ``None`` without a role.

    Raises :class:`InputError` for a role that the settings do not name.
    """
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
    """Return the documents of the datasets that a call as this role may see; all without a role.

    They are those that every role in force may see. A document is seen by who may see all its
    levels, whatever their case. Raises as :func:`levels_seen` does.
    """
    seen = levels_seen(settings, role)
    if seen is None:
        return ALL
    with database.read() as connection:
        levels = document_names.read_levels(connection, datasets)
    return Scope.of(name for name, stated in levels.items() if (stated or {UNLABELLED}) <= seen)
