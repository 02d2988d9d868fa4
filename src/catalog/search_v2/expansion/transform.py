"""Language models as sources of other words for a query, also usable as LlamaIndex transforms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

from llama_index.core.indices.query.query_transform import HyDEQueryTransform
from llama_index.core.indices.query.query_transform.base import BaseQueryTransform
from llama_index.core.schema import QueryBundle

from catalog.embedding.encoder import fingerprint
from catalog.llm.naming import llm_identity, llm_name
from catalog.search_v2.expansion.parsing import parse_lines
from catalog.search_v2.expansion.prompt import GRAMMAR, PROMPT, PROMPT_VERSION, ExpansionReply
from catalog.search_v2.expansion.text import ExpansionLine, one_line

if TYPE_CHECKING:
    from llama_index.core.llms import LLM
    from llama_index.core.prompts import BasePromptTemplate, PromptTemplate
    from llama_index.core.prompts.mixin import PromptDictType


class ExpansionSource(Protocol):
    """Something that thinks of other words for a query; it may be slow, wrong, or raise."""

    @property
    def name(self) -> str:
        """The source as explanations name it."""
        ...

    @property
    def fingerprint(self) -> str:
        """Names source, model and prompt: replies of equal ones may stand for each other."""
        ...

    @property
    def prompt(self) -> str:
        """What the model is told, so that replies repeating it are known."""
        ...

    def expand(self, query: str) -> list[ExpansionLine]:
        """Lines as they come, unchecked; raises whatever the model raises."""
        ...


def get_source(kind: Literal["lines", "hyde"], llm: LLM) -> ExpansionSource:
    """The source that ``expansion_source`` names."""
    if kind == "hyde":
        return HydeSource(HyDEQueryTransform(llm=llm, include_original=False))
    return LexVecQueryTransform(llm)


class LexVecQueryTransform(BaseQueryTransform):
    """Asks a language model for lex, vec and hyde lines.

    A model with the attribute ``takes_grammar`` is bound to the form, one that calls functions
    is asked for a structure, and again in plain text if that fails; any other reply is read
    as far as it can be.
    """

    def __init__(self, llm: LLM) -> None:
        super().__init__()
        self._llm = llm
        self._prompt: PromptTemplate = PROMPT

    @property
    def name(self) -> str:
        """See :class:`ExpansionSource`."""
        return llm_name(self._llm)

    @property
    def fingerprint(self) -> str:
        """See :class:`ExpansionSource`."""
        return _fingerprint(self, self._llm, PROMPT_VERSION, self._prompt)

    @property
    def prompt(self) -> str:
        """See :class:`ExpansionSource`."""
        return str(self._prompt.get_template(llm=self._llm))

    def expand(self, query: str) -> list[ExpansionLine]:
        """See :class:`ExpansionSource`."""
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
            found: object = self._llm.structured_predict(ExpansionReply, self._prompt, query=query)
        except Exception:  # noqa: BLE001 - models fail here in every way; plain text is next
            return []
        return found.lines() if isinstance(found, ExpansionReply) else []

    def _get_prompts(self) -> PromptDictType:
        return {"expansion_prompt": self._prompt}

    def _update_prompts(self, prompts: PromptDictType) -> None:
        self._prompt = cast("PromptTemplate", prompts.get("expansion_prompt", self._prompt))

    def _run(  # the base class names both
        self,
        query_bundle: QueryBundle,
        metadata: dict[str, Any],  # noqa: ARG002
    ) -> QueryBundle:
        """The query, to be embedded together with its vec and hyde lines."""
        lines = self.expand(query_bundle.query_str)
        texts = [line.text for line in lines if line.kind != "lex"]
        if not texts:
            return query_bundle
        return QueryBundle(
            query_bundle.query_str, custom_embedding_strs=[query_bundle.query_str, *texts]
        )


class HydeSource:
    """LlamaIndex's HyDE as a source: one passage that might answer the query, without the query."""

    def __init__(self, transform: HyDEQueryTransform) -> None:
        self._transform = transform

    @property
    def name(self) -> str:
        """See :class:`ExpansionSource`."""
        return f"hyde {llm_name(self._llm)}"

    @property
    def fingerprint(self) -> str:
        """See :class:`ExpansionSource`."""
        return _fingerprint(self._transform, self._llm, 1, self._template)

    @property
    def prompt(self) -> str:
        """See :class:`ExpansionSource`."""
        return str(self._template.get_template(llm=self._llm))

    def expand(self, query: str) -> list[ExpansionLine]:
        """See :class:`ExpansionSource`; nothing when the model answers nothing."""
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
    return fingerprint(type(source).__name__, *about)
