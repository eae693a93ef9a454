"""Virtual services: an asyncio handler, bound at an address of every Subnet.

Handlers see asyncio objects and the registry, never the packet plane or the insides of a stack.
"""

from juneau.model.ids import Protocol
from juneau.services.datagrams import PacketHandler, PacketRequest, Responder
from juneau.services.framework import (
    FunctionService,
    Listener,
    ServiceContext,
    VirtualService,
    reserved_address,
    service_mac,
)
from juneau.services.host import ServiceError, ServiceHost, Status
from juneau.services.limits import TcpLimits, UdpLimits
from juneau.services.load import LoadError, load_service, load_services
from juneau.services.metrics import Metrics
from juneau.services.registry import (
    AlreadyBound,
    BindError,
    Binding,
    EndpointBinding,
    InvalidSpec,
    Registry,
    ServerBinding,
    TenantStack,
    VipMaps,
)
from juneau.services.streams import StreamHandler

__all__ = [
    "AlreadyBound",
    "BindError",
    "Binding",
    "EndpointBinding",
    "FunctionService",
    "InvalidSpec",
    "Listener",
    "LoadError",
    "Metrics",
    "PacketHandler",
    "PacketRequest",
    "Protocol",
    "Registry",
    "Responder",
    "ServerBinding",
    "ServiceContext",
    "ServiceError",
    "ServiceHost",
    "Status",
    "StreamHandler",
    "TcpLimits",
    "TenantStack",
    "UdpLimits",
    "VipMaps",
    "VirtualService",
    "load_service",
    "load_services",
    "reserved_address",
    "service_mac",
]
