"""A LlamaIndex ``LLM`` of the caller's own, as a language model of ours."""

from types import SimpleNamespace
from typing import Any

import pytest
from llama_index.core.llms import (
    ChatMessage,
    ChatResponse,
    CompletionResponse,
    CustomLLM,
    LLMMetadata,
    MockLLM,
)
from pydantic import BaseModel, PrivateAttr

from catalog.core.errors import LLMError
from catalog.llm import Message, as_language_model, complete
from catalog.llm.replies import Reply

ASKED = [Message("system", "Be brief."), Message("user", "Is it so?")]


class Completing(CustomLLM):
    """A model of LlamaIndex that completes prompts and cannot stream."""

    is_chat: bool = False
    _prompts: list[str] = PrivateAttr(default_factory=list)
    _options: list[dict[str, Any]] = PrivateAttr(default_factory=list)

    @property
    def metadata(self):
        return LLMMetadata(is_chat_model=self.is_chat, context_window=900, num_output=-1)

    def complete(self, prompt, formatted=False, **options):
        self._prompts.append(prompt)
        self._options.append(options)
        return CompletionResponse(text="It is.")

    def stream_complete(self, prompt, formatted=False, **_):
        raise NotImplementedError


class Chatting(CustomLLM):
    """A model of LlamaIndex that streams; each piece has ``raw`` of a server."""

    finish: str | None = "stop"
    has_delta: bool = True

    @property
    def metadata(self):
        return LLMMetadata(
            is_chat_model=True, model_name="chatting", is_function_calling_model=True
        )

    def complete(self, prompt, formatted=False, **_):
        raise AssertionError

    def stream_complete(self, prompt, formatted=False, **_):
        raise AssertionError

    def stream_chat(self, messages, **options):
        assert [(one.role.value, one.content) for one in messages] == ASKED
        assert options == {"temperature": 0.5}
        said = ""
        for piece, finish in (("It ", None), ("is.", self.finish)):
            said += piece
            yield ChatResponse(
                message=ChatMessage(role="assistant", content=said),
                delta=piece if self.has_delta else None,
                raw=SimpleNamespace(
                    choices=[SimpleNamespace(finish_reason=finish)],
                    usage={"prompt_tokens": 9, "completion_tokens": 2},
                ),
            )

    def structured_predict(self, output_cls, prompt, llm_kwargs=None, **values):
        return output_cls(said=prompt.format(**values))


def test_a_model_of_ours_is_left_alone():
    ours = as_language_model(MockLLM())
    assert as_language_model(ours) is ours


@pytest.mark.parametrize("has_delta", [True, False])
def test_its_pieces_come_with_their_end_and_its_tokens(has_delta):
    reply = Reply(as_language_model(Chatting(has_delta=has_delta)), ASKED, 10.0, temperature=0.5)
    assert list(reply) == ["It ", "is."]
    assert (reply.usage, reply.is_cut) == ((9, 2), False)
    cut = Reply(as_language_model(Chatting(finish="length")), ASKED, 10.0, temperature=0.5)
    assert "".join(cut) == "It is."
    assert cut.is_cut
    with pytest.raises(LLMError, match="broke off"):
        list(Reply(as_language_model(Chatting(finish=None)), ASKED, 10.0, temperature=0.5))


def test_one_that_cannot_stream_is_asked_for_the_whole_and_completes_a_lone_prompt_as_it_is():
    llm = Completing()
    model = as_language_model(llm)
    assert complete(model, "Is it {so}?", temperature=0.5) == "It is."
    assert "".join(Reply(model, ASKED, 10.0)) == "It is."
    assert llm._prompts[0] == "Is it {so}?"
    assert "Be brief." in llm._prompts[1]
    assert llm._options[0] == {"temperature": 0.5}
    assert not model.takes_schema


def test_one_that_calls_functions_fills_a_schema():
    class Said(BaseModel):
        said: str

    model = as_language_model(Chatting())
    assert model.takes_schema
    assert complete(model, "Is it {so}?", schema=Said) == '{"said":"Is it {so}?"}'


def test_it_is_called_by_its_name_or_its_class():
    assert as_language_model(Chatting()).name == "chatting"
    assert as_language_model(Completing()).name == "Completing"


def test_its_sizes_are_its_own():
    model = as_language_model(Completing())
    assert (model.context_tokens, model.reply_tokens) == (900, 1)


def test_it_is_known_by_its_weights_and_its_server():
    class Served(Chatting):
        fingerprint: Any = None
        api_base: Any = None

    def identity(**given):
        return as_language_model(Served(**given)).identity

    assert identity() == identity(fingerprint=7) == "Served chatting"
    assert identity(fingerprint="abc") == "Served abc"
    assert identity(api_base="http://u:pw@host/v1") == "Served chatting http://host/v1"


def test_its_tokenizer_counts_where_it_has_one():
    class Counting(Chatting):
        tokenizer: Any = None

    assert as_language_model(Counting()).count_tokens is None
    assert as_language_model(Counting(tokenizer=str.split)).count_tokens("one two") == 2
    encoding = SimpleNamespace(encode=list)
    assert as_language_model(Counting(tokenizer=encoding)).count_tokens("four") == 4
