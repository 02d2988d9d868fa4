"""Count the contents of a store, and check it, its files and its servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Any

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
from catalog.library.names import role_scope, roles_in_force
from catalog.store import embedding_cache
from catalog.store.backup import KEPT, find_stale_drafts
from catalog.store.checksums import (
    documents_of_vectors,
    find_damaged_documents,
    find_damaged_vectors,
)
from catalog.store.chunks import StoredDataset, list_datasets
from catalog.store.engine_types import Restriction
from catalog.store.listing import allowed_documents, count_by_type
from catalog.store.manifest import (
    DatasetSettings,
    FileCounts,
    count_files,
    find_incomplete,
    read_dataset_settings,
)
from catalog.store.phrases import check_full_text
from catalog.store.revisions import list_removed
from catalog.store.statistics import (
    ChunkSizes,
    count_embedded,
    count_modalities,
    count_orphans,
    count_totals,
    database_bytes,
    find_damage,
    measure_chunk_sizes,
)

RESTORE = "catalog restore FILE, with a copy made by catalog backup"
_NAMED = 5  # documents in one message


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check; ``fix`` is the command to run, or advice, when not ``ok``."""

    name: str
    ok: bool
    detail: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class DatasetStats:
    """The contents of a dataset. ``embedded`` counts the chunks that have a vector.

    ``vectors`` under ``windows`` means: some text is not embedded yet.

    ``preset`` and ``settings`` are those it was made with, ``settings`` empty if not noted.
    ``languages`` counts passages by language, the most first, as the keyword index was last saved;
    none with the engine ``fts``. ``sizes`` are held against its ``chunk_min_size`` and
    ``chunk_size``. ``database_bytes`` is the whole store's, all datasets and caches included;
    ``updated_at`` is seconds since 1970.
    """

    dataset: str
    root: str
    preset: str | None
    settings: dict[str, Any]
    files: FileCounts
    documents: int
    chunks: int
    embedded: int
    modalities: dict[str, int]
    languages: dict[str, int]
    sizes: ChunkSizes
    windows: int
    vectors: int
    database_bytes: int
    updated_at: float


def dataset_stats(library: Library, dataset: str) -> DatasetStats:
    """Count the dataset's content; raise :class:`UnknownDatasetError` for an unknown dataset."""
    stored, rag = stored_dataset(library, dataset), library.settings.rag_v2
    counted = library.indexes.lexical(dataset).languages().items()
    languages = sorted(counted, key=lambda item: -item[1])
    with library.database.read() as connection:
        totals = count_totals(connection, dataset)
        made = read_dataset_settings(connection, dataset) or DatasetSettings(None, {})
        low, high = (
            made.values.get(name, getattr(rag, name)) for name in ("chunk_min_size", "chunk_size")
        )
        return DatasetStats(
            dataset=dataset,
            root=stored.root,
            preset=made.preset,
            settings=dict(made.values),
            files=count_files(connection, dataset),
            documents=totals.documents,
            chunks=totals.chunks,
            embedded=totals.embedded,
            modalities=count_modalities(connection, dataset),
            languages={name or "unknown": count for name, count in languages},
            sizes=measure_chunk_sizes(connection, dataset, low, high),
            windows=totals.windows,
            vectors=totals.vectors,
            database_bytes=database_bytes(connection),
            updated_at=stored.updated_at,
        )


def stored_dataset(library: Library, name: str) -> StoredDataset:
    """Return the dataset's row; raise :class:`UnknownDatasetError` for an unknown one."""
    library.require_dataset(name)
    with library.database.read() as connection:
        return next(stored for stored in list_datasets(connection) if stored.name == name)


def describe_store(library: Library, role: str | None = None) -> dict[str, Any]:
    """Say where the store is, its model and engines, and the counts of each dataset.

    With a role in force only the documents that it may see count, and a dataset without any is not
    listed. When a dataset was updated, and what is asked of the store, are left out then. Raises
    :class:`InputError` for a role that the settings do not name.
    """
    settings = library.settings
    model = embedding_cache.read_stored_model(library.database)
    names = library.datasets()
    if roles_in_force(settings, role):
        seen = role_scope(library.database, settings, role, names)
        datasets = [_seen_stats(library, name, seen) for name in sorted(seen.datasets())]
    else:
        datasets = [asdict(dataset_stats(library, name)) for name in names]
    return {
        "home": str(settings.home.resolve()),
        "store": library.database.address,
        "model": model.model if model else None,
        "fingerprint": model.fingerprint if model else None,
        "dim": model.dim if model else None,
        "lexical_engine": settings.rag_v2.lexical_engine,
        "vector_engine": settings.rag_v2.vector_engine,
        "datasets": datasets,
    }


