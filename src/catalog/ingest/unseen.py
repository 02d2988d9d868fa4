"""Finds which missing files may still be there: a drive or folder could not be looked at."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from catalog.core.globs import Glob, folders_above
from catalog.core.text import nfc
from catalog.ingest.discovery import Listing, SkippedFile
from catalog.store.manifest import ManifestEntry

_SPECIAL = re.compile(r"[\\ *?\[]")  # in a glob
_OTHER_SPACES = re.compile(r"[^\S ]")  # a glob may not end with these, escaped or not
_REPLACED = re.compile("\ufffd+")


def find_unmounted(entries: Iterable[ManifestEntry], listing: Listing) -> dict[str, SkippedFile]:
    """Return the files of a drive that is no longer mounted where it was, with that place.

    What patterns or ignore rules leave out by now is left out, mounted or not.
    """
    reason = "the drive is not mounted; if it is gone for good, run again with --allow-deletions"
    return {
        entry.file: SkippedFile(entry.mount, reason, entry.mount)
        for entry in entries
        if entry.mount is not None
        and entry.mount not in listing.mounts
        and listing.left_out.isdisjoint(folders_above(entry.file))
    }


def find_unseen(files: Iterable[str], skipped: Iterable[SkippedFile]) -> dict[str, SkippedFile]:
    """Return those files that are a skipped place or lie below one, with that place.

    A name that is not valid UTF-8 may be any that has the same letters where it is: a drive that
    is mounted with another encoding shows all of them so.
    """
    places = {file.place: file for file in skipped}
    odd_names: dict[str, list[tuple[Glob, SkippedFile]]] = {}
    for file in places.values():
        folder, _, name = file.place.rpartition("/")
        if "\ufffd" in name:
            escaped = _OTHER_SPACES.sub("?", _SPECIAL.sub(r"\\\g<0>", name))
            glob = Glob.compile("/" + _REPLACED.sub("*", escaped))
            odd_names.setdefault(folder, []).append((glob, file))
    unseen = {}
    for path in files:
        place = _place_of(nfc(path), places, odd_names)
        if place is not None:
            unseen[path] = place
    return unseen


def _place_of(
    path: str,
    places: Mapping[str, SkippedFile],
    odd_names: Mapping[str, Sequence[tuple[Glob, SkippedFile]]],
) -> SkippedFile | None:
    """Return the place at or above a path, the highest first."""
    names = path.split("/")
    for depth in range(len(names) + 1):
        place = "/".join(names[:depth])
        if place in places:
            return places[place]
        for glob, file in odd_names.get(place, ()):
            if depth < len(names) and glob.matches(names[depth]):
                return file
    return None
