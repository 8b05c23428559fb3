"""DNS rebinding: a web page rebinds its own host name to this machine's address, and its scripts then send requests to
the broker as if it were their own server. Without security, where every local client is an administrator, this would
give the page full control.

Such a page cannot choose the `Host` header that the browser sends: it is its own name, which must be in the public DNS.
Addresses, names without a dot and names of local networks cannot belong to a web page.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from penstock.doors.http.errors import HttpError

LOCAL_SUFFIXES: Final = (".localhost", ".local", ".internal", ".lan", ".home.arpa", ".test")


def refuse_rebound_name(host: str, peer: str) -> None:
    """Raise HttpError for a request from this machine whose `Host` could be that of a web page."""
    if _is_loopback(peer) and not _is_local_name(_name(host)):
        raise HttpError(
            403,
            "foreign_host",
            "security is off, and this name may be a web page's: use localhost or an address, or turn security on",
        )


def _name(netloc: str) -> str:
    """The name without the port."""
    try:
        return (urlsplit(f"//{netloc}").hostname or "").rstrip(".")
    except ValueError:  # not from a browser
        return netloc


def _is_loopback(peer: str) -> bool:
    name = _name(peer)
    return _is_address(name) and ip_address(name).is_loopback


def _is_local_name(name: str) -> bool:
    return "." not in name or name.endswith(LOCAL_SUFFIXES) or _is_address(name)


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
