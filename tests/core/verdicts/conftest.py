"""A server whose certificate nobody trusts."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def untrusted(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    """A server's side of TLS, with a certificate that it made for itself."""
    program = shutil.which("openssl")
    if program is None:
        pytest.skip("no openssl here to make a certificate with")
    folder: Path = tmp_path_factory.mktemp("tls")
    arguments = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1 -keyout key.pem -out certificate.pem"
    subprocess.run([program, *arguments.split()], cwd=folder, check=True, capture_output=True, timeout=60)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "certificate.pem", folder / "key.pem")
    return context
