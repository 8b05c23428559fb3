"""The certificate that is made once and kept, and those that cannot be used."""

from __future__ import annotations

import datetime
import os
import ssl
import stat
from pathlib import Path

import pytest
from tests.transport.certificates import Authority

from penstock.transport.quic.certificate import CertificateUnusable, is_authority, kept, load, make, paths, show

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def test_it_is_made_once_and_kept(tmp_path: Path) -> None:
    directory = str(tmp_path / "certificates")
    first = kept(directory, NOW)
    again = kept(directory, NOW + datetime.timedelta(days=3000))
    assert first.fingerprint == again.fingerprint and first.key == again.key
    assert {"localhost", "127.0.0.1", "::1"} <= set(first.names)
    assert (first.until - NOW).days == 3650
    chain, key = paths(directory)
    assert stat.S_IMODE(os.stat(key).st_mode) == 0o600 and stat.S_IMODE(os.stat(directory).st_mode) == 0o700
    assert sorted(os.listdir(directory)) == ["felix.crt", "felix.key"]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain, key)
    assert first.fingerprint == _fingerprint(chain) and not is_authority(first.chain)


def _fingerprint(path: str) -> str:
    import hashlib

    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(Path(path).read_text())).hexdigest()


def test_a_host_name_that_fits_no_certificate_is_left_out() -> None:
    for host, there in (("broker-1", True), ("my_host", False), ("höst", False), ("localhost", True), ("", False)):
        names = show(make(NOW, host)[0], "x").names
        assert (host in names) is there and len(names) == (4 if host == "broker-1" else 3)


def test_an_expired_one_is_refused_with_what_to_do(tmp_path: Path) -> None:
    kept(str(tmp_path), NOW)
    with pytest.raises(CertificateUnusable, match="was valid until 2035-12-30 00:00 UTC") as refused:
        kept(str(tmp_path), NOW + datetime.timedelta(days=4000))
    assert "made again when both files are gone" in str(refused.value)


def test_a_key_that_is_missing_unreadable_or_of_another_certificate_is_refused(tmp_path: Path) -> None:
    kept(str(tmp_path), NOW)
    chain, key = (Path(path) for path in paths(str(tmp_path)))
    other = make(NOW, "")[1]
    whole = key.read_bytes()
    for broken, said in ((other, "is not the key of"), (b"rubbish", "is no private key"), (b"", "is no private key")):
        key.write_bytes(broken)
        with pytest.raises(CertificateUnusable, match=said):
            kept(str(tmp_path), NOW)
    key.unlink()
    with pytest.raises(CertificateUnusable, match="is missing"):
        kept(str(tmp_path), NOW)
    key.write_bytes(whole)
    chain.write_bytes(b"rubbish")
    with pytest.raises(CertificateUnusable, match="holds no certificate"):
        kept(str(tmp_path), NOW)


def test_one_that_was_given_is_loaded_and_its_authority_is_known_as_such(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    issued = authority.issue("broker")
    loaded = load(issued.cert, issued.key, datetime.datetime.now(datetime.UTC))
    assert loaded.path == issued.cert and "localhost" in loaded.names
    assert is_authority(Path(authority.path).read_bytes()) and not is_authority(loaded.chain)
    with pytest.raises(CertificateUnusable, match="cannot be read"):
        load(str(tmp_path / "none"), issued.key, NOW)
