"""Count the contents of a store, and check it, its files and its servers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from catalog.core.errors import (
    CatalogError,
    ConfigError,
    EmbeddingMismatchError,
    EngineBlockedError,
    EngineLockedError,
    EngineUnreachableError,
    StoreDamagedError,
    StoreError,
)
from catalog.core.files import errno_of, find_open_to_others, remedy
from catalog.core.scope import Scope
from catalog.library.library import Library
from catalog.library.names import role_scope
from catalog.store import embedding_cache, listing, manifest, statistics
from catalog.store.backup import KEPT, find_stale_drafts
from catalog.store.chunks import StoredDataset, find_damaged_documents, list_datasets
from catalog.store.phrases import command_full_text
from catalog.store.publish import list_removed
from catalog.store.restriction import Restriction

if TYPE_CHECKING:
    from sqlalchemy import Connection

RESTORE = "catalog restore FILE, with a copy made by catalog backup"
_NAMED = 5  # documents in one message


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check; ``fix`` is the command to run, or advice, when not ``ok``."""

    name: str
    ok: bool
    detail: str
    fix: str = ""


class _Defect(CatalogError):
    """A defect, and what mends it if that is not what the check names."""

    def __init__(self, problem: str, fix: str = "") -> None:
        super().__init__(problem)
        self.fix = fix


@dataclass(frozen=True, slots=True)
class DatasetStats:
    """The contents of a dataset, and the settings it was made with, empty if not noted.

    ``embedded`` counts the chunks that have a vector; with fewer ``vectors`` than ``windows`` some
    text has none yet. ``languages`` counts passages by language, the most first, as the keyword
    index was last saved; none with the engine ``fts``. ``database_bytes`` is the whole store's;
    ``updated_at`` is seconds since 1970.
    """

    dataset: str
    root: str
    preset: str | None
    settings: dict[str, Any]
    files: manifest.FileCounts
    documents: int
    chunks: int
    embedded: int
    modalities: dict[str, int]
    languages: dict[str, int]
    windows: int
    vectors: int
    database_bytes: int
    updated_at: float


def dataset_stats(library: Library, dataset: str) -> DatasetStats:
    """Count the dataset's content; raise :class:`UnknownDatasetError` for an unknown dataset."""
    stored = stored_dataset(library, dataset)
    languages = Counter(library.indexes.lexical(dataset).languages())
    with library.database.read() as connection:
        totals = statistics.count_totals(connection, dataset)
        made = manifest.read_dataset_settings(connection, dataset)
        return DatasetStats(
            dataset=dataset,
            root=stored.root,
            preset=made.preset if made else None,
            settings=dict(made.values) if made else {},
            files=manifest.count_files(connection, dataset),
            modalities=statistics.count_modalities(connection, dataset),
            languages={one or "unknown": count for one, count in languages.most_common()},
            database_bytes=statistics.database_bytes(connection),
            updated_at=stored.updated_at,
            **asdict(totals),
        )


def stored_dataset(library: Library, name: str) -> StoredDataset:
    """Return the dataset's row; raise :class:`UnknownDatasetError` for an unknown one."""
    library.require_dataset(name)
    with library.database.read() as connection:
        return next(stored for stored in list_datasets(connection) if stored.name == name)


def describe_store(library: Library, role: str | None = None) -> dict[str, Any]:
    """Say where the store is, its model and engines, and the counts of each dataset.

    With a role in force only the documents that it may see count, a dataset without any is not
    listed, and little else is told. Raises :class:`InputError` for a role that does not exist.
    """
    settings, names = library.settings, library.datasets()
    model = embedding_cache.read_stored_model(library.database)
    seen = role_scope(library.database, settings, role, names)
    return {
        "home": str(settings.home.resolve()),
        "store": library.database.address,
        **(asdict(model) if model else dict.fromkeys(("model", "fingerprint", "dim"))),
        "lexical_engine": settings.rag_v2.lexical_engine,
        "vector_engine": settings.rag_v2.vector_engine,
        "datasets": [asdict(dataset_stats(library, name)) for name in names]
        if seen.is_all
        else [_seen_stats(library, name, seen) for name in sorted(seen.datasets())],
    }