def _seen_stats(library: Library, dataset: str, seen: Scope) -> dict[str, Any]:
    """Count the documents and passages that are seen."""
    allowed = Restriction(dataset, seen)
    with library.database.read() as connection:
        modalities = count_modalities(connection, dataset, allowed.clause())
        return {
            "dataset": dataset,
            "documents": sum(count_by_type(connection, allowed_documents(allowed)).values()),
            "chunks": sum(modalities.values()),
            "embedded": count_embedded(connection, dataset, allowed.clause()),
            "modalities": modalities,
        }


def diagnose(library: Library) -> list[Check]:
    """Run every check; none changes stored documents."""
    home, file = library.settings.home, library.database.file
    names: list[str] = []
    datasets = _run("datasets", lambda: names.extend(library.datasets()), RESTORE, file)
    reread = f"catalog index update --dataset {names[0]} --reread" if names else RESTORE
    checks = [
        _check_database(library),
        _run("model", lambda: _model(library), "catalog models check", home),
        _check_permissions(library),
        _check_drafts(library),
        *_check_server(library),
        _run("full text", lambda: _full_text(library), reread, file),
        _run("removals", lambda: _removals(library), "catalog index remove NAME", home),
        *([] if datasets.ok else [datasets]),
    ]
    for name in names:
        try:
            checks += _check_dataset(library, name)
        except Exception as error:  # noqa: BLE001 - any error is a result of the check
            checks.append(Check(f"{name}: checks", ok=False, detail=_describe(error), fix=RESTORE))
    return checks


def _run(name: str, examine: Callable[[], str | None], fix: str, place: Path) -> Check:
    """Run a check; ``fix`` is for a defect. Without permission or disk space it would not help."""
    try:
        return Check(name, ok=True, detail=examine() or "sound")
    except EngineLockedError as error:  # who holds it, a server say, looks after it
        return Check(name, ok=True, detail=f"not checked: {error}")
    except Exception as error:  # noqa: BLE001 - any error is a result of the check
        if isinstance(error, ConfigError | EngineBlockedError):
            fix = f"solve this first, then {fix.removesuffix(' --reread')}"
        if isinstance(error, EmbeddingMismatchError):
            fix = "set the model that the store has; the message says how"
        if isinstance(error, EngineUnreachableError):
            fix = "start the server, or correct IDX_RAG_V2__QDRANT_URL"
        fix = remedy(errno_of(error), place) or fix
        return Check(name, ok=False, detail=_describe(error), fix=fix)


def _describe(error: Exception) -> str:
    return str(error) if isinstance(error, CatalogError) else f"{type(error).__name__}: {error}"


def _check_database(library: Library) -> Check:
    """Check the database; if only its indexes are damaged, no copy needs to be restored."""
    are_rows_sound = False

    def examine() -> None:
        nonlocal are_rows_sound
        with library.database.read() as connection:
            if (damage := find_damage(connection)) is not None:
                problem, are_rows_sound = damage
                raise CatalogError(problem)
            orphans = count_orphans(connection)
        if broken := {name: count for name, count in orphans.items() if count}:
            raise CatalogError(f"rows without an owner: {broken}")

    check = _run("database", examine, RESTORE, library.database.file)
    return replace(check, fix="catalog index rebuild --lexical") if are_rows_sound else check


def _model(library: Library) -> str:
    library.model.embed_query("probe")
    embedding_cache.require_model(library.database, library.wanted_model)
    encoder = library.model.encoder
    return f"{encoder.model} ({encoder.fingerprint}), {encoder.dim} dimensions"


def _check_permissions(library: Library) -> Check:
    """Check whether other users may read the store or enter its folders."""
    home, store = library.settings.home, library.database.file
    files = find_open_to_others(*(Path(f"{store}{ending}") for ending in ("", "-wal", "-shm")))
    folders = find_open_to_others(home, home / "indexes")
    names = ", ".join(path.name for path in (*files, *folders))
    close_folders, close_files = (
        f"chmod {mode} {' '.join(map(quote, map(str, paths)))}"
        for mode, paths in ((700, folders), (600, files))
    )
    if files:
        detail = f"other users of this machine may read or enter: {names}"
        fix = f"{close_folders}; {close_files}" if folders else close_files
        return Check("permissions", ok=False, detail=detail, fix=fix)
    detail = "only you may read the store"
    if folders:  # no defect: the folder may be shared on purpose, and its files are closed
        detail += f"; other users may enter {names}; '{close_folders}' prevents it"
    return Check("permissions", ok=True, detail=detail)


