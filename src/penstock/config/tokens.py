"""Token settings: key files of issuers, and required claims of JSON Web Tokens."""

from __future__ import annotations

import os

from penstock.broker.errors import InvalidArgument
from penstock.broker.security.token import MAX_KEYS, TokenKey, TokenPolicy
from penstock.config.settings import ConfigError, Settings

MAX_FILE = 64 << 10  # bytes


def token_policy(settings: Settings) -> TokenPolicy:
    """The token policy. Raises ConfigError for a file that contains no key."""
    security = settings.security
    names = (entry.split("=", 1) for entry in settings.kimberlite.tenants)
    tenants = {str(int(number)): name for number, name in names}
    if not security.token_keys:
        return TokenPolicy((), security.token_issuer, security.token_audience, tenants)
    from penstock.broker.security import token_keys  # imported here, because few brokers use it

    if len(security.token_keys) > MAX_KEYS:
        raise ConfigError(f"security.token_keys: {len(security.token_keys)} files; {MAX_KEYS} are allowed")
    keys: list[TokenKey] = []
    for path in security.token_keys:
        try:
            keys += token_keys.read_all(key_id(path), read_file(path))
        except OSError as error:
            raise ConfigError(f"security.token_keys: {path}: {error.strerror}") from error
        except InvalidArgument as error:
            raise ConfigError(f"security.token_keys: {path}: {error}") from error
    if len(keys) > MAX_KEYS:
        raise ConfigError(f"security.token_keys: {len(keys)} keys in these files; {MAX_KEYS} are allowed")
    return TokenPolicy(tuple(keys), security.token_issuer, security.token_audience, tenants)


def key_id(path: str) -> str:
    """The key id of the key in this file: the file's name without its extension."""
    return os.path.splitext(os.path.basename(path))[0]


def read_file(path: str) -> bytes:
    with open(os.path.expanduser(path), "rb") as file:
        return file.read(MAX_FILE)
