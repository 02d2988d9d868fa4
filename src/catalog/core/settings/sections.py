"""``IDX_*``: the settings around the v2 pipeline."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode

from catalog.core.entry_points import list_added
from catalog.core.files import default_home, expanded
from catalog.core.params import Profile
from catalog.core.settings.rag import RAGv2Settings
from catalog.core.settings.variables import (
    PREFIX,
    ApiKey,
    SettingsSection,
    Share,
    read_environment,
    setting,
    shaping,
)

_TOKEN = re.compile(r"\S[^\x00-\x1f\x7f]{14,}\S")  # that a header can contain
_PRICE = re.compile(r"(.*\S)\s*:\s*(\d+(?:\.\d+)?)\s*,\s*(\d+(?:\.\d+)?)\s*")


def _split(value: object, separator: str) -> object:
    """Split a variable's text, unless it is a JSON list."""
    if not isinstance(value, str):
        return value
    if not value.lstrip().startswith(("[", "{")):
        return [part.strip() for part in value.split(separator) if part.strip()]
    with suppress(ValueError):
        if isinstance(parts := json.loads(value), list):
            return parts
    raise ValueError(f"write a JSON list, or texts separated by {separator!r}")


Pairs = Annotated[tuple[str, ...], NoDecode, BeforeValidator(partial(_split, separator=";"))]
Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(partial(_split, separator=","))]
_Folder = Annotated[Path, AfterValidator(expanded)]
_Level = Literal["DEBUG", "INFO", "WARNING", "ERROR"]


def _split_pairs(pairs: tuple[str, ...], example: str) -> list[tuple[str, str]]:
    """Return name and value of each ``name: value``; refuse one without either."""
    split = [pair.partition(":")[::2] for pair in pairs]
    if not all(name.strip() and value.strip() for name, value in split):
        raise ValueError(f"write {example}")
    return [(name.strip(), value.strip()) for name, value in split]


EMBEDDING_PROVIDERS = ("fastembed", "huggingface", "static", "openai", "cohere")


def _check_embedding_provider(name: str) -> str:
    if name not in EMBEDDING_PROVIDERS and name not in list_added("catalog.embeddings"):
        known = ", ".join(EMBEDDING_PROVIDERS)
        raise ValueError(f"no package provides {name!r}: use one of {known}, or install it")
    return name


class EmbeddingSettings(SettingsSection):
    """``IDX_EMBEDDING__*``: which model embeds, and how."""

    provider: Annotated[str, AfterValidator(_check_embedding_provider)] = shaping(
        "fastembed", "Where the model runs."
    )
    model: str = shaping(
        "BAAI/bge-small-en-v1.5", "Name of the model: on the hub, of a folder, or on its server."
    )
    batch_size: int = setting(32, "Texts embedded in one batch.", (1, 4096))
    threads: int | None = setting(None, "Threads that embed; unset: all cores.", (1, 256))
    offline: bool = setting(False, "Never connect to a model hub; use files on disk only.")
    url: str | None = setting(
        None, "Address of an OpenAI-compatible server: http://…/v1; cohere: unset for its own."
    )
    api_key: ApiKey = setting(None, "API key for that server.", repr=False)
    timeout_seconds: float = setting(30.0, "Time limit of one request to it.", gt=0.0, le=3600.0)
    retry_seconds: float = setting(
        120.0, "How long to retry a batch when the server fails or is busy.", (0.0, 86_400.0)
    )
    dim: int | None = shaping(
        None,
        "Length to cut vectors to, if the model allows it; unset: the model's own.",
        (1, 65_536),
    )
    max_tokens: int | None = shaping(
        None, "Tokens that a server's model reads; unset: as known, else 512.", (32, 1_000_000)
    )
    price: float = setting(0.0, "Price of a million tokens, for the report of a run.", (0.0, 1e6))


