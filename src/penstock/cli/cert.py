"""`penstock cert`: the certificate that the broker shows to QUIC clients."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from penstock.cli import flags
from penstock.cli.failure import fail
from penstock.cli.tables import aligned, print_aligned
from penstock.config.settings import Settings

app = typer.Typer(
    help="The certificate that QUIC clients see (Felix).", no_args_is_help=True, rich_markup_mode=None
)  # fmt: skip


@app.callback()
def group() -> None:
    """So that `show` stays a command of its own."""


@app.command()
@flags.with_settings()
def show(
    settings: Settings,
    pem: Annotated[bool, typer.Option("--pem", help="Print the certificate itself, for clients to keep.")] = False,
) -> None:
    """Say where the certificate is, for which names and until when it is good, and its fingerprint.

    Works whether or not the broker runs. Clients trust the certificate by its fingerprint, or by its file.
    """
    from penstock.transport.quic.certificate import CertificateUnusable, paths, read
    from penstock.transport.quic.certificate import show as describe
    from penstock.transport.quic_listener import CERTIFICATES  # here: it loads QUIC

    path = settings.tls.cert or paths(os.path.join(settings.data_dir, CERTIFICATES))[0]
    if not settings.tls.cert and not os.path.exists(path):
        fail(f"{path}: there is none yet. The broker makes it when it is first started with the door felix open")
    try:
        found = describe(read(path), path)
    except CertificateUnusable as error:
        fail(error)
    if pem:
        typer.echo(found.chain.decode(), nl=False)
        return
    origin = "tls.cert" if settings.tls.cert else "made by the broker"
    rows = (
        ("file", f"{os.path.abspath(path)} ({origin})"),
        ("names", ", ".join(found.names) or "none"),
        ("valid until", f"{found.until:%Y-%m-%d %H:%M} UTC"),
        ("fingerprint", f"sha256:{found.fingerprint}"),
    )
    print_aligned(aligned(("field", "value"), rows, header=False), wrap=False)
