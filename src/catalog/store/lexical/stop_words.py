"""Words too common to tell passages apart, by language."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from catalog.core.errors import ConfigError

# What people put around a question. Not the longer published lists: those also drop "while",
# "from", "all" or the D of "vitamin D", which are what some passages are about.
_ENGLISH_QUESTION_WORDS = """
    i me my we us our you your he him his she her its them what which who whom whose when where
    why how do does did am been were has have had can could should would may might
    isn aren wasn weren doesn didn hasn haven hadn couldn shouldn wouldn
"""


@cache
def stop_words(language: str) -> frozenset[str]:
    """The stop words of a language, lower case; none for a language that has no list."""
    if language == "english":
        return frozenset(_published().STOPWORDS_EN) | set(_ENGLISH_QUESTION_WORDS.split())
    return frozenset(getattr(_published(), f"STOPWORDS_{language.upper()}", ()))


@cache
def _published() -> ModuleType:
    """The lists of bm25s, read from their own file: importing the package would load scipy."""
    package = find_spec("bm25s")
    if package is None or not package.submodule_search_locations:
        raise ConfigError("bm25s is not installed: run pip install bm25s")
    file = Path(package.submodule_search_locations[0]) / "stopwords.py"
    spec = spec_from_file_location("catalog_bm25s_stopwords", file)
    if spec is None or spec.loader is None:
        raise ConfigError(f"the stop word lists cannot be read from {file}")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