class LLMSettings(SettingsSection):
    """``IDX_LLM__*``: which language model answers, expands queries or reranks, if any."""

    provider: str = setting(
        "none", "none, openai (any compatible server), ollama, or module:function."
    )
    model: str | None = setting(None, "Name of the model on the server.")
    cheap: str | None = setting(
        None, "Model (or module:function) of the profile cheap; unset: the one above."
    )
    balanced: str | None = setting(None, "Model of the profile balanced, likewise.")
    premium: str | None = setting(None, "Model of the profile premium, likewise.")
    url: str | None = setting(
        None, "Address of the server, such as http://…/v1; unset: Ollama on this machine."
    )
    api_key: ApiKey = setting(None, "API key for that server.", repr=False)
    timeout_seconds: float = setting(
        25.0,
        "Time limit of a request or an answer; an artifact has twelve times as long.",
        gt=0.0,
        le=600.0,
    )
    max_tokens: int = setting(400, "Maximum length of a reply.", (16, 8192))
    prices: Pairs = setting(
        (),
        "Prices of a million tokens of prompts and of replies by model, for catalog logs: "
        "'name: 0.25, 2', separated by semicolons.",
    )

    @field_validator("prices")
    @classmethod
    def _are_prices(cls, prices: tuple[str, ...]) -> tuple[str, ...]:
        if not all(map(_PRICE.fullmatch, prices)):
            raise ValueError("write prices as 'name: 0.25, 2'")
        return prices

    def cost(self, model: str, prompt: int, reply: int) -> float | None:
        """Return the cost of these tokens, ``None`` for a model without prices."""
        for price in filter(None, map(_PRICE.fullmatch, self.prices)):
            name, of_prompt, of_reply = price.groups()
            if name == model:
                return (prompt * float(of_prompt) + reply * float(of_reply)) / 1_000_000
        return None

    def of_profile(self, profile: Profile) -> LLMSettings:
        """Return the settings of a profile's model; without a model of its own, these settings."""
        named = getattr(self, profile)
        if named is None or self.provider == "none":
            return self
        return self.model_copy(update={"provider" if ":" in self.provider else "model": named})


class AnswerSettings(SettingsSection):
    """``IDX_ANSWERS__*``: how questions are answered, and who may see what."""

    roles: Pairs = setting(
        (),
        "Confidentiality levels that each role may see: 'employee: public, internal', "
        "separated by semicolons. The level unlabelled stands for documents without one; the "
        "level unreadable may not be listed.",
    )
    role: str | None = setting(
        None, "Role of everyone who asks this process. A role in a call can only see less."
    )
    sentences: int = setting(
        3, "Number of sentences in an answer without a language model.", (1, 20)
    )
    answered_from: Share = setting(0.4, "Least confidence to show statements for a question.")
    context_passages: int = setting(15, "Number of passages given to a language model.", (1, 100))
    context_tokens: int = setting(
        4000, "Maximum number of tokens of those passages, counted by that model.", (100, 1_000_000)
    )
    unsupported: Literal["mark", "drop", "retry"] = setting(
        "drop", "Unsupported sentences: mark them, drop them, or ask the model once more first."
    )
    citations: Literal["number", "source", "chunk"] = setting(
        "number", "Form of citations: [1], [source: Title, page 4] or [chunk: id]."
    )
    judge: bool | None = setting(None, "Let the language model judge passages; unset: if quick.")
    agents: _Folder | None = setting(
        None, "Folder with a file NAME.toml for each agent; unset: agents in the home."
    )
    tool: bool = setting(False, "Offer the tool ask to agents.")

    @model_validator(mode="after")
    def _knows_its_role(self) -> AnswerSettings:
        if len(self.levels()) < len(self.roles):
            raise ValueError("roles: a role occurs twice")
        if any("unreadable" in levels for levels in self.levels().values()):
            raise ValueError("roles: no role may see the level 'unreadable'")
        if self.role is not None and self.role not in self.levels():
            known = ", ".join(self.levels()) or "none, set IDX_ANSWERS__ROLES"
            raise ValueError(f"the role {self.role!r} is not one of roles: {known}")
        return self

    def levels(self) -> dict[str, frozenset[str]]:
        """Return the levels that each role may see, case-folded."""
        return {
            name: frozenset(filter(None, map(str.strip, levels.casefold().split(","))))
            for name, levels in _split_pairs(self.roles, "a role as 'employee: public, internal'")
        }


