"""`penstock token`: creates JSON Web Tokens, and keys for them, for development and operators, and shows how a broker
evaluates one."""

from __future__ import annotations

import base64
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Final

import msgspec
import typer

from penstock.broker.errors import InvalidArgument
from penstock.broker.runtime.clock import wall_clock
from penstock.broker.security import role, token, token_permissions
from penstock.broker.security.access import Identity, Permission
from penstock.broker.security.user import Directory
from penstock.cli import admin_request, flags, quantity
from penstock.cli.failure import fail
from penstock.cli.tables import print_fields, printable, utc
from penstock.cli.target import Server, Target, TargetFlags, Tls, TlsCa, resolve
from penstock.config.settings import ConfigError, SecuritySection

LAST: Final = 253_402_300_799_999_999  # µs since 1970: the end of the year 9999

app = typer.Typer(
    help="Issue and inspect JSON Web Tokens, and generate keys for them.\n\n  penstock token key new.key new.pem",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command()
def issue(
    subject: Annotated[str, typer.Argument(metavar="SUBJECT", help="The subject (claim `sub`).")],
    key: Annotated[
        str,
        typer.Option("--key", metavar="FILE", help="The signing key: a secret, or a private Ed25519 key as PEM."),
    ],
    roles: Annotated[
        list[str] | None,
        typer.Option("--role", metavar="ROLE", help="Such as Admin, User, Analyst or Auditor. Repeatable."),
    ] = None,
    permissions: Annotated[
        list[str] | None,
        typer.Option(
            "--perm",
            metavar="PERMISSION",
            help="Instead of roles, such as 'stream.publish:stream:default/default/*'. Repeatable.",
        ),
    ] = None,
    tenant: Annotated[
        str, typer.Option("--tenant", help="A tenant's name, or the number that Kimberlite's clients give.")
    ] = "default",
    lifetime: Annotated[str, typer.Option("--lifetime", metavar="TIME", help="Such as 15m, 1h or 30d.")] = "1h",
    config: flags.ConfigFile = None,
) -> None:
    """Sign a token and print it: with roles, or with permissions, which requires an Ed25519 key. Issuer and audience
    come from the configuration.

    penstock token issue ada --key issuer.key --tenant acme --perm stream.subscribe:stream:acme/default/orders

    penstock token issue ada --key shared.secret --role Analyst --lifetime 15m > ada.token
    """
    from penstock.broker.security import token_claims, token_keys  # here, because they are slow to import
    from penstock.config.tokens import key_id, read_file

    if bool(roles) == bool(permissions):
        fail("a token has roles (--role) or permissions (--perm), one kind of them", 2)
    security = flags.of_directory(config, None, must_exist=False).security
    try:
        signer = token_keys.read(key_id(key), read_file(key), signing=True)
    except OSError as error:
        fail(f"--key {key}: {error.strerror}", 2)
    except InvalidArgument as error:
        fail(f"--key {key}: {error}", 2)
    now = wall_clock() // 1_000_000
    times = {"iat": now, "exp": now + int(min(quantity.seconds("--lifetime", lifetime), 1e11))}
    claims = _with_permissions(tenant, permissions) if permissions else _with_roles(tenant, roles or (), security)
    claims = {"sub": subject} | claims | times
    try:
        decoded = token_claims.decode(msgspec.json.encode(claims), signer.kind)
        token_claims.identity(decoded, token.TokenPolicy(), "", now * 1_000_000)
    except token.Unacceptable as error:
        fail(f"no broker would take such a token: {error}", 2)
    text = token_keys.sign(claims, signer)
    if len(text) > token.MAX_TOKEN:
        fail(f"no broker would take such a token: it has {len(text)} characters; {token.MAX_TOKEN} are allowed", 2)
    typer.echo(text)


def _with_roles(tenant: str, roles: Sequence[str], security: SecuritySection) -> dict[str, object]:
    for name in roles:
        try:
            role.check(Directory(), tenant, [name])
        except InvalidArgument:
            typer.echo(f"note: role {name} means nothing unless the tenant has one of its own", err=True)
    number = tenant.isascii() and tenant.isdigit()
    origin = (("iss", security.token_issuer), ("aud", security.token_audience))
    claims: dict[str, object] = {"tenant_id": int(tenant) if number else tenant, "roles": list(roles)}
    return claims | {name: value for name, value in origin if value}


def _with_permissions(tenant: str, permissions: Sequence[str]) -> dict[str, object]:
    """Claims like those of Felix's own issuer: every broker that accepts such tokens accepts these names."""
    for text in permissions:
        if not token_permissions.meaning(text, tenant):
            typer.echo(f"note: permission {text} means nothing in tenant {tenant}", err=True)
    iss, aud = token.PERMISSIONS_ISSUER, token.PERMISSIONS_AUDIENCE
    return {"tid": tenant, "perms": list(permissions), "iss": iss, "aud": aud}


@app.command()
def key(
    private: Annotated[str, typer.Argument(metavar="PRIVATE", help="File for the signing key.")],
    public: Annotated[str, typer.Argument(metavar="PUBLIC", help="File for the broker's key.")],
) -> None:
    """Generate an Ed25519 key pair as PEM: one to sign tokens, one for the broker's security.token_keys.

    penstock token key new.key new.pem
    """
    from penstock.broker.security import token_keys

    # Never overwrite a file: a lost key would invalidate all its tokens.
    if there := [path for path in (private, public) if os.path.lexists(os.path.expanduser(path))]:
        fail(f"{there[0]}: there is such a file already; choose another name", 2)
    made = token_keys.new_key_pair()
    for path, data, mode in ((private, made.private, 0o600), (public, made.public, 0o644)):
        try:
            file = os.open(os.path.expanduser(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        except OSError as error:
            fail(f"{path}: {error.strerror}", 2)
        with os.fdopen(file, "wb") as opened:
            opened.write(data)
    typer.echo(f"{private} signs: keep it from others. Give the broker {public} in security.token_keys.", err=True)


@app.command()
def inspect(
    text: Annotated[str, typer.Argument(metavar="TOKEN", help="The token; - reads it from standard input.")] = "-",
    config: flags.ConfigFile = None,
    server: Server = None,
    tls: Tls = False,
    tls_ca: TlsCa = None,
) -> None:
    """Show what a token says, and whether a broker would take it, and why not: the one at --server, or one with this
    configuration.

    penstock token inspect --server broker.example:9092 < ada.token
    """
    from penstock.broker.security import token_claims, token_keys
    from penstock.config.tokens import token_policy

    presented = sys.stdin.readline().strip() if text == "-" else text
    parts = presented.split(".")
    if len(presented) > token.MAX_TOKEN or not token.looks_like_one(presented):
        fail("this is no token: it has three parts in base64, at most 8 KiB together", 2)
    print_fields([(name, _document(part)) for name, part in zip(("header", "claims"), parts, strict=False)])
    if server is not None:
        _ask_broker(resolve(TargetFlags(server, tls=tls, tls_ca=tls_ca)), presented)
        return
    settings = flags.of_directory(config, None, must_exist=False)
    if not settings.security.token_keys:
        typer.echo("note: no security.token_keys are configured, so the signature was not checked", err=True)
        return
    try:
        policy = token_policy(settings)
    except ConfigError as error:
        fail(error, 2)
    signed = token_keys.signed(presented, policy.keys)
    if signed is None:
        fail("not taken: none of the configured keys has signed it")
    try:
        found = token_claims.identity(token_claims.decode(*signed), policy, "", wall_clock())
    except token.Unacceptable as error:
        fail(f"not taken: {error}")
    assert found.expires is not None, "a token without an end is not acceptable"
    until = utc(min(found.expires, LAST))
    by = f"as {', '.join(found.roles)}" if found.roles else f"with {_allowed(found)}"
    print_fields([("taken", f"{found.name} in tenant {found.tenant} {by}, until {until} UTC")])


def _ask_broker(target: Target, presented: str) -> None:
    """Log in with the token, and print the identity."""
    from penstock.connection.views import Identity as Known

    bearer = target._replace(user=None, password=None, key=None, token=presented)
    found = admin_request.call(bearer, "GET", admin_request.path("identity"), Known)
    if not found.security:
        typer.echo("note: security is off at this broker, so it takes any token, and does not look at it", err=True)
        return
    by = f"as {', '.join(found.roles)}" if found.roles else f"with {', '.join(found.permissions) or 'no permission'}"
    print_fields([("taken", f"{found.name} in tenant {found.tenant} {by}")])


def _allowed(found: Identity) -> str:
    given = frozenset[Permission]().union(*(grant.permissions for grant in found.grants))
    return ", ".join(permission for permission in Permission if permission in given) or "no permission"


def _document(part: str) -> str:
    """The signed document, on one line, with control characters escaped."""
    try:
        data = msgspec.json.decode(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (ValueError, RecursionError):
        fail("this is no token: a part of it is not JSON in base64", 2)
    return printable(msgspec.json.encode(data).decode())
