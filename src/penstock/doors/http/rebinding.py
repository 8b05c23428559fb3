"""DNS rebinding: a page of the web gives its own name a second address, this machine's, and its scripts then talk to
the broker as if it were their own server. Where everybody on this machine is administrator, that would be enough to do
anything.

What such a page cannot choose is the `Host` that the browser sends: its own name, which has to be one that the public
DNS knows. Addresses, names without a dot and names of local networks are nobody's page.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from penstock.doors.http.errors import HttpError

LOCAL_SUFFIXES: Final = (".localhost", ".local", ".internal", ".lan", ".home.arpa", ".test")


def refuse_rebound_name(host: str, peer: str) -> None:
    """Raises HttpError for a request of this machine that names the broker as a page of the web would."""
    if _is_loopback(peer) and not _is_local_name(_name(host)):
        raise HttpError(
            403,
            "foreign_host",
            "security is off, and this name may be a web page's: use localhost or an address, or turn security on",
        )


def _name(netloc: str) -> str:
    """Without the port."""
    try:
        return (urlsplit(f"//{netloc}").hostname or "").rstrip(".")
    except ValueError:  # what no browser sends
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
