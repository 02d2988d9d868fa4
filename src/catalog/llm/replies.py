"""Reading a language model's reply as it comes, and saying in plain words how one failed."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Sequence
from time import monotonic
from typing import Any

from catalog.core.bounded_calls import BoundedCalls
from catalog.core.errors import CatalogError, LLMBusyError, LLMError, LLMTimeoutError
from catalog.llm.model import BROKEN_OFF, LanguageModel, Message, ReplyPiece

_CALLS = BoundedCalls(limit=4)  # shared by all replies of a process: threads that hang
_LONGEST_REPLY = 131_072  # characters: 16 for each of the most tokens that may be set
_MOVED = "redirects to another address ({}), which is not followed: check IDX_LLM__URL"
_STATUSES = {
    **{status: _MOVED.format(status) for status in range(300, 400)},
    401: "refused the key (401): check IDX_LLM__API_KEY",
    403: "refused the key (403): check IDX_LLM__API_KEY",
    404: "has no such model or address (404): check IDX_LLM__MODEL and IDX_LLM__URL",
    429: "limits the rate of requests (429): try again later",
}
_THOUGHT_MARK = re.compile(r"<think>|</think>\s*", re.I)
_PART_OF_MARK = re.compile(r"</?(?:t(?:h(?:i(?:n(?:k)?)?)?)?)?\Z", re.I)
_LONGEST_PART = len("</think")
_TOO_LONG = ("context length", "context window", "context size", "too many tokens", "too long")


class Reply:
    """A reply as it comes: iterate over its pieces once; ``usage`` and ``is_cut`` are known then.

    ``options`` are those of the call, such as ``temperature`` and ``max_tokens``. ``deadline`` is
    the time of ``monotonic()`` at which the reply must be there, by default in ``seconds``.
    ``usage`` are the tokens of prompt and reply that the model counted, ``None`` where it does not.
    ``is_cut``: the reply is as long as the model may write, and its last sentence may lack its end;
    no more than 131,072 characters are read, an empty piece counted as one.
    """

    def __init__(
        self,
        llm: LanguageModel,
        messages: Sequence[Message],
        seconds: float,
        *,
        deadline: float | None = None,
        **options: Any,
    ) -> None:
        self._llm, self._messages, self._seconds = llm, messages, seconds
        self._deadline = monotonic() + seconds if deadline is None else deadline
        self._options = options
        self.usage: tuple[int, int] | None = None
        self.is_cut = False

    def __iter__(self) -> Generator[str, None, None]:
        """Yield the pieces, each within the time limit and all before the deadline.

        Raises :class:`LLMError` kinds whose message says what to do. A reply without words is one.
        """
        finish: str | None = None
        has_begun = has_words = False
        try:
            for piece in _CALLS.stream(self._pieces, self._seconds, self._deadline):
                has_begun |= bool(piece.text)
                has_words |= not piece.text.isspace() and piece.text != ""
                if piece.finish is not None:
                    finish = piece.finish or finish or ""
                self.usage = piece.usage or self.usage
                if piece.text:
                    yield piece.text
        except (Exception, SystemExit) as error:  # somebody else's code may raise anything
            raise explain_failure(error, self._seconds, has_begun=has_begun) from error
        if finish == "" and not self.is_cut:
            raise LLMError(BROKEN_OFF)
        if not has_words:  # as of a page in HTML, or of a list without choices
            raise LLMError(
                "the answer of the language model's server has no reply: check IDX_LLM__URL and "
                "IDX_LLM__MODEL"
            )
        self.is_cut |= finish == "length"

    def _pieces(self) -> Iterator[ReplyPiece]:
        room = _LONGEST_REPLY
        for piece in self._llm.stream(self._messages, **self._options):
            yield piece._replace(text=piece.text[:room])
            room -= max(len(piece.text), 1)
            if room <= 0:
                self.is_cut = True
                return


def explain_failure(error: BaseException, seconds: float, *, has_begun: bool = False) -> LLMError:
    """Return the error that says how a model failed and what to do, without any secret.

    Errors of servers' clients are recognised by the HTTP status that they carry.
    """
    response = getattr(error, "response", None)
    status = getattr(error, "status_code", None) or getattr(response, "status_code", None)
    words = " ".join(str(error).split())
    kind = type(error).__name__.casefold()
    if isinstance(error, LLMTimeoutError) or "timeout" in kind:
        late = "end its answer in time" if has_begun else f"answer within {seconds:g} s"
        return LLMTimeoutError(
            f"the language model did not {late}: raise IDX_LLM__TIMEOUT_SECONDS, or use a "
            "smaller model"
        )
    if isinstance(error, LLMBusyError):
        problem = "earlier calls of the language model are still running: try again later"
        return LLMBusyError(problem)
    if status in _STATUSES:
        return LLMError(f"the language model's server {_STATUSES[status]}")
    if any(part in words.casefold() for part in _TOO_LONG):
        problem = "the passages are too long for the language model"
        return LLMError(f"{problem}: lower IDX_ANSWERS__CONTEXT_TOKENS")
    if status is not None:
        return LLMError(f"the language model's server failed ({status}): try again later")
    if isinstance(error, OSError) or "connect" in kind:
        broken = "server could not be reached: check IDX_LLM__URL"
        return LLMError(f"the language model's {'reply broke off' if has_begun else broken}")
    if isinstance(error, CatalogError):
        return error if isinstance(error, LLMError) else LLMError(words)
    what = "reply broke off" if has_begun else "call failed"
    return LLMError(f"the language model's {what} ({type(error).__name__})")


class ThoughtFilter:
    """Remove a model's thoughts from a reply as it arrives."""

    def __init__(self) -> None:
        self._is_thinking = False
        self._held = ""  # may be the first characters of a mark

    def feed(self, piece: str) -> str:
        """Return the text that may be shown after the next piece."""
        text, start = self._held + piece, 0
        shown: list[str] = []
        for mark in _THOUGHT_MARK.finditer(text):
            is_end = mark.group().startswith("</")
            if is_end != self._is_thinking:
                continue
            if not is_end:
                shown.append(text[start : mark.start()])
            self._is_thinking = not is_end
            start = mark.end()
        part = _PART_OF_MARK.search(text, max(start, len(text) - _LONGEST_PART))
        stop = part.start() if part else len(text)
        self._held = text[stop:]
        return "".join(shown) + ("" if self._is_thinking else text[start:stop])

    def end(self) -> str:
        """Return the text held back so far."""
        held, self._held = self._held, ""
        return "" if self._is_thinking else held


def without_thoughts(text: str) -> str:
    """Return a reply without the thoughts between ``<think>`` marks."""
    thoughts = ThoughtFilter()
    return thoughts.feed(text) + thoughts.end()
