"""Reads the configuration's layers (TOML file, environment, flags) and merges them, later ones over earlier ones.

Every error names the full key and its origin. The keys and their ranges are in `penstock.config.settings`; this module
refers to particular keys only to check relations between them.
"""

from __future__ import annotations

import difflib
import enum
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, Literal, get_args, get_origin, get_type_hints

import msgspec

from penstock.config.settings import DOOR_NAMES, UDP_DOORS, Config, ConfigError, Settings
from penstock.config.units import DURATION_UNITS, QUANTITY, SIZE_UNITS
from penstock.transport.endpoint import parse_endpoint

SECRET_WORDS: Final = ("secret", "password", "token", "key", "credential", "sas")

ENV_PREFIX = "PENSTOCK_"
# Used by the test suite, the benchmarks and the command line itself; not keys.
ENV_NOT_KEYS = ("PENSTOCK_CONFIG", "PENSTOCK_CRASH_", "PENSTOCK_BENCH_", "PENSTOCK_TEST_", "PENSTOCK_SERVER",
                "PENSTOCK_PROJECT", "PENSTOCK_CONFORMANCE_")  # fmt: skip
OF_COMMANDS = ("PENSTOCK_CONTEXT", "PENSTOCK_USER", "PENSTOCK_PASSWORD_FILE", "PENSTOCK_KEY_FILE",
               "PENSTOCK_TOKEN_FILE", "PENSTOCK_TLS", "PENSTOCK_TLS_CA")  # fmt: skip


def load(
    *, file: str | None = None, environment: Mapping[str, str] | None = None, flags: Mapping[str, str] | None = None
) -> Config:
    """The effective configuration. `flags` maps full keys (`log.durability`) to texts. Raises ConfigError."""
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    layers = (
        _file_layer(file) if file else iter(()),
        _environment_layer(environment or {}),
        ((key, value, FLAG_OF.get(key, f"--{key}"), True) for key, value in (flags or {}).items()),
    )
    for layer in layers:
        for key, value, origin, is_text in layer:
            values[key] = _convert(key, value, origin, is_text)
            origins[key] = origin
    config = Config(_assemble(values), origins)
    _check_relations(config)
    return config


FLAG_OF = {
    "data_dir": "--data-dir",
    "log_level": "--log-level",
    "log.durability": "--durability",
    "storage.url": "--storage",
    "security.insecure_ok": "--allow-insecure",
    **{f"listen.{name}": f"--listen {name}=" for name in DOOR_NAMES},
}


def keys() -> list[str]:
    """All keys by full name, in the order of the document."""
    return list(_TYPES)


def _leaf_types() -> dict[str, Any]:
    types: dict[str, Any] = {}
    for name, hint in get_type_hints(Settings, include_extras=True).items():
        if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
            types.update((f"{name}.{inner}", of) for inner, of in get_type_hints(hint, include_extras=True).items())
        else:
            types[name] = hint
    return types


_TYPES = _leaf_types()
_SECTIONS = tuple(dict.fromkeys(key.partition(".")[0] for key in _TYPES if "." in key))

Layer = Iterator[tuple[str, Any, str, bool]]  # full key, raw value, origin, whether the value is text to be parsed


def _file_layer(path: str) -> Layer:
    try:
        with open(path, "rb") as file:
            document = tomllib.load(file)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: is not valid TOML: {error}") from None
    for name, value in document.items():
        if name in _SECTIONS:
            if not isinstance(value, dict):
                raise ConfigError(f"{path}: `{name}` is a section, [{name}], with keys of its own")
            for inner, inner_value in value.items():
                yield f"{name}.{inner}", inner_value, path, False
        else:
            yield name, value, path, False


def _environment_layer(environment: Mapping[str, str]) -> Layer:
    for name in sorted(environment):
        if name.startswith(ENV_PREFIX) and not name.startswith(ENV_NOT_KEYS) and name not in OF_COMMANDS:
            yield name.removeprefix(ENV_PREFIX).lower().replace("__", ".", 1), environment[name], name, True


def _convert(key: str, value: Any, origin: str, is_text: bool) -> Any:
    if key not in _TYPES:
        near = difflib.get_close_matches(key, _TYPES, n=1)
        raise ConfigError(f"{origin}: there is no key `{key}`" + (f"; did you mean `{near[0]}`?" if near else ""))
    wanted = _TYPES[key]
    try:
        unit = _unit(wanted)
        if isinstance(value, str) and unit in ("size", "duration"):
            value = _quantity(value, SIZE_UNITS if unit == "size" else DURATION_UNITS, whole=unit == "size")
        elif is_text and value.lstrip().startswith(("[", "{")) and _is_list(wanted):
            value = msgspec.json.decode(value)
        elif is_text and _is_list(wanted):
            value = [part.strip() for part in value.split(",") if part.strip()]
        converted = msgspec.convert(value, wanted, strict=not is_text)
        if unit == "address":
            parse_endpoint(converted)
        return converted
    except (msgspec.ValidationError, msgspec.DecodeError, ValueError) as error:
        raise ConfigError(f"{origin}: `{key}`: {_plain(str(error))}{_choices(wanted)}") from None


def _plain(message: str) -> str:
    """msgspec's message, in terms of a configuration file."""
    message = message.replace("`int`", "a whole number").replace("`str`", "a text").replace("`bool`", "true or false")
    message = message.replace("`float`", "a number").replace("`array`", "a list").replace("`object`", "a table")
    return re.sub(r" - at `\$(.*)`$", r" (at \1)", message)


