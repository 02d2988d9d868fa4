"""Feed every parser of request text with long hostile texts; run in a child process.

A parser that takes over a second of CPU for one text, some twenty times what the slowest needs,
ends the process by a signal.

Prints each parser and text before it is parsed: the last line names the one that did not end.
Arguments: characters of each text, seed (0: the known units alone).
"""

import random
import signal
import sys
from contextlib import suppress

from mcp.shared.exceptions import MCPError

from catalog.core.arguments import read_params
from catalog.core.dates import parse_date
from catalog.core.errors import CatalogError
from catalog.core.filters import file_type_filter, name_filter, parse_expression, parse_filters
from catalog.core.globs import Glob
from catalog.core.params import GetParams, MultiGetParams, SearchParams
from catalog.core.query import parse_query
from catalog.core.text import all_storable, clean, strip_userinfo
from catalog.interfaces.plain_text import complaint, one_line
from catalog.interfaces.server.security import parse_address, split_host_port
from catalog.interfaces.tools import TOOLS, failed, unknown_tool
from catalog.library.names import readings, without_seconds

PARSERS = {
    "expression": parse_expression,
    "value of text": lambda text: parse_expression(f"tags={text}"),
    "value of any type": lambda text: parse_expression(f"size>={text}"),
    "filters": lambda text: parse_filters({text: text}),
    "file type": file_type_filter,
    "name": name_filter,
    "query": lambda text: parse_query(text, max_chars=2000),
    "long query": lambda text: parse_query(text, max_chars=100_000),
    "typed query": lambda text: parse_query(f"lex: a {text}", max_chars=2000),
    "date": parse_date,
    "glob": Glob.compile,
    "reference": lambda text: [*readings(text)],
    "header": lambda text: [*readings(f"@@ {text} @@")],
    "citation": lambda text: [*readings(f"[source: {text}, page 1 of {text}]")],
    "address of a link": lambda text: without_seconds(f"http://x/?{text}"),
    "link": lambda text: [*readings(f"http://x/?{text}")],
    "search arguments": lambda text: read_params(SearchParams, {"query": 1, text: 1}, "search"),
    "get arguments": lambda text: read_params(GetParams, {"reference": 1, "dataset": text}, "get"),
    "many names": lambda text: read_params(MultiGetParams, {"patterns": [*text]}, "multi_get"),
    "arguments of a tool": lambda text: TOOLS["search_chunks"].read({"query": text, "docs": text}),
    "unknown tool": unknown_tool,
    "failed call": failed,
    "address": parse_address,
    "host": split_host_port,
    "user in address": strip_userinfo,
    "stored": all_storable,
    "cleaned": clean,
    "line": one_line,
    "complaint": complaint,
}
UNITS = (
    *("|", '"', "a", " ", "1", "/", ":", "*", "-", "\n", "[", "://", " / ", "\u0301\u0327", "(a"),
    *("\x1b[", '"|', " file", ":1-", "a:b@", "#", "[a-", "lex:", "t=1&", ", page 1", "<", "%"),
    "\ud800",
)
ENDS = (("", ""), ("", '"'), ("", "b"), ("a", "b"))


def texts(size, seed):
    """Return hostile texts of about ``size`` characters."""
    if not seed:
        return [a + unit * (size // len(unit)) + b for unit in UNITS for a, b in ENDS]
    draw = random.Random(seed)  # for texts, not for secrets
    units = ["".join(draw.choices(UNITS, k=draw.randint(1, 3))) for _ in range(40)]
    return [draw.choice(UNITS) + unit * (size // len(unit)) + draw.choice(UNITS) for unit in units]


def main():
    size, seed = map(int, sys.argv[1:])
    for text in texts(size, seed):
        for name, parse in PARSERS.items():
            print(f"{name}: {text[:12]!a}…{text[-2:]!a}", flush=True)
            signal.setitimer(signal.ITIMER_PROF, 1.0)
            with suppress(CatalogError, MCPError):
                parse(text)
            signal.setitimer(signal.ITIMER_PROF, 0)
    print("all parsed")


if __name__ == "__main__":
    main()
