"""Every store of the desk keeps every contract: a SQLite file, SQLite in memory, and PostgreSQL."""

from __future__ import annotations

import pytest

from holdfast.deadletter.store import DeskStore
from holdfast.testing.contracts.audit import AuditContract
from holdfast.testing.contracts.changes import ChangeContract
from holdfast.testing.contracts.failures import DurableFailureStoreContract, FailureStoreContract
from holdfast.testing.contracts.groups import GroupContract
from holdfast.testing.contracts.places import PlaceContract
from holdfast.testing.contracts.replays import ReplayContract
from holdfast.testing.contracts.selections import SelectionContract
from holdfast.testing.contracts.statistics import StatisticsContract


class TestFailures(FailureStoreContract):
    pass


class TestDurableFailures(DurableFailureStoreContract):
    @pytest.fixture
    def store(self, durable: DeskStore) -> DeskStore:
        return durable


class TestSelections(SelectionContract):
    pass


class TestChanges(ChangeContract):
    pass


class TestGroups(GroupContract):
    pass


class TestPlaces(PlaceContract):
    pass


class TestReplays(ReplayContract):
    pass


class TestAudit(AuditContract):
    pass


class TestStatistics(StatisticsContract):
    pass