def _check_drafts(library: Library) -> Check:
    """Name the copies that killed commands left in the folder of the store."""
    file = library.database.file
    folders = {library.settings.home, file.parent}
    drafts = [draft for folder in sorted(folders) for draft in find_stale_drafts(folder)]
    if drafts:
        names = ", ".join(draft.name for draft in drafts)
        detail = f"a command that was killed left unfinished copies of documents: {names}"
        fix = f"rm -f {' '.join(f'{quote(str(draft))}*' for draft in drafts)}"
        return Check("drafts", ok=False, detail=detail, fix=fix)
    kept = file.with_name(file.name + KEPT)
    left = f"none; {kept.name} is left from a restore" if kept.exists() else "none"
    return Check("drafts", ok=True, detail=left)


def _check_server(library: Library) -> Iterator[Check]:
    """Check whether the Qdrant server answers, if one is set."""
    rag = library.settings.rag_v2
    url = rag.qdrant_url
    if url is None or rag.vector_engine != "qdrant":
        return
    from catalog.store.vectors.qdrant import describe_server

    seconds = rag.qdrant.timeout_seconds
    yield _run(
        "Qdrant server",
        lambda: describe_server(url, rag.qdrant_api_key, seconds),
        "correct IDX_RAG_V2__QDRANT_API_KEY",
        library.settings.home,
    )


def _full_text(library: Library) -> str | None:
    try:
        with library.database.write(wait=False) as connection:
            check_full_text(connection)
    except StoreDamagedError as error:
        raise CatalogError("the full-text index differs from the passages") from error
    except StoreError as error:
        return f"not checked: {error}"
    return None


def _removals(library: Library) -> str:
    with library.database.read() as connection:
        names = list_removed(connection)
    if names:
        raise CatalogError(f"these were removed, but parts of them are left: {', '.join(names)}")
    return "nothing is left"


def _check_dataset(library: Library, name: str) -> list[Check]:
    update = f"catalog index update --dataset {name}"
    reread, build = f"{update} --reread", f"catalog index build FOLDER --dataset {name}"
    rag, folder = library.settings.rag_v2, library.indexes.folder(name)
    checks: list[tuple[str, Callable[[Library, str], str | None], str, Path]] = [
        ("documents", _documents, reread, folder),
        ("source", _source, build, folder),
        ("documents of files", _of_files, update, folder),
        ("embedded", _embedded, update, folder),
        ("vectors", _vectors, reread, folder),
        ("lexical index", _lexical_index, update, folder / rag.lexical_engine),
        ("vector index", _vector_index, reread, folder / rag.vector_engine),
    ]
    return [
        _run(f"{name}: {of}", partial(examine, library, name), fix, place)
        for of, examine, fix, place in checks
    ]


def _documents(library: Library, name: str) -> None:
    with library.database.read() as connection:
        damaged = [document for _, document in find_damaged_documents(connection, name)]
    if damaged:
        raise CatalogError(
            f"{len(damaged)} have changed since they were stored: {', '.join(damaged[:_NAMED])}"
        )


def _source(library: Library, name: str) -> None:
    stored_dataset(library, name)


def _of_files(library: Library, name: str) -> str:
    with library.database.read() as connection:
        wrong = find_incomplete(connection, name)
    if wrong:
        named = ", ".join(f"{file} has {has} of {noted}" for file, has, noted in wrong[:_NAMED])
        raise CatalogError(f"{len(wrong)} files lack documents that were read from them: {named}")
    return "complete"


def _embedded(library: Library, name: str) -> str:
    with library.database.read() as connection:
        totals = count_totals(connection, name)
    detail = f"{totals.vectors} of {totals.windows} windows have a vector"
    if totals.vectors != totals.windows:
        raise CatalogError(detail)
    return detail


def _vectors(library: Library, name: str) -> None:
    model = embedding_cache.read_stored_model(library.database)
    with library.database.read() as connection:
        known = (model.dim, model.fingerprint) if model else (None, None)
        keys = list(find_damaged_vectors(connection, known[0], fingerprint=known[1]))
        owners = documents_of_vectors(connection, keys)
        foreign = embedding_cache.count_foreign(connection, name, model.fingerprint) if model else 0
    if keys:
        named = ", ".join(owners[:_NAMED])
        raise CatalogError(f"{len(keys)} not as they were stored: {named or 'of no document'}")
    if model and foreign:
        raise CatalogError(f"{foreign} are from another model than the store's, {model.model}")


def _lexical_index(library: Library, name: str) -> str:
    engine = library.indexes.lexical(name)
    damaged = engine.verify()
    engine.refresh()
    if damaged:
        raise CatalogError(f"{damaged} damaged parts were rebuilt")
    return "up to date"


def _vector_index(library: Library, name: str) -> str:
    engine = library.indexes.vector(name)
    engine.refresh()
    wrong = engine.verify()
    if wrong:
        raise CatalogError(f"{wrong} points differ from the store")
    return "up to date"
