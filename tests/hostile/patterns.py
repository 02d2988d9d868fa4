"""Every regular expression of the package, and texts made to slow each one down."""

import ast
import importlib
import itertools
import pkgutil
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from re import _constants as op  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any, NamedTuple

import catalog

Text = Any  # of a pattern over str, or over bytes
Pattern = re.Pattern[Any]
_METHODS = {"match", "fullmatch", "search", "sub", "subn", "split", "findall", "finditer"}
_REPEATS = (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT)
_SAMPLES = {
    op.CATEGORY_DIGIT: "1", op.CATEGORY_NOT_DIGIT: "a", op.CATEGORY_SPACE: " \n",
    op.CATEGORY_NOT_SPACE: "a.", op.CATEGORY_WORD: "a", op.CATEGORY_NOT_WORD: " .",
}  # fmt: skip
_LARGE = 20  # times a part may be repeated, from which on it is pumped
_LETTERS, _PAIRED = 12, 6  # characters of a pattern that are pumped alone, and in pairs
_SIZE = 4_000  # characters
_FREE = 4e-4  # seconds for them that need no second look
_SLOW = 0.02  # seconds that no linear pattern takes for them
_GROWTH = 7.0  # times as slow for four times the text: a square is 16 times
_NESTED = (18, 22, 26)  # repetitions; a text of so few takes less than ``_DOUBLED`` seconds,
_DOUBLED = 2e-3  # or else each more of them doubles the time
_LOOKS = 3  # a busy machine makes a text slow once


class Found(NamedTuple):
    """A pattern, where it stands, and the methods it is called by."""

    pattern: Pattern
    where: str
    methods: set[str]


def patterns_of_package() -> list[Found]:
    """Return the patterns in module globals and classes, and those written in calls of ``re``."""
    found: dict[tuple[Any, int], Found] = {}
    named: dict[str, set[tuple[Any, int]]] = {}
    trees = []
    for module in _modules():
        tree = ast.parse(Path(str(module.__file__)).read_text())
        trees.append((module, tree))
        for call in ast.walk(tree):
            if isinstance(call, ast.Call) and _is_call_of_re(call):
                pattern = _compile(call, vars(module))
                if pattern is not None:
                    where = f"{module.__name__}:{call.lineno}"
                    one = found.setdefault(_key(pattern), Found(pattern, where, set()))
                    one.methods.update({call.func.attr} - {"compile"})  # type: ignore[attr-defined]
        for name, value in vars(module).items():
            for pattern in _patterns_in(value):
                where = f"{module.__name__}.{name}"
                found.setdefault(_key(pattern), Found(pattern, where, set()))
                named.setdefault(name, set()).add(_key(pattern))
    for module, tree in trees:
        for name, method in _uses(tree, named):
            own = {_key(pattern) for pattern in _patterns_in(vars(module).get(name))}
            for key in own if name in vars(module) else named[name]:
                found[key].methods.add(method)
    return list(found.values())


def slow_texts(pattern: Pattern, methods: set[str]) -> Iterator[str]:
    """Yield a description of each text whose time grows faster than its length."""
    for method in {_run_by(name) for name in methods or {"search"}}:
        for before, pumped, after in _hostile(pattern):
            if all(_is_slow(pattern, method, before, pumped, after) for _ in range(_LOOKS)):
                yield f"{method}: {before!r} + {pumped!r} * n + {after!r}"


def _modules() -> Iterator[Any]:
    for module in pkgutil.walk_packages(catalog.__path__, "catalog."):
        spec = module.module_finder.find_spec(module.name, None)  # type: ignore[call-arg]
        if spec is None or spec.origin is None or ".migrations" in module.name:
            continue
        if "import re\n" in Path(spec.origin).read_text() and "__main__" not in module.name:
            yield importlib.import_module(module.name)


def _is_call_of_re(call: ast.Call) -> bool:
    function = call.func
    return (
        isinstance(function, ast.Attribute)
        and isinstance(function.value, ast.Name)
        and function.value.id == "re"
        and function.attr in _METHODS | {"compile"}
    )


def _compile(call: ast.Call, names: dict[str, Any]) -> Pattern | None:
    """Compile the pattern of a call; ``None`` for one made of local variables."""
    given = [argument.value for argument in call.keywords if argument.arg == "flags"]
    if isinstance(call.func, ast.Attribute) and call.func.attr == "compile":
        given += call.args[1:]
    try:
        text, *flags = (
            eval(compile(ast.Expression(one), "pattern", "eval"), names)
            for one in (call.args[0], *given)
        )
    except NameError:
        return None
    return re.compile(text, *flags)


def _key(pattern: Pattern) -> tuple[Any, int]:
    return pattern.pattern, pattern.flags


def _patterns_in(value: object, depth: int = 0) -> Iterator[Pattern]:
    if isinstance(value, re.Pattern):
        yield value
    elif depth < 4 and isinstance(value, dict):
        for one in (*value.keys(), *value.values()):
            yield from _patterns_in(one, depth + 1)
    elif depth < 4 and isinstance(value, list | tuple | set | frozenset):
        for one in value:
            yield from _patterns_in(one, depth + 1)
    elif depth < 4 and isinstance(value, type) and value.__module__.startswith("catalog"):
        for one in list(vars(value).values()):
            yield from _patterns_in(one, depth + 1)


