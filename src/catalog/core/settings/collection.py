"""``IDX_COLLECTION__*``: a Qdrant collection that other software filled."""

from __future__ import annotations

from catalog.core.settings.variables import ApiKey, SettingsSection, setting


class CollectionSettings(SettingsSection):
    """``IDX_COLLECTION__*``: a Qdrant collection that other software filled, searched unchanged.

    The fields of its payload are named with dots where one lies in another.
    """

    name: str | None = setting(None, "Name of the collection, or of an alias.")
    url: str | None = setting(None, "Address of its Qdrant server; unset: IDX_RAG_V2__QDRANT_URL.")
    api_key: ApiKey = setting(None, "API key for that server; read access is enough.", repr=False)
    vector: str | None = setting(None, "Name of the vector to search, if vectors have names.")
    text: str = setting("text", "Payload field with the passage.", min_length=1)
    source_url: str = setting(
        "source_url", "Payload field with the source of the passage.", min_length=1
    )
    page_title: str = setting(
        "page_title", "Payload field with the title of the page.", min_length=1
    )
    section: str = setting("section", "Payload field with the passage's heading.", min_length=1)
    chunk_index: str = setting(
        "chunk_index", "Payload field with the passage's number in the page.", min_length=1
    )
    threshold: float | None = setting(
        None, "Least score of a passage; unset: no limit.", (-1.0, 1.0)
    )
    low_score_below: float = setting(
        0.3,
        "Passages with a lower score are flagged. The right value depends on the model.",
        (-1.0, 1.0),
    )
    timeout_seconds: float = setting(10.0, "Time limit of one request to the server.", (1.0, 600.0))
