"""Documents for tests: PDF files made by hand, and a Markdown text."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO

from pypdf import PdfWriter

GUIDE = """\
# Guide

Omoide keeps what agents learn.

## Setup

The database is Postgres 18.

It needs 2 GB of memory.

## Ports

The service listens on port 8765.
"""


def make_pdf(
    pages: Sequence[Sequence[str]], outline: Sequence[tuple[str, int]] = (), password: str | None = None
) -> bytes:
    """A PDF file of pages with lines; the outline has titles with the numbers of their pages."""
    parts = [b"<< /Type /Catalog /Pages 2 0 R >>"]
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(len(pages)))
    parts.append(f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>".encode())
    parts.append(b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>")
    for number, lines in enumerate(pages):
        shown = " ".join(f"({line}) Tj T*" for line in lines)
        content = f"BT /F1 12 Tf 14 TL 72 720 Td {shown} ET".encode("latin-1")
        parts.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {5 + 2 * number} 0 R"
            " /Resources << /Font << /F1 3 0 R >> >> >>".encode()
        )
        parts.append(b"<< /Length %d >>\nstream\n%s\nendstream" % (len(content), content))
    data, places = bytearray(b"%PDF-1.4\n"), []
    for number, part in enumerate(parts, 1):
        places.append(len(data))
        data += b"%d 0 obj\n%s\nendobj\n" % (number, part)
    start = len(data)
    data += b"xref\n0 %d\n0000000000 65535 f \n" % (len(parts) + 1)
    data += b"".join(b"%010d 00000 n \n" % place for place in places)
    data += b"trailer << /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(parts) + 1, start)
    if not outline and password is None:
        return bytes(data)
    writer, written = PdfWriter(clone_from=BytesIO(bytes(data))), BytesIO()
    for title, page in outline:
        writer.add_outline_item(title, page - 1)
    if password is not None:
        writer.encrypt(password, algorithm="RC4-128")
    writer.write(written)
    return written.getvalue()
