"""Write requests and write results of the store contract."""

from __future__ import annotations

from typing import Any

import pytest

from omoide import Entry, WriteRequest, WriteResult
from omoide.errors import Invalid, InvalidRecord

TEA = Entry(id="tea", agent_id="ada", content="Tea.", created_at=1)


def test_a_request_needs_an_entry() -> None:
    """The rest has defaults: no expectation, no key, no deduplication."""
    request = WriteRequest.new(entry=TEA)
    assert (request.entry, request.metadata, request.expected_rev) == (TEA, {}, None)
    assert (request.idempotency_key, request.dedupe, request.supersedes) == (None, False, None)
    with pytest.raises(InvalidRecord, match=r"^invalid memory write request: entry is missing"):
        WriteRequest.new()


def test_the_entry_may_be_a_mapping() -> None:
    """It becomes an entry, and a wrong one is refused as such."""
    given = {"id": "tea", "agent_id": "ada", "content": "Tea.", "created_at": 1}
    assert WriteRequest.new(entry=given).entry == TEA
    assert WriteRequest.new({"entry": given}).entry == TEA
    for wrong in ({"agent_id": "ada"}, {"agent_id": "ada", "content": ""}, {**given, "id": ""}, {}):
        with pytest.raises(InvalidRecord, match=r"^invalid memory entry: "):
            WriteRequest.new(entry=wrong)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("entry", None),
        ("entry", "Tea."),
        ("expected_rev", -1),
        ("expected_rev", "1"),
        ("idempotency_key", ""),
        ("idempotency_key", "a\0"),
        ("dedupe", "yes"),
        ("supersedes", ""),
        ("supersedes", "tea"),
        ("metadata", "text"),
        ("colour", "red"),
    ],
    ids=lambda part: repr(part)[:24],
)
def test_a_wrong_request_says_what_is_wrong(field: str, value: Any) -> None:
    """The error names the record and the field; an entry cannot replace itself."""
    with pytest.raises(Invalid) as caught:
        WriteRequest.new({"entry": TEA, field: value})
    assert str(caught.value).startswith("invalid memory write request: ")
    assert caught.value.field.startswith(field)
    assert caught.value.remedy


def test_a_receipt_says_ok_and_what_became_of_the_request() -> None:
    """Its status is ok, always: a refusal is an error and no receipt."""
    receipt = WriteResult.new(request={"entry": TEA}, entry=TEA.replace(rev=2))
    assert (receipt.status, receipt.outcome, receipt.metadata) == ("ok", "stored", {})
    assert (receipt.id, receipt.rev) == ("tea", 2)
    assert WriteResult.from_json(receipt.to_json()) == receipt


@pytest.mark.parametrize(
    "fields",
    [{"status": "error"}, {"status": None}, {"outcome": "lost"}, {"entry": "Tea."}, {"request": TEA}],
    ids=str,
)
def test_a_wrong_receipt_is_refused(fields: dict[str, Any]) -> None:
    """A store cannot make one that means something else."""
    whole = {"request": WriteRequest(entry=TEA), "entry": TEA, **fields}
    with pytest.raises(InvalidRecord, match=r"^invalid memory write result: "):
        WriteResult.new(whole)
    for missing in ("request", "entry"):
        with pytest.raises(InvalidRecord, match=f"^invalid memory write result: {missing} is missing"):
            WriteResult.new({name: value for name, value in whole.items() if name != missing})


def test_records_are_made_from_themselves() -> None:
    """A request or receipt passed through `new` is the same."""
    request = WriteRequest(entry=TEA)
    assert WriteRequest.new(request) == request
    receipt = WriteResult(request=request, entry=TEA)
    assert WriteResult.new(receipt) == receipt