def _seen_stats(library: Library, dataset: str, seen: Scope) -> dict[str, Any]:
    """Count the documents and passages that are seen."""
    allowed = Restriction(dataset, seen)
    with library.database.read() as connection:
        modalities = statistics.count_modalities(connection, dataset, allowed.clause())
        of_type = listing.count_by_value(
            connection, listing.allowed_documents(allowed), "file_type"
        )
        return {
            "dataset": dataset,
            "documents": sum(of_type.values()),
            "chunks": sum(modalities.values()),
            "embedded": statistics.count_embedded(connection, dataset, allowed.clause()),
            "modalities": modalities,
        }


def diagnose(library: Library) -> list[Check]:
    """Run every check; none changes stored documents."""
    home, file, rag = library.settings.home, library.database.file, library.settings.rag_v2
    names: list[str] = []
    datasets = check("datasets", lambda: names.extend(library.datasets()), RESTORE, file)
    reread = f"catalog index update --dataset {names[0]} --reread" if names else RESTORE
    checks = [
        check("database", partial(_database, library), RESTORE, file),
        check("model", partial(_model, library), "catalog models check", home),
        check("permissions", partial(_permissions, home, file), "", home),
        check("drafts", partial(_drafts, home, file), "", home),
    ]
    if (url := rag.qdrant_url) is not None and rag.vector_engine == "qdrant":
        from catalog.store.vectors.qdrant import describe_server

        ask = partial(describe_server, url, rag.qdrant_api_key, rag.qdrant.timeout_seconds)
        checks.append(check("Qdrant server", ask, "correct IDX_RAG_V2__QDRANT_API_KEY", home))
    removals = partial(_none, library, "parts of removed datasets are left", list_removed)
    checks += [
        check("full text", partial(_full_text, library), reread, file),
        check("removals", removals, "catalog index remove NAME", home),
        *([] if datasets.ok else [datasets]),
    ]
    for name in names:
        update, folder = f"catalog index update --dataset {name}", library.indexes.folder(name)
        reread = f"{update} --reread"
        words, points = folder / rag.lexical_engine, folder / rag.vector_engine
        changed, incomplete = "have changed since they were stored", "lack documents read from them"
        damaged = partial(_damaged, dataset=name)
        lacking = partial(manifest.find_incomplete, dataset=name)
        parts: list[tuple[str, Callable[[], object], str, Path]] = [
            ("documents", partial(_none, library, changed, damaged), reread, folder),
            ("documents of files", partial(_none, library, incomplete, lacking), update, folder),
            ("embedded", partial(_embedded, library, name), update, folder),
            ("vectors", partial(_none, library, changed, _vectors), reread, folder),
            ("lexical index", partial(_lexical_index, library, name), update, words),
            ("vector index", partial(_vector_index, library, name), reread, points),
        ]
        checks += [check(f"{name}: {of}", examine, fix, at) for of, examine, fix, at in parts]
    return checks


def check(name: str, examine: Callable[[], object], fix: str, place: Path) -> Check:
    """Run a check; ``fix`` is for a defect. Without permission or disk space it would not help."""
    try:
        told = examine()
        return Check(name, ok=True, detail=told if isinstance(told, str) else "sound")
    except EngineLockedError as error:  # who holds it, a server say, looks after it
        return Check(name, ok=True, detail=f"not checked: {error}")
    except Exception as error:  # noqa: BLE001 - any error is a result of the check
        match error:
            case _Defect():
                fix = error.fix or fix
            case ConfigError() | EngineBlockedError():
                fix = f"solve this first, then {fix.removesuffix(' --reread')}"
            case EmbeddingMismatchError():
                fix = "set IDX_EMBEDDING__MODEL, or IDX_PRESET, to the model that the store has"
            case EngineUnreachableError():
                fix = "start the server, or correct IDX_RAG_V2__QDRANT_URL"
        fix = remedy(errno_of(error), place) or fix
        told = str(error) if isinstance(error, CatalogError) else f"{type(error).__name__}: {error}"
        return Check(name, ok=False, detail=told, fix=fix)


