"""`penstock cert`, and the certificate of a real broker over restarts."""

from __future__ import annotations

import ssl
from pathlib import Path

from tests.launcher import BrokerProcess, other_doors, penstock
from tests.transport.certificates import Authority

from penstock.transport.quic_listener import server_certificate


def test_the_certificate_is_shown_before_during_and_after_a_run(tmp_path: Path) -> None:
    done = penstock("cert", "show", "--data-dir", str(tmp_path))
    assert done.returncode == 1 and "felix.crt: there is none yet" in done.stderr
    with BrokerProcess(tmp_path, "--listen", "felix=127.0.0.1:0") as broker:
        told = broker.ready().block.partition("certificate ")[2].partition("\n")[0]
        assert broker.address("felix").startswith("127.0.0.1:")
        shown = penstock("cert", "show", "--data-dir", str(tmp_path)).stdout
    assert shown == penstock("cert", "show", "--data-dir", str(tmp_path)).stdout
    assert f"fingerprint  {told}\n" in shown and len(told) == len("sha256:") + 64
    assert f"{tmp_path}/certificates/felix.crt (made by the broker)" in shown
    assert "localhost" in shown and "valid until" in shown
    pem = penstock("cert", "show", "--pem", "--data-dir", str(tmp_path)).stdout
    assert ssl.PEM_cert_to_DER_cert(pem) == ssl.PEM_cert_to_DER_cert(
        (tmp_path / "certificates" / "felix.crt").read_text()
    )


def test_the_certificate_of_tls_is_taken_if_there_is_one(tmp_path: Path) -> None:
    issued = Authority(tmp_path).issue("broker")
    environment = {"PENSTOCK_TLS__CERT": issued.cert, "PENSTOCK_TLS__KEY": issued.key}
    shown = penstock("cert", "show", "--data-dir", str(tmp_path), **environment).stdout
    assert f"{issued.cert} (tls.cert)" in shown
    taken = server_certificate(issued.cert, issued.key, str(tmp_path))
    assert f"sha256:{taken.fingerprint}\n" in shown
    assert not (tmp_path / "certificates").exists()


def test_a_certificate_that_cannot_be_used_stops_the_start_with_a_way_out(tmp_path: Path) -> None:
    folder = tmp_path / "certificates"
    folder.mkdir()
    (folder / "felix.crt").write_text("rubbish")
    (folder / "felix.key").write_text("rubbish")
    flags = ("--listen", "felix=127.0.0.1:0")
    done = penstock("serve", "--data-dir", str(tmp_path), *flags, *other_doors(flags))
    assert done.returncode == 1 and done.stdout == ""
    assert "felix.crt holds no certificate" in done.stderr and "--listen felix=off" in done.stderr
    shown = penstock("cert", "show", "--data-dir", str(tmp_path))
    assert shown.returncode == 1 and "holds no certificate" in shown.stderr