def _uses(tree: ast.AST, named: dict[str, set[Any]]) -> Iterator[tuple[str, str]]:
    """Yield how each name of a pattern is used: the method, or ``search`` if it is passed on."""
    above = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(tree):
        name = getattr(node, "id", getattr(node, "attr", ""))
        if name not in named or not isinstance(getattr(node, "ctx", None), ast.Load):
            continue
        user = above[node]
        while isinstance(user, ast.Subscript):
            user = above[user]
        attribute = user.attr if isinstance(user, ast.Attribute) else ""
        if attribute not in ("pattern", "flags"):
            yield name, attribute if attribute in _METHODS else "finditer"


def _run_by(method: str) -> str:
    return method if method in ("match", "fullmatch", "search") else "finditer"


def _hostile(pattern: Pattern) -> list[tuple[Text, Text, Text]]:
    """Return (beginning, what to repeat, end) for a pattern, of its own letters and parts."""
    source = pattern.pattern
    tree = _parser.parse(source, pattern.flags & ~re.DEBUG)
    pumps: dict[tuple[str, str], None] = {}
    for before, body in dict.fromkeys(_bodies(tree)):
        pumps |= dict.fromkeys([(before, body), ("", before + body), ("", before)])
    whole = _sample(tree)
    letters = list(dict.fromkeys([*_letters(tree), " ", "a", "\n"]))
    pairs = itertools.permutations(letters[:_PAIRED], 2)
    single = [whole, whole[:-1], *letters[:_LETTERS], *map("".join, pairs)]
    texts = [(*pump, end) for pump in pumps for end in ("", "\0") if pump[1]]
    texts += [("", one, "\0") for one in dict.fromkeys(single) if one]
    if isinstance(source, bytes):
        return [tuple(part.encode("latin-1") for part in text) for text in texts]  # type: ignore[misc]
    return texts


def _some(items: list[Any]) -> list[str]:
    """Return some characters of a class."""
    inside: list[str] = []
    for kind, value in items:
        if kind is op.LITERAL:
            inside.append(chr(value))
        elif kind is op.RANGE:
            inside.append(chr(value[0]))
        elif kind is op.CATEGORY:
            inside += _SAMPLES[value]
    if items[0][0] is not op.NEGATE:
        return list(dict.fromkeys(inside))
    return [one for one in "a1 .\n-\"'<{[(x" if one not in inside][:4]


def _inner(kind: Any, value: Any) -> list[Any]:
    """Return the parts that a part of a parsed pattern is made of."""
    if kind in _REPEATS:
        return [value[2]]
    if kind is op.BRANCH:
        return list(value[1])
    if kind is op.SUBPATTERN:
        return [value[3]]
    if kind is op.ATOMIC_GROUP:
        return [value]
    if kind is op.GROUPREF_EXISTS:
        return [part for part in value[1:] if part]
    return []


def _sample(parts: Any) -> str:
    """Return a short text that the parts match, or nearly."""
    text = ""
    for kind, value in parts:
        if kind is op.LITERAL:
            text += chr(value)
        elif kind is op.IN:
            text += _some(value)[0]
        elif kind in (op.ANY, op.NOT_LITERAL):
            text += "a"
        elif inner := _inner(kind, value):
            text += _sample(inner[0]) * (value[0] if kind in _REPEATS else 1)
    return text


def _letters(parts: Any) -> Iterator[str]:
    for kind, value in parts:
        if kind in (op.LITERAL, op.NOT_LITERAL):
            yield chr(value)
        elif kind is op.IN:
            yield from _some(value)[:3]
            yield from (chr(code) for one, code in value if one is op.LITERAL)
        asserted = [value[1]] if kind in (op.ASSERT, op.ASSERT_NOT) else []
        for inner in (*_inner(kind, value), *asserted):
            yield from _letters(inner)


def _bodies(parts: Any, before: str = "") -> Iterator[tuple[str, str]]:
    """Yield what may be repeated, each with a text that leads up to it."""
    for kind, value in parts:
        if kind in _REPEATS and value[1] > _LARGE:
            first = value[2][0]
            is_class = len(value[2]) == 1 and first[0] is op.IN
            for body in _some(first[1])[:4] if is_class else [_sample(value[2])]:
                yield before, body
        for inner in _inner(kind, value):
            yield from _bodies(inner, before)
        before += _sample([(kind, value)])


def _is_slow(pattern: Pattern, method: str, before: Text, pumped: Text, after: Text) -> bool:
    def seconds(size: int, runs: int = 1) -> float:
        text = before + pumped * max(1, size // len(pumped)) + after
        return min(_time(_runner(pattern, method), text) for _ in range(runs))

    for count in _NESTED:
        if seconds(count * len(pumped)) > _DOUBLED and seconds(count * len(pumped), 2) > _DOUBLED:
            return True
    if any(seconds(_SIZE // part) > _SLOW for part in (16, 4)):  # a cube would run for minutes
        return True
    if seconds(_SIZE) < _FREE:
        return False
    for runs in (1, 3):
        small, large = seconds(_SIZE // 4, runs), seconds(_SIZE, runs)
        if large < _GROWTH * small or large < _FREE:
            return False
    return large > _SLOW or seconds(4 * _SIZE, 2) > _GROWTH * large


def _runner(pattern: Pattern, method: str) -> Callable[[Text], object]:
    if method != "finditer":
        return getattr(pattern, method)  # type: ignore[no-any-return]
    return lambda text: sum(1 for _ in pattern.finditer(text))


def _time(run: Callable[[Text], object], text: Text) -> float:
    begin = time.thread_time()
    run(text)
    return time.thread_time() - begin
