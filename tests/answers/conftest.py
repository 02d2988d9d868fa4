"""A small store to ask, with levels of confidentiality, and a model without files."""

import re
import shutil

import pytest

from catalog.core.params import AskParams
from catalog.core.settings import AnswerSettings, LLMSettings
from catalog.library.indexing import Indexer
from catalog.library.library import Library
from catalog.llm import ReplyPiece
from catalog.search_v2 import SearchServiceV2
from fakes import open_library, write

ROLES = ("guest: public", "employee: public, internal, unlabelled", "lead: public, internal, 2")


@pytest.fixture(scope="session")
def project(tmp_path_factory):
    """The home of a store of notes on a project, which none changes; beside it one unasked."""
    folder = tmp_path_factory.mktemp("project")
    write(
        folder / "notes",
        cancel_dot_md=(
            "---\nconfidentiality: Public\nagent_hint: clerk\n---\n# Cancellation\n\n"
            "Customers may cancel within 14 days of the order. A refund takes 5 working days.\n"
        ),
        keys_dot_md=(
            "---\nconfidentiality: internal\ntags: [vaultlike]\n---\n# Keys\n\n"
            "Rotate the API keys every ninety days with the keys command.\n"
        ),
        salaries_dot_md=(
            "---\nconfidentiality: [internal, 2]\ntags: [payroll]\ncolour: red\n---\n# Salaries\n\n"
            "The salary of a director is 9000 a month.\n"
        ),
        bread_dot_txt="Mix flour, water and yeast. Bake the bread at 230 degrees.\n",
    )
    with open_library(folder / "home") as library:
        Indexer(library).build(folder / "notes", "notes")
    shutil.copytree(folder / "home", folder / "unasked")
    return folder / "home"


@pytest.fixture
def service(project):
    """A search over it, with roles and no language model."""
    opened = serve(project)
    yield opened
    opened.close()


def serve(home, llm=None, seconds=10.0, **answers):
    """Open the store with these settings of answers and this language model, and its time."""
    plain = open_library(home)
    changed = {
        "answers": AnswerSettings(
            **{"roles": ROLES, "unsupported": "mark", "judge": False, **answers}
        ),
        "llm": LLMSettings(timeout_seconds=seconds),
    }
    settings = plain.settings.model_copy(update=changed)
    model = plain.model
    plain.close()
    return SearchServiceV2(Library(settings, model=model, llm=llm))


def asking(question, **params):
    return AskParams(question, **params)


class WritingLLM:
    """Writes its replies in turn, word by word; one that is an error is raised where it stands."""

    name = "writer"
    identity = "WritingLLM writer"
    reply_tokens = 100

    def __init__(self, replies, prompts=None, context=4000):
        self.replies, self.context_tokens = replies, context
        self.prompts = [] if prompts is None else prompts

    def stream(self, messages, **_):
        self.prompts.append("\n".join(f"{one.role}: {one.content}" for one in messages))
        reply = self.replies[min(len(self.prompts), len(self.replies)) - 1]
        for piece in reply if not isinstance(reply, str) else re.findall(r"\S+\s*|\s+", reply):
            if isinstance(piece, BaseException):
                raise piece
            yield ReplyPiece(piece)
