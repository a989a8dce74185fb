"""House rules that no linter checks."""

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "src").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))

# Put together from parts, so that this file does not contain what it looks for.
HOSTS = [
    r"\.".join(parts)
    for parts in [("pypi", "org"), ("pythonhosted", "org"), ("npmjs", "org"), ("deb", "debian", "org")]
]
FOLDERS = "home|opt|root|work"
MACHINE = re.compile(rf"{'|'.join(HOSTS)}|(?:(?<![\w.~/<>}}-])|(?<=://))/(?:{FOLDERS})\b")


def undocumented_tests(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if name.startswith("test"):
                if not ast.get_docstring(node):
                    yield f"{path.relative_to(ROOT)}:{node.lineno} {name}"


def repository_files() -> list[Path]:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    return [path for name in listed.split("\0") if name and (path := ROOT / name).is_file()]


def test_every_module_says_what_it_is_for() -> None:
    """Every source and test module opens with a docstring."""
    modules = [path for path in SOURCES + TESTS if not ast.get_docstring(ast.parse(path.read_text("utf-8")))]
    assert [str(path.relative_to(ROOT)) for path in modules] == []


def test_every_test_states_its_property() -> None:
    """Every test function and method has a docstring."""
    assert [name for path in TESTS for name in undocumented_tests(path)] == []


def test_no_file_names_a_registry_or_a_machine() -> None:
    """No file holds the host name of a package registry or a path that exists on one machine only."""
    found = {
        str(path.relative_to(ROOT)): match.group()
        for path in repository_files()
        if (match := MACHINE.search(path.read_text("utf-8", errors="ignore")))
    }
    assert found == {}
