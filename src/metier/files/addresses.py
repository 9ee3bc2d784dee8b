"""Which addresses are on the public internet. Everything that connects to a host that others named asks here."""

import ipaddress
from typing import Final

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_UNICAST: Final = ipaddress.IPv6Network("2000::/3")
"""All that is assigned to the public internet. The rest of IPv6 is local, reserved, or stands for IPv4."""
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")


def is_public(address: Address) -> bool:
    """Whether an address is public, including an IPv4 address embedded in it."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.sixtofour or (address.teredo or (None, None))[1]
        if address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(inner)
        if address not in _UNICAST:
            return False
    return address.is_global and not address.is_multicast


def is_loopback(host: str) -> bool:
    """Whether only this machine can be reached, or can connect, at the address of a host."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def parse_address(text: str) -> Address:
    """An address as the resolver writes it, with the interface of a local one left out. Raises `ValueError`."""
    return ipaddress.ip_address(text.partition("%")[0])
