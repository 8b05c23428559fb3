"""`penstock token`: makes JSON Web Tokens for development and operators, and says what a broker makes of one."""

from __future__ import annotations

import base64
import sys
from datetime import UTC, datetime
from typing import Annotated, Final

import msgspec
import typer

from penstock.cli import flags, quantity
from penstock.cli.failure import fail
from penstock.config import ConfigError
from penstock.core import role, token
from penstock.core.clock import wall_clock
from penstock.core.errors import InvalidArgument
from penstock.core.user import Directory

LAST: Final = 253_402_300_799  # s since 1970: the end of the year 9999

app = typer.Typer(help="Issue and inspect JSON Web Tokens.", no_args_is_help=True, rich_markup_mode=None)


@app.command()
def issue(
    subject: Annotated[str, typer.Argument(metavar="SUBJECT", help="Whom it speaks of (the claim sub).")],
    key: Annotated[
        str,
        typer.Option("--key", metavar="FILE", help="What to sign with: a secret, or a private Ed25519 key as PEM."),
    ],
    roles: Annotated[
        list[str], typer.Option("--role", metavar="ROLE", help="Such as Admin, User, Analyst or Auditor. Repeatable.")
    ],
    tenant: Annotated[
        str, typer.Option("--tenant", help="A tenant's name, or the number that Kimberlite's clients give.")
    ] = "default",
    lifetime: Annotated[str, typer.Option("--lifetime", metavar="TIME", help="Such as 15m, 1h or 30d.")] = "1h",
    config: flags.ConfigFile = None,
) -> None:
    """Sign a token and print it. Issuer and audience are those that the configuration wants."""
    from penstock.core import token_keys  # here, because they take a while to load
    from penstock.net.tokens import key_id, read_file

    security = flags.of_directory(config, None, must_exist=False).security
    try:
        signer = token_keys.read(key_id(key), read_file(key), signing=True)
    except OSError as error:
        fail(f"--key {key}: {error.strerror}", 2)
    except InvalidArgument as error:
        fail(f"--key {key}: {error}", 2)
    now = wall_clock() // 1_000_000
    claims: dict[str, object] = {
        "sub": subject,
        "tenant_id": int(tenant) if tenant.isascii() and tenant.isdigit() else tenant,
        "roles": roles,
        "iat": now,
        "exp": now + int(min(quantity.seconds("--lifetime", lifetime), 1e11)),
    }
    claims |= {name: said for name, said in (("iss", security.token_issuer), ("aud", security.token_audience)) if said}
    try:
        token.identity(token.decode(msgspec.json.encode(claims)), token.TokenPolicy(), "", now * 1_000_000)
    except token.Unacceptable as error:
        fail(f"no broker would take such a token: {error}", 2)
    for name in roles:
        try:
            role.check(Directory(), tenant, [name])
        except InvalidArgument:
            typer.echo(f"note: role {name} means nothing unless the tenant has one of its own", err=True)
    typer.echo(token_keys.sign(claims, signer))


@app.command()
def inspect(
    text: Annotated[str, typer.Argument(metavar="TOKEN", help="The token; - reads it from standard input.")] = "-",
    config: flags.ConfigFile = None,
) -> None:
    """Show what a token says, and whether a broker with this configuration would take it, and why not."""
    from penstock.core import token_keys
    from penstock.net.tokens import token_policy

    presented = sys.stdin.readline().strip() if text == "-" else text
    parts = presented.split(".")
    if len(presented) > token.MAX_TOKEN or not token.looks_like_one(presented):
        fail("this is no token: it has three parts in base64, at most 8 KiB together", 2)
    for name, part in zip(("header", "claims"), parts, strict=False):
        typer.echo(f"{name}\t{_document(part)}")
    settings = flags.of_directory(config, None, must_exist=False)
    if not settings.security.token_keys:
        typer.echo("note: no security.token_keys are configured, so the signature was not checked", err=True)
        return
    try:
        policy = token_policy(settings)
    except ConfigError as error:
        fail(error, 2)
    payload = token_keys.payload(presented, policy.keys)
    if payload is None:
        fail("not taken: none of the configured keys has signed it")
    try:
        found = token.identity(token.decode(payload), policy, "", wall_clock())
    except token.Unacceptable as error:
        fail(f"not taken: {error}")
    assert found.expires is not None, "a token without an end is not acceptable"
    until = datetime.fromtimestamp(min(found.expires // 1_000_000, LAST), UTC).strftime("%Y-%m-%d %H:%M:%S")
    typer.echo(f"taken\t{found.name} in tenant {found.tenant} as {', '.join(found.roles)}, until {until} UTC")


def _document(part: str) -> str:
    """As it was signed, on one line, and with nothing in it that could move the cursor."""
    try:
        data = msgspec.json.decode(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (ValueError, RecursionError):
        fail("this is no token: a part of it is not JSON in base64", 2)
    told = msgspec.json.encode(data).decode()
    return "".join(character if character.isprintable() else ascii(character)[1:-1] for character in told)
