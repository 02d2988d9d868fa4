"""Language models as sources of other words for a query.

The examples in the prompt are on subjects that hardly any collection has, so that a reply that
repeats them is recognised. The query comes last, because models cache the text before it.
"""

from __future__ import annotations

from typing import Literal, Protocol

from pydantic import BaseModel, Field

from catalog.embedding.encoder import make_fingerprint
from catalog.llm import LanguageModel, complete
from catalog.retrieval.expansion.lines import ExpansionLine, one_line, parse_lines

PROMPT_VERSION = 1  # raise it with every change here, so that kept replies are asked for anew

PROMPT = """\
Rewrite a search query so that a search engine finds passages that word it differently.
Write 1 to 3 lines that start with lex: and hold a few key words, names or synonyms,
1 to 3 lines that start with vec: and hold a rephrased question,
and at most one line that starts with hyde: and holds one or two sentences of a passage that
would answer it. Stay with the subject of the query. Write nothing else.

Query: cuckoo clock bellows squeak
lex: cuckoo clock bellows noise
lex: cuckoo clock lubrication
vec: why does a cuckoo clock squeak when the bird calls
hyde: A squeak of the cuckoo comes from dry bellow hinges. A little graphite silences them.

Query: how often to rosin a hurdy-gurdy wheel
lex: hurdy-gurdy wheel rosin interval
vec: when does the wheel of a hurdy-gurdy need fresh rosin
vec: rosining schedule for hurdy-gurdy players

Query: {query}
"""

HYDE_PROMPT = """\
Please write a passage to answer the question
Try to include as many key details as possible.


{query}


Passage:\"\"\"
"""


class ExpansionReply(BaseModel):
    """Other wordings of a search query."""

    lex: list[str] = Field(description="1 to 3 short lists of key words, names or synonyms.")
    vec: list[str] = Field(description="1 to 3 rephrased questions.")
    hyde: str | None = Field(
        None, description="One or two sentences of a passage that would answer the query."
    )


class ExpansionSource(Protocol):
    """A source of other words for a query; it may be slow, be wrong, or raise."""

    @property
    def name(self) -> str:
        """Return the source's name for explanations."""
        ...

    @property
    def fingerprint(self) -> str:
        """Return a name for source, model and prompt; equal ones share cached replies."""
        ...

    @property
    def prompt(self) -> str:
        """Return the prompt, to recognise replies that repeat it."""
        ...

    def expand(self, query: str) -> list[ExpansionLine]:
        """Ask for unchecked lines; raises whatever the model raises."""
        ...


def get_source(kind: Literal["lines", "hyde"], llm: LanguageModel) -> ExpansionSource:
    """Make the source that the setting ``expansion_source`` names."""
    return HydeSource(llm) if kind == "hyde" else LexVecSource(llm)


class LexVecSource:
    """Asks a language model for lex, vec and hyde lines; ``prompt`` has a place for ``{query}``.

    A model that takes a schema is asked for it, and again in plain text if that fails; any other
    reply is read as far as it can be.
    """

    def __init__(self, llm: LanguageModel, prompt: str = PROMPT) -> None:
        self._llm, self.prompt = llm, prompt
        self.name = llm.name

    @property
    def fingerprint(self) -> str:
        """Return a name for source, model and prompt."""
        return make_fingerprint("lines", self._llm.identity, str(PROMPT_VERSION), self.prompt)

    def expand(self, query: str) -> list[ExpansionLine]:
        """Ask for lex, vec and hyde lines."""
        asked = self.prompt.replace("{query}", one_line(query))
        filled = getattr(self._llm, "takes_schema", False) and self._filled(asked)
        return filled or parse_lines(complete(self._llm, asked))

    def _filled(self, asked: str) -> list[ExpansionLine]:
        try:
            return parse_lines(complete(self._llm, asked, schema=ExpansionReply))
        except Exception:  # noqa: BLE001 - models fail here in every way; plain text is next
            return []


class HydeSource:
    """Asks for one passage that might answer the query (HyDE, arXiv 2212.10496)."""

    prompt = HYDE_PROMPT

    def __init__(self, llm: LanguageModel) -> None:
        self._llm, self.name = llm, f"hyde {llm.name}"

    @property
    def fingerprint(self) -> str:
        """Return a name for source, model and prompt."""
        return make_fingerprint("hyde", self._llm.identity, "1", self.prompt)

    def expand(self, query: str) -> list[ExpansionLine]:
        """Ask for one passage; no line when the model answers nothing."""
        text = one_line(complete(self._llm, self.prompt.replace("{query}", query)))
        return [ExpansionLine("hyde", text)] if text else []
