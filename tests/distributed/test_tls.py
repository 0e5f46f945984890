"""Encrypted connections: the cluster on this machine, and schedulers with TLS."""

import asyncio
import socket
import ssl
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from engine_tasks import double

from altbi.cli import main
from altbi.distributed import TLS, Dask, _engines
from altbi.distributed._tls import load_security
from altbi.errors import EngineError, MissingExtraError

distributed = pytest.importorskip("distributed", reason="the extra cluster is not installed")
certificates = pytest.importorskip("certificates", reason="the extra cluster is not installed")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return certificates.write_files(tmp_path_factory.mktemp("tls") / "ours")


@pytest.fixture(scope="module")
def other_files(tmp_path_factory):
    """Return the files of another authority with the same name."""
    return certificates.write_files(tmp_path_factory.mktemp("tls") / "theirs")


@pytest.fixture(scope="module")
def scheduler(files):
    """Return the address of a scheduler with TLS and one worker."""
    ca, cert, key = files
    roles = ("scheduler", "worker", "client")
    pairs = {f"tls_{role}_cert": cert for role in roles} | {
        f"tls_{role}_key": key for role in roles
    }
    with distributed.LocalCluster(
        n_workers=1,
        threads_per_worker=1,
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
        security=distributed.Security(require_encryption=True, tls_ca_file=ca, **pairs),
    ) as cluster:
        assert cluster.scheduler_address.startswith("tls://")
        yield cluster.scheduler_address


def connect(address, tls=None):
    with Dask(address, tls=tls, quiet=True) as engine:
        return sorted(engine.run(double, [1, 2]))


def test_scheduler_with_tls_runs_calls(scheduler, files):
    assert connect(scheduler, files) == [(0, 2), (1, 4)]


def test_certificates_of_the_dask_configuration_are_used(scheduler, files):
    import dask

    ca, cert, key = files
    tls = {"ca-file": ca, "client.cert": cert, "client.key": key}
    with dask.config.set({f"distributed.comm.tls.{name}": path for name, path in tls.items()}):
        assert connect(scheduler) == [(0, 2), (1, 4)]


@pytest.mark.parametrize("names", [("ca-file",), ("client.cert", "client.key"), ("client.cert",)])
def test_incomplete_dask_configuration_is_refused(files, names):
    import dask

    tls = dict(zip(("ca-file", "client.cert", "client.key"), files, strict=True))
    with (
        dask.config.set({f"distributed.comm.tls.{name}": tls[name] for name in names}),
        pytest.raises(EngineError, match="no certificates were given"),
    ):
        load_security(distributed, "tls://127.0.0.1:9", None)


def test_clients_with_files_never_connect_without_encryption(files):
    security = load_security(distributed, "tls://127.0.0.1:9", files)

    async def connect_unencrypted():
        await distributed.comm.connect(
            "tcp://127.0.0.1:9", **security.get_connection_args("client")
        )

    with pytest.raises(RuntimeError, match="encryption required"):
        asyncio.run(connect_unencrypted())


def read_without_certificate(address, ca):
    """Connect as a client that trusts the authority, but has no certificate; read one byte."""
    context = ssl.create_default_context(cadata=ca)
    context.check_hostname = False
    host, _, port = address.removeprefix("tls://").rpartition(":")
    with (
        socket.create_connection((host, int(port)), 10) as connection,
        context.wrap_socket(connection) as encrypted,
    ):
        return encrypted.recv(1)


def test_clients_without_a_certificate_are_refused(scheduler, files):
    with pytest.raises(ssl.SSLError, match="certificate required"):
        read_without_certificate(scheduler, Path(files.ca).read_text())


@pytest.mark.parametrize("ours", [(0,), (1, 2), ()], ids=["own key", "own authority", "neither"])
def test_clients_without_the_key_are_refused(scheduler, files, other_files, ours):
    mixed = TLS(*(files[i] if i in ours else other_files[i] for i in range(3)))
    with pytest.raises(EngineError, match=f"^{scheduler}: .*do not accept each other's cert"):
        connect(scheduler, mixed)


def test_unencrypted_clients_are_refused(scheduler):
    address = scheduler.replace("tls://", "tcp://")
    with pytest.raises(EngineError, match=f"^{address}: no Dask scheduler answers.* or tls://"):
        connect(address)


