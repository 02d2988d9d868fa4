"""Small Excel files, made of their XML."""

import io
import zipfile
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from xml.sax.saxutils import escape

Cell = str | float | int | bool | date | None
Rows = Sequence[Sequence[Cell]]
MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
LINKS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
STYLES = (
    f'<styleSheet xmlns="{MAIN}"><cellXfs><xf numFmtId="0"/><xf numFmtId="14"/>'
    '<xf numFmtId="22"/></cellXfs></styleSheet>'
)


def letters(column: int) -> str:
    return (letters(column // 26 - 1) if column >= 26 else "") + chr(65 + column % 26)


def cell(at: str, value: Cell) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return f'<c r="{at}" t="b"><v>{int(value)}</v></c>'
    if isinstance(value, date):
        days = datetime.fromisoformat(value.isoformat()) - datetime(1899, 12, 30)
        style = 2 if isinstance(value, datetime) else 1
        return f'<c r="{at}" s="{style}"><v>{days.total_seconds() / 86400}</v></c>'
    if isinstance(value, str) and value.startswith("="):
        formula, _, saved = value[1:].partition("→")
        return f'<c r="{at}"><f>{formula}</f><v>{saved}</v></c>'
    if isinstance(value, str):
        return f'<c r="{at}" t="inlineStr"><is><t>{escape(value)}</t></is></c>'
    return f'<c r="{at}"><v>{value!r}</v></c>'


def sheet_xml(rows: Rows, merged: Sequence[str] = (), first: int = 1) -> str:
    lines = (
        f'<row r="{number}">'
        + "".join(cell(f"{letters(at)}{number}", value) for at, value in enumerate(row))
        + "</row>"
        for number, row in enumerate(rows, first)
    )
    merges = "".join(f'<mergeCell ref="{one}"/>' for one in merged)
    merges = f"<mergeCells>{merges}</mergeCells>" if merged else ""
    return f'<worksheet xmlns="{MAIN}"><sheetData>{"".join(lines)}</sheetData>{merges}</worksheet>'


def workbook(
    sheets: Mapping[str, Rows | str], hidden: Sequence[str] = (), **parts: str | bytes
) -> bytes:
    """An Excel file with these sheets, as rows or as XML."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        named, links = "", ""
        for number, (name, rows) in enumerate(sheets.items(), 1):
            state = ' state="hidden"' if name in hidden else ""
            named += f'<sheet name="{escape(name)}" sheetId="{number}" r:id="s{number}"{state}/>'
            links += (
                f'<Relationship Id="s{number}" Type="{LINKS}/worksheet" Target="s{number}.xml"/>'
            )
            content = rows if isinstance(rows, str) else sheet_xml(rows)
            archive.writestr(f"xl/s{number}.xml", content)
        links += f'<Relationship Id="y" Type="{LINKS}/styles" Target="styles.xml"/>'
        relations = "http://schemas.openxmlformats.org/package/2006/relationships"
        archive.writestr(
            "xl/workbook.xml",
            f'<workbook xmlns="{MAIN}" xmlns:r="{LINKS}"><sheets>{named}</sheets></workbook>',
        )
        archive.writestr(
            "xl/_rels/workbook.xml.rels",
            f'<Relationships xmlns="{relations}">{links}</Relationships>',
        )
        archive.writestr("[Content_Types].xml", "<Types/>")
        archive.writestr(
            "_rels/.rels",
            f'<Relationships xmlns="{relations}"><Relationship Id="w" '
            f'Type="{LINKS}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        )
        for name, content in {"xl__styles_dot_xml": STYLES, **parts}.items():
            archive.writestr(name.replace("__", "/").replace("_dot_", "."), content)
    return packed.getvalue()
