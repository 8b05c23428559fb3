"""`penstock cert`: the certificate that the broker shows to QUIC clients."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import admin_request
from penstock.cli.admin_target import WAYS, AdminTarget, with_admin_target
from penstock.cli.failure import fail
from penstock.cli.tables import aligned, print_aligned
from penstock.cli.target import Target

if TYPE_CHECKING:
    from penstock.transport.quic.certificate import Certificate

app = typer.Typer(
    help=f"The certificate that QUIC clients see (Felix). {WAYS}\n\n  penstock cert show",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.callback()
def group() -> None:
    """So that `show` stays a command of its own."""


@app.command()
@with_admin_target()
def show(
    settings: AdminTarget,
    pem: Annotated[bool, typer.Option("--pem", help="Print the certificate itself as PEM.")] = False,
) -> None:
    """Show the certificate's path, names, expiry and fingerprint.

    Clients trust the certificate by its fingerprint, or by its file.

    penstock cert show

    penstock cert show --pem --data-dir /var/lib/penstock > felix.pem
    """
    from penstock.transport.quic.certificate import CertificateUnusable, paths, read
    from penstock.transport.quic.certificate import show as describe
    from penstock.transport.quic_listener import CERTIFICATES  # here: it loads QUIC

    if isinstance(settings, Target):
        address, chain = _presented(settings)
        _print(describe(chain, address), pem, ("address", address))
        return
    path = settings.tls.cert or paths(os.path.join(settings.data_dir, CERTIFICATES))[0]
    if not settings.tls.cert and not os.path.exists(path):
        fail(f"{path}: there is none yet. The broker makes it when it is first started with the door felix open")
    try:
        found = describe(read(path), path)
    except CertificateUnusable as error:
        fail(error)
    origin = "tls.cert" if settings.tls.cert else "made by the broker"
    _print(found, pem, ("file", f"{os.path.abspath(path)} ({origin})"))


def _presented(target: Target) -> tuple[str, bytes]:
    """The address of the door, and the certificate that it presents."""
    doors = admin_request.all_of(target, admin_request.path("doors"), dict[str, Any])
    found = [(door["address"], door["certificate"].encode()) for door in doors if door.get("certificate")]
    if not found:
        fail("this broker shows no certificate to QUIC clients: its door felix is closed")
    return found[0]


def _print(found: Certificate, pem: bool, location: tuple[str, str]) -> None:
    if pem:
        typer.echo(found.chain.decode(), nl=False)
        return
    rows = (
        location,
        ("names", ", ".join(found.names) or "none"),
        ("valid until", f"{found.until:%Y-%m-%d %H:%M} UTC"),
        ("fingerprint", f"sha256:{found.fingerprint}"),
    )
    print_aligned(aligned(("field", "value"), rows, header=False), wrap=False)