def test_schedulers_without_tls_are_refused(cluster, files):
    address = cluster.scheduler_address.replace("tcp://", "tls://")
    with pytest.raises(EngineError, match=f"^{address}: what answers there does not use TLS"):
        connect(address, files)


def test_absent_scheduler_has_an_encrypted_example(files, monkeypatch):
    monkeypatch.setattr(_engines, "CONNECT_SECONDS", 0.5)
    with pytest.raises(EngineError, match=r"^tls://127.0.0.1:9: no Dask .* as tls://10"):
        connect("tls://127.0.0.1:9", files)


@pytest.mark.parametrize("name", ["ca", "cert", "key"])
def test_files_that_cannot_be_read_are_named(files, name, tmp_path):
    missing = files._replace(**{name: tmp_path / "none.pem"})
    with pytest.raises(EngineError, match=r"none\.pem: the TLS file for '.*' cannot be read \(No"):
        connect("tls://127.0.0.1:9", missing)


@pytest.mark.parametrize("name", ["ca", "cert", "key"])
def test_files_that_do_not_belong_together_are_errors(files, other_files, name, tmp_path):
    (tmp_path / "text.pem").write_text("hello\n")
    message = "not a certificate authority, a certificate, and its key"
    with pytest.raises(EngineError, match=message):
        connect("tls://127.0.0.1:9", files._replace(**{name: tmp_path / "text.pem"}))
    with pytest.raises(EngineError, match=message):
        connect("tls://127.0.0.1:9", files._replace(key=other_files.key))


def test_keys_with_a_password_are_refused(files):
    secret = files.key.replace("key.pem", "secret.pem")
    with pytest.raises(EngineError, match=f"^{secret}: the key has a password"):
        connect("tls://127.0.0.1:9", files._replace(key=secret))


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("tcp://127.0.0.1:9", "^tcp://127.0.0.1:9: TLS files were given, but .* not encrypted"),
        ("127.0.0.1:9", "^127.0.0.1:9: TLS files were given, but .* starts with tls://"),
        (None, "^TLS files were given without a scheduler"),
    ],
)
def test_files_need_an_encrypted_address(files, address, message):
    with pytest.raises(EngineError, match=message):
        connect(address, files)


def test_encrypted_address_needs_files():
    with pytest.raises(EngineError, match=r"^tls://127.0.0.1:9: .* no certificates were given"):
        connect("tls://127.0.0.1:9")


@pytest.mark.slow
def test_local_cluster_needs_the_key_of_its_run(files):
    with Dask(workers=1, quiet=True) as engine:
        assert list(engine.run(double, [1])) == [(0, 2)]
        address = engine._cluster.scheduler_address
        key = engine._cluster.security.tls_client_key
        authority = engine._cluster.security.tls_ca_file
        (worker,) = engine._client.scheduler_info()["workers"]
        pages = engine._cluster.scheduler.http_server.port
        for each in (address, worker):
            assert each.startswith("tls://127.0.0.1:")
            with pytest.raises(EngineError, match="do not accept each other's certificates"):
                connect(each, files)
            with pytest.raises(EngineError, match="no Dask scheduler answers"):
                connect(each.replace("tls://", "tcp://"))
            with pytest.raises(ssl.SSLError, match="certificate required"):
                read_without_certificate(each, authority)
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"http://127.0.0.1:{pages}/info/main/workers.html")
    with Dask(workers=1, quiet=True) as engine:
        list(engine.run(double, [1]))
        assert engine._cluster.security.tls_client_key != key


def test_local_cluster_needs_the_package_for_keys(monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(MissingExtraError, match=r"'cryptography' .*altbi\[cluster\]"):
        connect(None)


def test_command_passes_the_files_to_the_engine(scheduler, files, paths, model, tmp_path, capsys):
    model.save(tmp_path / "model.altbi")
    options = ["-m", str(tmp_path / "model.altbi"), "-o", str(tmp_path / "out"), "--quiet"]
    options += ["--engine", "dask", "--scheduler", scheduler]
    names = zip(("--tls-ca", "--tls-cert", "--tls-key"), files, strict=True)

    assert main(["score", str(paths["parquet folder"]), *options]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"altbi: {scheduler}: the connection is encrypted, but no certificates")

    tls = [word for pair in names for word in pair]
    assert main(["score", str(paths["parquet folder"]), *options, *tls]) == 0
    assert len(list((tmp_path / "out").glob("part-*.parquet"))) == 5
