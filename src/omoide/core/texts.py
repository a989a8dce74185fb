"""Is this text that can be kept?"""

from __future__ import annotations

from omoide.errors import Invalid, Unsupported, WrongType


def keepable(value: str, path: str) -> str:
    """The plain text of a string, if every store and codec can hold it."""
    if "\0" in value:
        raise Unsupported(path, "contains a NUL character", "remove it, or keep bytes")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Unsupported(path, "contains a lone surrogate", "decode the text properly first") from None
    return str.__str__(value)


def check_str(value: object, field: str) -> str:
    """Text that can be kept, empty or not."""
    if not isinstance(value, str):
        raise WrongType(field, "a string", value)
    return keepable(value, field)


def check_text(value: object, field: str, remedy: str = "pass non-empty text") -> str:
    """Text that can be kept and is not empty."""
    text = check_str(value, field)
    if not text.strip():
        raise Invalid(field, "is empty", remedy)
    return text