def _choices(wanted: Any) -> str:
    """The possible values of a key, if it has a finite number."""
    if get_origin(wanted) is Literal:
        values = [str(value) for value in get_args(wanted)]
    elif isinstance(wanted, type) and issubclass(wanted, enum.Enum):
        values = [str(each.value) for each in wanted]
    else:
        return ""
    return f"; it is one of {', '.join(values)}"


def _unit(wanted: Any) -> str | None:
    for meta in getattr(wanted, "__metadata__", ()):
        if isinstance(meta, msgspec.Meta) and meta.extra:
            return str(meta.extra.get("unit"))
    return None


def _is_list(wanted: Any) -> bool:
    bare = get_args(wanted)[0] if get_origin(wanted) is Annotated else wanted
    return get_origin(bare) is tuple


def _quantity(text: str, units: Mapping[str, float], *, whole: bool) -> int | float:
    match = QUANTITY.fullmatch(text.strip())
    factor = units.get(match[2].lower()) if match else None
    if match is None or factor is None:
        raise ValueError(f"expected a number, or a number with one of {', '.join(filter(None, units))}; got {text!r}")
    amount = float(match[1]) * factor
    if whole and amount != int(amount):
        raise ValueError(f"expected a whole number of bytes, got {text!r}")
    return int(amount) if whole else amount


def _assemble(values: Mapping[str, Any]) -> Settings:
    hints = get_type_hints(Settings)
    top = {key: value for key, value in values.items() if "." not in key}
    for section in _SECTIONS:
        prefix = section + "."
        inner = {key.removeprefix(prefix): value for key, value in values.items() if key.startswith(prefix)}
        top[section] = hints[section](**inner)
    return Settings(**top)


def _check_relations(config: Config) -> None:
    """Check the relations between keys."""
    settings = config.settings

    def refuse(key: str, text: str) -> ConfigError:
        return ConfigError(f"{config.origin(key)}: `{key}`: {text}")

    if bool(settings.tls.cert) != bool(settings.tls.key):
        given, missing = ("cert", "key") if settings.tls.cert else ("key", "cert")
        raise refuse(f"tls.{given}", f"needs `tls.{missing}` beside it")
    for key in ("client_ca", "required"):
        if getattr(settings.tls, key) and not settings.tls.cert:
            raise refuse(f"tls.{key}", "needs `tls.cert` and `tls.key` beside it")
    pinned_at: dict[object, str] = {}
    for name in settings.listen.pinned:
        if name not in DOOR_NAMES:
            raise refuse("listen.pinned", f"there is no door {name!r}; the doors are {', '.join(DOOR_NAMES)}")
        if name in UDP_DOORS:
            continue
        address = parse_endpoint(getattr(settings.listen, name))
        other = pinned_at.setdefault(address, name)
        if address is not None and address.port and other != name:
            raise refuse("listen.pinned", f"{other} and {name} share {address}; a pinned port serves one door")
    alone = parse_endpoint(settings.listen.flight)
    for name in DOOR_NAMES:
        shared = alone is not None and alone.port and parse_endpoint(getattr(settings.listen, name)) == alone
        if shared and name not in ("flight", *UDP_DOORS):
            raise refuse("listen.flight", f"{name} is at {alone} too; Arrow Flight needs a port of its own")
    administration = parse_endpoint(settings.listen.flymq_admin)
    if administration and administration.port and parse_endpoint(settings.listen.http) == administration:
        raise refuse("listen.flymq_admin", f"http is at {administration} too, and both speak HTTP")
    if settings.limits.connection_bytes > settings.limits.total_bytes:
        raise refuse("limits.connection_bytes", "is larger than `limits.total_bytes`")
    if settings.limits.record_bytes > settings.log.entry_bytes:
        raise refuse("limits.record_bytes", "is larger than `log.entry_bytes`")


def to_toml(config: Config) -> str:
    """The effective configuration as TOML, with the origin of every value as a comment."""
    lines: list[str] = []
    section = ""
    for key in _TYPES:
        table, dot, name = key.rpartition(".")
        if table != section:
            section = table
            lines += ["", f"[{section}]"]
        holder = getattr(config.settings, table) if dot else config.settings
        value = getattr(holder, name)
        if key == "tables.options":
            value = tuple(map(without_secret, value))
        lines.append(f"{name} = {to_toml_value(value)}  # {config.origin(key)}")
    return "\n".join(lines) + "\n"


def without_secret(option: str) -> str:
    """An option of an object store that is safe to show: a credential only by its name, or by that of its file."""
    name = option.partition("=")[0]
    secret = any(word in name.lower() for word in SECRET_WORDS) and not name.endswith(".file")
    return f"{name}=(not shown)" if secret else option


def to_toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return msgspec.json.encode(str(value)).decode()  # JSON's string escapes are TOML's
    if isinstance(value, tuple):
        return "[" + ", ".join(map(to_toml_value, value)) + "]"
    if isinstance(value, msgspec.Struct):
        inner = ((name, getattr(value, name)) for name in value.__struct_fields__)
        return "{ " + ", ".join(f"{name} = {to_toml_value(of)}" for name, of in inner) + " }"
    if isinstance(value, float) and value == int(value):
        return str(int(value))
    return str(value)


def config_file(flag: str | None, environment: Mapping[str, str]) -> str | None:
    """The file to read: the flag's, else `PENSTOCK_CONFIG`'s, else none."""
    return flag or environment.get("PENSTOCK_CONFIG") or None


def from_process(flag_file: str | None, flags: Mapping[str, str]) -> Config:
    """The configuration of this process: its environment, and the file that flag or environment name."""
    return load(file=config_file(flag_file, os.environ), environment=os.environ, flags=flags)