def _damaged(connection: Connection, dataset: str) -> list[str]:
    return [name for _, name in find_damaged_documents(connection, dataset)]


def _vectors(connection: Connection) -> list[str]:
    keys = embedding_cache.find_damaged_vectors(connection)
    return embedding_cache.documents_of_vectors(connection, keys) or ["of no document"] * bool(keys)


def _none(library: Library, wrong: str, find: Callable[[Connection], Iterable[str]]) -> None:
    with library.database.read() as connection:
        found = list(find(connection))
    if found:
        raise _Defect(f"{wrong} ({len(found)}): {', '.join(found[:_NAMED])}")


def _database(library: Library) -> None:
    with library.database.read() as connection:
        if (damage := statistics.find_damage(connection)) is not None:
            raise _Defect(damage)


def _model(library: Library) -> str:
    library.model.embed_query("probe")
    embedding_cache.require_model(library.database, library.wanted_model)
    encoder = library.model.encoder
    return f"{encoder.model} ({encoder.fingerprint}), {encoder.dim} dimensions"


def _permissions(home: Path, store: Path) -> str:
    """Check whether other users may read the store or enter its folders."""
    files = find_open_to_others(*(Path(f"{store}{ending}") for ending in ("", "-wal", "-shm")))
    folders = find_open_to_others(home, home / "indexes")
    names = ", ".join(path.name for path in (*files, *folders))
    fixes = [
        f"chmod {mode} {' '.join(map(quote, map(str, paths)))}"
        for mode, paths in ((700, folders), (600, files))
        if paths
    ]
    if files:
        wrong = f"other users of this machine may read or enter: {names}"
        raise _Defect(wrong, "; ".join(fixes))
    if folders:  # no defect: the folder may be shared on purpose, and its files are closed
        closed = f"only you may read the store; other users may enter {names}"
        return f"{closed}; '{fixes[0]}' prevents it"
    return "only you may read the store"


def _drafts(home: Path, store: Path) -> str:
    """Name the copies that killed commands left in the folder of the store."""
    drafts = [one for folder in sorted({home, store.parent}) for one in find_stale_drafts(folder)]
    if drafts:
        left = "a command that was killed left unfinished copies of documents"
        removed = " ".join(f"{quote(str(draft))}*" for draft in drafts)
        names = ", ".join(draft.name for draft in drafts)
        raise _Defect(f"{left}: {names}", f"rm -f {removed}")
    kept = store.with_name(store.name + KEPT)
    return f"none; {kept.name} is left from a restore" if kept.exists() else "none"


def _full_text(library: Library) -> str | None:
    try:
        with library.database.write(wait=False) as connection:
            command_full_text(connection, "integrity-check")
    except StoreDamagedError as error:
        raise _Defect("the full-text index differs from the passages") from error
    except StoreError as error:
        return f"not checked: {error}"
    return None


def _embedded(library: Library, name: str) -> str:
    with library.database.read() as connection:
        totals = statistics.count_totals(connection, name)
    detail = f"{totals.vectors} of {totals.windows} windows have a vector"
    if totals.vectors != totals.windows:
        raise _Defect(detail)
    return detail


def _lexical_index(library: Library, name: str) -> str:
    engine = library.indexes.lexical(name)
    damaged = engine.verify()
    engine.refresh()
    if damaged:
        raise _Defect(f"{damaged} damaged parts were rebuilt")
    return "up to date"


def _vector_index(library: Library, name: str) -> str:
    engine = library.indexes.vector(name)
    engine.refresh()
    if wrong := engine.verify():
        raise _Defect(f"{wrong} points differ from the store")
    return "up to date"
