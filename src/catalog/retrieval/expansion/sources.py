"""Language models as sources of other words for a query, also as LlamaIndex query transforms.

The examples in the prompt are on subjects that hardly any collection has, so that a reply that
repeats them is recognised. The query comes last, because models cache the text before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

from llama_index.core.indices.query.query_transform import HyDEQueryTransform
from llama_index.core.indices.query.query_transform.base import BaseQueryTransform
from llama_index.core.prompts import PromptTemplate
from llama_index.core.schema import QueryBundle
from pydantic import BaseModel, Field

from catalog.embedding.encoder import make_fingerprint
from catalog.llm import llm_identity, llm_name
from catalog.retrieval.expansion.lines import ExpansionLine, one_line, parse_lines

if TYPE_CHECKING:
    from llama_index.core.llms import LLM
    from llama_index.core.prompts import BasePromptTemplate
    from llama_index.core.prompts.mixin import PromptDictType


PROMPT_VERSION = 1  # raise it with every change here, so that cached replies are not used

PROMPT = PromptTemplate(
    """\
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
)

GRAMMAR = r"""root ::= lex lex? lex? vec vec? vec? hyde?
lex ::= "lex: " word (" " word){0,7} "\n"
vec ::= "vec: " word (" " word){1,19} "\n"
hyde ::= "hyde: " word (" " word){3,59} "\n"
word ::= [^\x00-\x20<>\x7F]{1,40}
"""
"""GBNF: 1 to 3 lex lines of 1-8 words, 1 to 3 vec lines of 2-20, at most one hyde line of 4-60."""


class ExpansionReply(BaseModel):
    """Other wordings of a search query."""

    lex: list[str] = Field(description="1 to 3 short lists of key words, names or synonyms.")
    vec: list[str] = Field(description="1 to 3 rephrased questions.")
    hyde: str | None = Field(
        None, description="One or two sentences of a passage that would answer the query."
    )

    def lines(self) -> list[ExpansionLine]:
        """Return the wordings that are not blank: lex, then vec, then hyde."""
        lines = [
            *(ExpansionLine("lex", one_line(text)) for text in self.lex),
            *(ExpansionLine("vec", one_line(text)) for text in self.vec),
            ExpansionLine("hyde", one_line(self.hyde or "")),
        ]
        return [line for line in lines if line.text]


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


def get_source(kind: Literal["lines", "hyde"], llm: LLM) -> ExpansionSource:
    """Make the source that the setting ``expansion_source`` names."""
    if kind == "hyde":
        return HydeSource(HyDEQueryTransform(llm=llm, include_original=False))
    return LexVecQueryTransform(llm)


class LexVecQueryTransform(BaseQueryTransform):
    """Ask a language model for lex, vec and hyde lines.

    A model with the attribute ``takes_grammar`` is bound to the form. A model that can call
    functions is asked for a structure, and for plain text if that fails. Any other reply is parsed
    as far as possible.
    """

    def __init__(self, llm: LLM) -> None:
        super().__init__()
        self._llm = llm
        self._prompt: PromptTemplate = PROMPT

    @property
    def name(self) -> str:
        """Return the language model's name."""
        return llm_name(self._llm)

    @property
    def fingerprint(self) -> str:
        """Return a name for transform, model and prompt."""
        return _fingerprint(self, self._llm, PROMPT_VERSION, self._prompt)

    @property
    def prompt(self) -> str:
        """Return the prompt."""
        return str(self._prompt.get_template(llm=self._llm))

    def expand(self, query: str) -> list[ExpansionLine]:
        """Ask for lex, vec and hyde lines."""
        query = one_line(query)
        if getattr(self._llm, "takes_grammar", False):
            prompt = self._prompt.format(llm=self._llm, query=query)
            return parse_lines(self._llm.complete(prompt, grammar=GRAMMAR).text)
        if self._llm.metadata.is_function_calling_model:
            lines = self._structured(query)
            if lines:
                return lines
        return parse_lines(self._llm.predict(self._prompt, query=query))

    def _structured(self, query: str) -> list[ExpansionLine]:
        try:
            reply: object = self._llm.structured_predict(ExpansionReply, self._prompt, query=query)
        except Exception:  # noqa: BLE001 - models fail here in every way; plain text is next
            return []
        return reply.lines() if isinstance(reply, ExpansionReply) else []

    def _get_prompts(self) -> PromptDictType:
        return {"expansion_prompt": self._prompt}

    def _update_prompts(self, prompts: PromptDictType) -> None:
        self._prompt = cast("PromptTemplate", prompts.get("expansion_prompt", self._prompt))

    def _run(  # the base class names both
        self,
        query_bundle: QueryBundle,
        metadata: dict[str, Any],  # noqa: ARG002
    ) -> QueryBundle:
        """Return the query, which will be embedded together with its vec and hyde lines."""
        lines = self.expand(query_bundle.query_str)
        texts = [line.text for line in lines if line.kind != "lex"]
        if not texts:
            return query_bundle
        return QueryBundle(
            query_bundle.query_str, custom_embedding_strs=[query_bundle.query_str, *texts]
        )


class HydeSource:
    """LlamaIndex's HyDE as a source: a passage that might answer the query, without the query."""

    def __init__(self, transform: HyDEQueryTransform) -> None:
        self._transform = transform

    @property
    def name(self) -> str:
        """Return ``hyde`` and the language model's name."""
        return f"hyde {llm_name(self._llm)}"

    @property
    def fingerprint(self) -> str:
        """Return a name for transform, model and prompt."""
        return _fingerprint(self._transform, self._llm, 1, self._template)

    @property
    def prompt(self) -> str:
        """Return the prompt."""
        return str(self._template.get_template(llm=self._llm))

    def expand(self, query: str) -> list[ExpansionLine]:
        """Ask for one passage; return no line if the model answers nothing."""
        passages = self._transform.run(query).custom_embedding_strs or [""]
        text = one_line(passages[0])  # the query may follow it
        return [ExpansionLine("hyde", text)] if text else []

    @property
    def _llm(self) -> LLM:
        return self._transform._llm

    @property
    def _template(self) -> BasePromptTemplate:
        return self._transform.get_prompts()["hyde_prompt"]


def _fingerprint(source: object, llm: LLM, version: int, prompt: BasePromptTemplate) -> str:
    about = (*llm_identity(llm), str(version), prompt.get_template(llm=llm))
    return make_fingerprint(type(source).__name__, *about)
