"""google.iam.v1.IAMPolicy: policies are kept and read back; nothing is allowed or denied by them."""

from __future__ import annotations

import hashlib
from typing import Any

from google.iam.v1 import iam_policy_pb2, policy_pb2

from holdfast.api.grpc.methods import Method
from holdfast.broker.service import Broker
from holdfast.errors import FailedPrecondition

SERVICE = "google.iam.v1.IAMPolicy"

_pb: Any = iam_policy_pb2
_Policy: Any = policy_pb2.Policy


class Policies:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def methods(self) -> dict[str, Method]:
        return {
            "SetIamPolicy": Method(_pb.SetIamPolicyRequest, self.set_policy),
            "GetIamPolicy": Method(_pb.GetIamPolicyRequest, self.get_policy),
            "TestIamPermissions": Method(_pb.TestIamPermissionsRequest, self.test_permissions),
        }

    async def set_policy(self, request: Any) -> Any:
        """An etag in the request must be the current one: two people who edit at once do not overwrite each other."""
        current = _with_etag(self._broker.get_policy(request.resource))
        policy = request.policy
        if policy.etag and policy.etag != current.etag:
            raise FailedPrecondition("the policy was changed meanwhile: its etag is another one now")
        policy.ClearField("etag")
        await self._broker.set_policy(request.resource, policy.SerializeToString(deterministic=True))
        return _with_etag(self._broker.get_policy(request.resource))

    async def get_policy(self, request: Any) -> Any:
        return _with_etag(self._broker.get_policy(request.resource))

    async def test_permissions(self, request: Any) -> Any:
        """Everybody may do everything here."""
        self._broker.get_policy(request.resource)
        return _pb.TestIamPermissionsResponse(permissions=request.permissions)


def _with_etag(stored: bytes) -> Any:
    policy = _Policy.FromString(stored)
    policy.etag = hashlib.sha256(stored).digest()[:8]
    return policy
