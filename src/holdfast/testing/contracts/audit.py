"""What every audit trail does. Subclass AuditContract with a `store` fixture."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from holdfast.deadletter.audit import Action, AuditFilter, chained, verify
from holdfast.deadletter.store import DeskStore
from holdfast.errors import BadInput
from holdfast.testing.contracts.changes import an_action, recorded


class AuditContract:
    async def test_entries_are_chained(self, store: DeskStore) -> None:
        first = await store.append(an_action("one"))
        second = await store.append(an_action("two", count=3, share=0.1, who="naïve 💥", big=10**30, nothing=None))
        assert first == chained(1, first.action, "0" * 64)
        assert second == chained(2, second.action, first.hash)
        assert [entry async for entry in store.read_entries()] == [first, second]
        verdict = await verify(store.read_entries())
        assert (verdict.number, verdict.head, verdict.problem) == (2, second.hash, "")

    async def test_an_empty_trail_is_sound(self, store: DeskStore) -> None:
        assert (await verify(store.read_entries())).problem == ""
        assert (await store.list_entries(AuditFilter(), 10)).entries == []

    @pytest.mark.parametrize("number", [1e22, 1e-7, -0.0, 1.0, 2**53 + 1, 5e-324])
    async def test_numbers_stay_what_they_are(self, store: DeskStore, number: float) -> None:
        await store.append(an_action("numbers", number=number, deep={"list": [number]}))
        assert (await verify(store.read_entries())).problem == ""

    @pytest.mark.parametrize("text", ["\x00", "\uf8ff", "\uf8ff0", "'", "\\", "💥"])
    async def test_odd_texts_stay_what_they_are(self, store: DeskStore, text: str) -> None:
        await store.append(Action(text, text, text, {text: text}, 7))
        [entry] = [entry async for entry in store.read_entries()]
        assert entry.action == Action(text, text, text, {text: text}, 7)
        assert (await verify(store.read_entries())).problem == ""

    async def test_many_who_append_at_once_make_one_chain(self, store: DeskStore) -> None:
        rows = [await recorded(store, str(number)) for number in range(20)]
        await asyncio.gather(
            *(store.append(an_action(f"append {number}")) for number in range(20)),
            *(store.save([row.hold(True)], an_action("save")) for row in rows),
        )
        verdict = await verify(store.read_entries())
        assert (verdict.number, verdict.problem) == (40, "")

    async def test_more_entries_than_are_read_at_once(self, store: DeskStore) -> None:
        for start in range(0, 1200, 100):
            await asyncio.gather(*(store.append(an_action(str(start + number))) for number in range(100)))
        verdict = await verify(store.read_entries())
        assert (verdict.number, verdict.problem) == (1200, "")

    async def test_what_was_done_to_one_failure_is_also_what_was_done_to_many(self, store: DeskStore) -> None:
        for name in ("1-500,502", "7", "501", "8-9", "40-41,4,70"):
            await store.append(Action("me", name, "failures", {"failures": name}, 5))
        await store.append(Action("me", "its own", "failures/4", {}, 5))
        await store.append(Action("me", "another", "failures/41", {}, 5))
        await store.append(Action("me", "created", "replays/4", {"failures": "4"}, 5))
        await store.append(Action("me", "all", "failures", {"count": 9}, 5))

        async def names(target: str, size: int = 100) -> list[str]:
            found: list[str] = []
            token = ""
            while True:
                page = await store.list_entries(AuditFilter(target=target), size, token)
                found += [entry.action.name for entry in page.entries]
                token = page.next_page_token
                if not token:
                    return found

        for size in (1, 2, 100):
            assert await names("failures/4", size) == ["its own", "40-41,4,70", "1-500,502"]
        assert await names("failures/501") == ["501"]
        assert await names("failures/503") == []
        assert await names("failures/x") == []
        assert len(await names("failures")) == 6

    async def test_filters_and_pages(self, store: DeskStore) -> None:
        for number in range(1, 7):
            action = replace(an_action("odd" if number % 2 else "even"), actor=f"a{number % 3}", at_ns=number)
            await store.append(action)

        async def numbers(wanted: AuditFilter) -> list[int]:
            return [entry.number for entry in (await store.list_entries(wanted, 100)).entries]

        assert await numbers(AuditFilter()) == [6, 5, 4, 3, 2, 1]
        assert await numbers(AuditFilter(name="odd")) == [5, 3, 1]
        assert await numbers(AuditFilter(actor="a0")) == [6, 3]
        assert await numbers(AuditFilter(target="something", since_ns=2, until_ns=5)) == [4, 3, 2]
        assert await numbers(AuditFilter(actor="a0", name="even")) == [6]
        assert await numbers(AuditFilter(actor="' OR '1'='1")) == []
        first = await store.list_entries(AuditFilter(name="odd"), 2)
        await store.append(an_action("odd"))
        second = await store.list_entries(AuditFilter(name="odd"), 2, first.next_page_token)
        assert ([entry.number for entry in second.entries], second.next_page_token) == ([1], "")
        with pytest.raises(BadInput, match="pageToken"):
            await store.list_entries(AuditFilter(), 2, "x")