class ServeSettings(SettingsSection):
    """``IDX_SERVE__*``: what ``catalog serve`` and ``catalog mcp --http`` allow."""

    token: str | None = setting(
        None, "Token that requests must have; needed if other machines can connect.", repr=False
    )
    role_tokens: Pairs = setting(
        (), "Tokens that select a role: 'employee: TOKEN', separated by semicolons.", repr=False
    )

    @model_validator(mode="after")
    def _tokens_are_safe(self) -> ServeSettings:
        if not all(map(_TOKEN.fullmatch, self.tokens())):
            raise ValueError("a token needs 16 characters or more, no control characters")
        if len(self.tokens()) < len(self.role_tokens) + (self.token is not None):
            raise ValueError("a token occurs twice")
        return self

    def tokens(self) -> dict[str, str | None]:
        """Return the role of each accepted token, ``None`` for one that sees everything."""
        named = _split_pairs(self.role_tokens, "a role's token as 'employee: TOKEN'")
        own: dict[str, str | None] = {} if self.token is None else {self.token: None}
        return {token: role for role, token in named} | own

    def roles(self) -> frozenset[str]:
        """Return the roles that tokens have."""
        return frozenset(filter(None, self.tokens().values()))

    allowed_hosts: Names = setting(
        (), "Host names of the server, in addition to its address, separated by commas."
    )
    allowed_origins: Names = setting(
        (), "Web pages that may call it, such as https://host, separated by commas."
    )
    max_body_bytes: int = setting(1_000_000, "Maximum size of a request.", (1_000, 100_000_000))
    timeout_seconds: float = setting(30.0, "Time limit of one request.", gt=0.0, le=3600.0)
    max_concurrent: int = setting(
        8, "Requests answered at the same time; further ones wait.", (1, 256)
    )
    drain_seconds: float = setting(
        0.0, "How long to answer after SIGTERM; meanwhile /v1/ready says no.", (0.0, 3600.0)
    )


_Verb = Literal["ask", "generate", "search"]
_Verbs = Annotated[tuple[_Verb, ...], NoDecode, BeforeValidator(partial(_split, separator=","))]


class LogSettings(SettingsSection):
    """``IDX_LOG__*``: the log of questions that ``catalog logs`` shows."""

    verbs: _Verbs = setting(
        ("ask", "generate"), "Verbs to log, separated by commas: ask, generate, search."
    )
    query_text: bool = setting(
        False, "Keep the words of questions; off: only a hash of each question."
    )
    days: float = setting(30.0, "How long entries are kept.", (0.0, 36_500.0))
    entries: int = setting(100_000, "How many entries are kept; the newest stay.", (1, 10_000_000))
    retrieval: bool = setting(
        False, "Write failed, repeated and degraded steps to logs/retrieval.log, without text."
    )


_Field = Annotated[str, Field(min_length=1)]


class CollectionSettings(SettingsSection):
    """``IDX_COLLECTION__*``: a Qdrant collection that other software filled, searched unchanged.

    The fields of its payload are named with dots where one lies in another.
    """

    name: str | None = setting(None, "Name of the collection, or of an alias.")
    url: str | None = setting(None, "Address of its Qdrant server; unset: IDX_RAG_V2__QDRANT_URL.")
    api_key: ApiKey = setting(None, "API key for that server; read access is enough.", repr=False)
    vector: str | None = setting(None, "Name of the vector to search, if vectors have names.")
    text: _Field = setting("text", "Payload field with the passage.")
    source_url: _Field = setting("source_url", "Payload field with the source of the passage.")
    page_title: _Field = setting("page_title", "Payload field with the title of the page.")
    section: _Field = setting("section", "Payload field with the passage's heading.")
    chunk_index: _Field = setting(
        "chunk_index", "Payload field with the passage's number in the page."
    )
    threshold: float | None = setting(
        None, "Least score of a passage; unset: no limit.", (-1.0, 1.0)
    )
    low_score_below: float = setting(
        0.3, "Passages with a lower score are flagged; it depends on the model.", (-1.0, 1.0)
    )
    timeout_seconds: float = setting(10.0, "Time limit of one request to the server.", (1.0, 600.0))


class Settings(BaseSettings):
    """``IDX_*``: where things are, the embedding model, and the v2 pipeline."""

    model_config = read_environment(PREFIX)

    home: _Folder = Field(
        default_factory=default_home, description="Folder of the store and its indexes."
    )
    preset: str | None = setting(
        None, "Settings: a name in configs/, or a .toml file; --preset takes precedence."
    )
    database_url: str | None = setting(
        None,
        "Address of the database, instead of a file in the home: postgresql://user@host/database.",
        repr=False,
    )
    log_level: Annotated[_Level, BeforeValidator(lambda it: str(it).upper())] = setting(
        "WARNING", "Level of messages on standard error, in any case."
    )
    embedding: EmbeddingSettings = Field(default_factory=EmbeddingSettings)
    llm: LLMSettings = Field(default_factory=LLMSettings)
    answers: AnswerSettings = Field(default_factory=AnswerSettings)
    serve: ServeSettings = Field(default_factory=ServeSettings)
    log: LogSettings = Field(default_factory=LogSettings)
    collection: CollectionSettings = Field(default_factory=CollectionSettings)
    rag_v2: RAGv2Settings = Field(default_factory=RAGv2Settings)
    agents: Mapping[str, Any] = Field(
        default_factory=dict, description="Agents by name: tables [agents.NAME]."
    )
