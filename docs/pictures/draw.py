"""Draw the pictures of README and docs/ with the real program: ``python docs/pictures/draw.py``.

Searches are written as SVG by rich, the report is photographed by Chromium where there is one. The
documents are pages of the Python reference that come with Python, and the lecture of
``docs/how-to/lectures.md``.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

PICTURES = Path(__file__).parent
ROOT = PICTURES.parents[1]
README = ROOT / "README.md"
LECTURES = ROOT / "docs" / "how-to" / "lectures.md"
WIDTH = 92  # columns
# Medians in milliseconds, of the table in docs/evidence/speed.md.
PASSAGES = (10_000, 50_000, 200_000, 1_000_000)
MEDIANS = {
    "lexical ms": (4.2, 4.7, 5.9, 10.1),
    "vector ms": (9.5, 11.8, 17.0, 39.3),
    "hybrid ms": (10.8, 11.9, 17.0, 39.7),
}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        pages, _ = re.findall(r"```python\n(from pathlib.*?)```", README.read_text(), re.DOTALL)
        subprocess.run([sys.executable, "-c", pages], cwd=place, check=True)
        run(place, "index build python --dataset python")
        draw(place, "search", 'search "how is an exception chained to its cause" --top-k 2')
        photograph(place)
        photograph_page(place)
        written = re.findall(r'```text title="([^"]+)"\n(.*?)```', LECTURES.read_text(), re.DOTALL)
        for name, text in written:
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_text(text)
        run(place, "index build vault --dataset vault --preset vault")
        question = "when do they introduce batch normalisation"
        draw(place, "evidence", f'search "{question}" --dataset vault --preset vault --top-k 1')
    sys.path.insert(0, str(ROOT / "benchmarks"))
    from plot import draw_growth

    caption = "p50 of a whole search by number of passages, two quiet cores, 2026-11-24"
    draw_growth(PICTURES / "growth.svg", PASSAGES, MEDIANS, caption)


def run(place: Path, arguments: str) -> str:
    """Run ``catalog`` in a folder, as in a terminal of that width, and return what it printed."""
    told = subprocess.run(
        ["sh", "-c", f"'{sys.executable}' -m catalog {arguments}"],
        cwd=place,
        env=environment(place),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return told.stdout


def environment(place: Path) -> dict[str, str]:
    return {"IDX_HOME": str(place / "store"), "COLUMNS": str(WIDTH), "PATH": "/usr/bin:/bin"}


def draw(place: Path, name: str, arguments: str) -> None:
    """Write a command and its output as SVG, without fonts from elsewhere."""
    with (place / "unseen").open("w") as unseen:
        console = Console(record=True, width=WIDTH, file=unseen, legacy_windows=False)
        console.print(Text(f"$ catalog {arguments}", style="bold green"))
        console.print(Text(run(place, arguments).rstrip()))
        form = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
        drawn = console.export_svg(title="catalog", code_format=form, unique_id=name)
    text = "\n".join(line.rstrip() for line in drawn.splitlines())
    (PICTURES / f"{name}.svg").write_text(text + "\n", encoding="utf-8")


def photograph(place: Path) -> None:
    """Write the report of a comparison as PNG, if Chromium is installed."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        sys.stderr.write("no Chromium: report.png stays as it was\n")
        return
    questions = ROOT / "examples" / "questions.jsonl"
    run(place, f"compare --dataset python --golden {questions} --report report.html")
    take_picture(browser, "report", str(place / "report.html"), "1000,640")


def photograph_page(place: Path) -> None:
    """Write the search page with an open document as PNG, if Chromium is installed."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        sys.stderr.write("no Chromium: page.png stays as it was\n")
        return
    command = [sys.executable, "-m", "catalog", "serve", "--http", "127.0.0.1:0"]
    with subprocess.Popen(
        command, cwd=place, stdout=subprocess.PIPE, text=True, env=environment(place)
    ) as server:
        assert server.stdout is not None
        address = server.stdout.readline().split(" on ")[1].split()[0]
        question = "how+is+an+exception+chained+to+its+cause"
        opened = "doc=python:raise.rst&first=1&last=83"
        take_picture(browser, "page", f"{address}/?q={question}&{opened}", "1240,660")
        server.terminate()


def take_picture(browser: str, name: str, address: str, size: str) -> None:
    options = ["--headless", "--no-sandbox", "--hide-scrollbars", f"--window-size={size}"]
    target = f"--screenshot={PICTURES / name}.png"
    subprocess.run([browser, *options, target, address], check=True)
    with Image.open(PICTURES / f"{name}.png") as picture:  # 64 colours: a third of the bytes
        picture.convert("RGB").quantize(64).save(PICTURES / f"{name}.png", optimize=True)


if __name__ == "__main__":
    main()
