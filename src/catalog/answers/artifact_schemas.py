"""What each kind of artifact consists of, and whether a model's Markdown has just that."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from catalog.core.params import ArtifactKind

SCHEMAS: Mapping[ArtifactKind, Mapping[str, str]] = {
    "blueprint": {
        "# Overview": "what is {topic}",
        "## Goals": "what are the goals of {topic}",
        "## Architecture": "what is the architecture of {topic}",
        "## Features": "which features does {topic} have",
        "## Risks": "what are the risks of {topic}",
        "## Next Steps": "what are the next steps for {topic}",
    },
    "pdr": {
        "# Summary": "what is {topic}",
        "## Problem": "which problem does {topic} solve",
        "## Users": "who are the users of {topic}",
        "## Requirements": "what are the requirements of {topic}",
        "## Design": "what is the design of {topic}",
        "## Constraints": "what are the limits of {topic}",
        "## Open Questions": "which questions about {topic} are open",
    },
    "workflow": {
        "# Purpose": "what is the purpose of {topic}",
        "## Roles": "who is responsible for {topic}",
        "## Inputs": "what is needed before {topic}",
        "## Steps": "what are the steps of {topic}",
        "## Outputs": "what is the result of {topic}",
        "## Exceptions": "what can fail in {topic}",
    },
    "build-plan": {
        "# Scope": "what is {topic}",
        "## Milestones": "what are the milestones of {topic}",
        "## Tasks": "what are the tasks of {topic}",
        "## Dependencies": "what does {topic} depend on",
        "## Testing": "how is {topic} tested",
        "## Risks": "what are the risks of {topic}",
    },
}
"""Of each kind, its headings in order, and the question that finds what a section is made of."""
MAX_TOKENS: Mapping[ArtifactKind, int] = {
    "blueprint": 1600,
    "pdr": 2000,
    "workflow": 1200,
    "build-plan": 1600,
}
"""How long a model may write each kind, in its tokens."""
_HEADING = re.compile(r"(#{1,6})[ \t]+(\S.*)")
_FENCE = re.compile(r"\s*```\w*\s*")
_DECORATION = " \t*_:#"


def split_sections(text: str) -> list[tuple[str, str]]:
    """Return each heading of a Markdown text, plain, and what stands under it.

    What stands before the first is under the heading "". Fences of code around all are left out.
    """
    sections: list[tuple[str, list[str]]] = [("", [])]
    for line in text.splitlines():
        heading = _HEADING.fullmatch(line.strip())
        if heading is not None:
            sections.append((f"{heading[1]} {heading[2].strip(_DECORATION)}", []))
        elif not _FENCE.fullmatch(line):
            sections[-1][1].append(line)
    bodies = [(heading, "\n".join(lines).strip()) for heading, lines in sections]
    return bodies if bodies[0][1] else bodies[1:]


def find_misses(headings: Sequence[str], schema: Sequence[str]) -> list[str]:
    """Say how headings differ from those of a schema: nothing if they are the same, in order."""
    misses = [f"{one} is missing" for one in schema if one not in headings]
    for at, one in enumerate(headings):
        if not one:
            misses.append(f"there is text before {schema[0]}")
        elif one not in schema:
            misses.append(f"{one} is no heading of it")
        elif one in headings[:at]:
            misses.append(f"{one} is there twice")
    if not misses and list(headings) != list(schema):
        misses.append(f"the order is not {', '.join(schema)}")
    return misses
