"""Reading a language model's reply as it comes, and saying in plain words how one failed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from catalog.core.bounded_calls import BoundedCalls
from catalog.core.errors import CatalogError, LLMBusyError, LLMError, LLMTimeoutError

if TYPE_CHECKING:
    from llama_index.core.llms import LLM, ChatMessage

_CALLS = BoundedCalls(limit=4)  # shared by all replies of a process: threads that hang
_LONGEST_REPLY = 131_072  # characters: 16 for each of the most tokens that may be set
_REFUSED, _LIMITED, _UNKNOWN = (401, 403), 429, 404
_TOO_LONG = ("context length", "context window", "context size", "too many tokens", "too long")


class Reply:
    """A reply as it comes: iterate over its pieces once; ``usage`` and ``is_cut`` are known then.

    ``options`` are those of the call, such as ``temperature`` and ``max_tokens``.
    ``usage`` are the tokens of prompt and reply that the model counted, ``None`` where it does not.
    ``is_cut``: the reply is as long as the model may write, and its last sentence may lack its end;
    no more than 131,072 characters are read, an empty piece counted as one.
    """

    def __init__(
        self, llm: LLM, messages: Sequence[ChatMessage], seconds: float, **options: Any
    ) -> None:
        self._llm, self._messages, self._seconds = llm, messages, seconds
        self._options = options
        self.usage: tuple[int, int] | None = None
        self.is_cut = False

    def __iter__(self) -> Iterator[str]:
        """Yield the pieces, each within the time limit and all within twelve times that.

        Raises :class:`LLMError` kinds whose message says what to do. A reply without words is one.
        """
        finish = ""
        has_begun = has_words = has_choices = False
        try:
            for piece, raw in _CALLS.stream(self._pieces, self._seconds):
                has_begun |= bool(piece)
                has_words |= not piece.isspace() and piece != ""
                has_choices |= bool(_get(raw, "choices"))
                finish = _finish_reason(raw) or finish
                self.usage = _usage(raw) or self.usage
                if piece:
                    yield piece
        except (Exception, SystemExit) as error:  # somebody else's code may raise anything
            raise explain_failure(error, self._seconds, has_begun=has_begun) from error
        if has_choices and not finish and not self.is_cut:
            raise LLMError("the language model's reply broke off: ask again")
        if not has_words:  # as of a page in HTML, or of a list without choices
            raise LLMError(
                "the language model's server answered without a reply: check IDX_LLM__URL and "
                "IDX_LLM__MODEL"
            )
        self.is_cut |= finish == "length"

    def _pieces(self) -> Iterator[tuple[str, Any]]:
        room = _LONGEST_REPLY
        for piece, raw in self._all_pieces():
            yield piece[:room], raw
            room -= max(len(piece), 1)
            if room <= 0:
                self.is_cut = True
                return

    def _all_pieces(self) -> Iterator[tuple[str, Any]]:
        said = ""
        try:
            for part in self._llm.stream_chat(self._messages, **self._options):
                whole = part.message.content or ""
                piece = whole[len(said) :] if part.delta is None else part.delta
                said += piece
                yield piece, part.raw
        except NotImplementedError:
            if said:
                raise
            answer = self._llm.chat(self._messages, **self._options)
            yield answer.message.content or "", answer.raw


def explain_failure(error: BaseException, seconds: float, *, has_begun: bool = False) -> LLMError:
    """Return the error that says how a model failed and what to do, without any secret.

    Errors of servers' clients are recognised by the HTTP status that they carry.
    """
    if isinstance(error, LLMTimeoutError) or "timeout" in type(error).__name__.casefold():
        late = "end its answer in time" if has_begun else f"answer within {seconds:g} s"
        return LLMTimeoutError(
            f"the language model did not {late}: raise IDX_LLM__TIMEOUT_SECONDS, or take a "
            "smaller model"
        )
    if isinstance(error, LLMBusyError):
        return LLMBusyError("earlier calls of the language model still hang: try again later")
    if isinstance(error.__cause__, LLMError):  # raised within a client, which wraps it
        return error.__cause__
    status = getattr(error, "status_code", None)
    if status is None:
        status = getattr(getattr(error, "response", None), "status_code", None)
    words = " ".join(str(error).split())
    if status in _REFUSED:
        return LLMError(
            f"the language model's server refused the key ({status}): check IDX_LLM__API_KEY"
        )
    if isinstance(status, int) and 300 <= status < 400:
        return LLMError(
            f"the language model's server sends to another address ({status}), which is not "
            "followed: check IDX_LLM__URL"
        )
    if status == _LIMITED:
        return LLMError(
            "the language model's server limits how often it is asked (429): try again later"
        )
    if status == _UNKNOWN:
        return LLMError(
            "the language model's server has no such model or address (404): check "
            "IDX_LLM__MODEL and IDX_LLM__URL"
        )
    if any(part in words.casefold() for part in _TOO_LONG):
        return LLMError(
            "the passages are too long for the language model: lower IDX_ANSWERS__CONTEXT_TOKENS"
        )
    if status is not None:
        return LLMError(f"the language model's server failed ({status}): try again later")
    if isinstance(error, OSError) or "connect" in type(error).__name__.casefold():
        what = "broke off" if has_begun else "could not be reached: check IDX_LLM__URL"
        return LLMError(f"the language model's {'reply' if has_begun else 'server'} {what}")
    if isinstance(error, CatalogError):
        return error if isinstance(error, LLMError) else LLMError(words)
    what = "reply broke off" if has_begun else "call failed"
    return LLMError(f"the language model's {what} ({type(error).__name__})")


def _finish_reason(raw: Any) -> str:
    choices = _get(raw, "choices")
    return str(_get(choices[0], "finish_reason") or "") if choices else ""


def _usage(raw: Any) -> tuple[int, int] | None:
    usage = _get(raw, "usage")
    counts = _get(usage, "prompt_tokens"), _get(usage, "completion_tokens")
    return counts if all(isinstance(count, int) for count in counts) else None


def _get(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else getattr(value, name, None)
