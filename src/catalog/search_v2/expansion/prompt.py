"""What a language model is asked for an expansion, and the forms its reply may be bound to.

The examples are of subjects that hardly any collection treats, so that a reply which repeats
them is recognised. The query comes last: what stands before it is read once and remembered.
"""

from __future__ import annotations

from llama_index.core.prompts import PromptTemplate
from pydantic import BaseModel, Field

from catalog.search_v2.expansion.text import ExpansionLine, one_line

PROMPT_VERSION = 1  # raise it with every change here, so that kept replies are asked for anew

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
        """The wordings that are not blank, lex before vec before hyde."""
        found = [
            *(ExpansionLine("lex", one_line(text)) for text in self.lex),
            *(ExpansionLine("vec", one_line(text)) for text in self.vec),
            ExpansionLine("hyde", one_line(self.hyde or "")),
        ]
        return [line for line in found if line.text]
