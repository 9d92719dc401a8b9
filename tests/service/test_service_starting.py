"""`onceward serve` for the first time: what it prints works as printed, what is wrong is told with its place."""

from __future__ import annotations

import http.client
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from onceward import ConfigurationError
from onceward.cli import main
from onceward.service.settings import PREFIX, Settings, load_settings

ROOT = Path(__file__).resolve().parents[2]
LAST_WORDS = ("Send the last one again", "Stop with Ctrl-C")


class Printed:
    """A service that was started by hand, and what it printed."""

    def __init__(self, folder: Path, first_token: str = "stdout") -> None:
        self.log = folder / "log"
        command = [sys.executable, "-m", "onceward", "serve", "--port", "0", "--folder", str(folder / "data")]
        command += ["--first-token", first_token]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        self.text = ""
        if self.process.stdout is None:
            raise RuntimeError("there is no stdout")
        for line in self.process.stdout:
            self.text += line
            if any(words in line for words in LAST_WORDS):
                break

    @property
    def lines(self) -> list[str]:
        return [line.strip() for line in self.text.splitlines() if line.strip().startswith("curl ")]

    @property
    def tokens(self) -> list[str]:
        return sorted(set(re.findall(r"ow_(?:live|test)_[0-9a-z]{12}_[0-9A-Za-z]{39}", self.text)))

    @property
    def address(self) -> str:
        return re.findall(r"http://[^\s/]+", self.text)[0]

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(60)
        if self.process.stdout is not None:
            self.process.stdout.close()
        return code


def typed(line: str) -> str:
    """What a printed line answers: by curl itself, or the same request without it."""
    if shutil.which("curl"):
        return subprocess.run(line + " -sS", shell=True, capture_output=True, text=True, check=True).stdout
    words = shlex.split(line)[1:]
    method, headers, body, url = None, {}, None, ""
    while words:
        match words.pop(0):
            case "-X":
                method = words.pop(0)
            case "-H":
                name, _, value = words.pop(0).partition(": ")
                headers[name] = value
            case "-d":
                body = words.pop(0)
            case "-i":
                pass
            case other:
                url = other
    where = urlsplit(url)
    connection = http.client.HTTPConnection(where.netloc, timeout=60)
    connection.request(method or ("POST" if body else "GET"), where.path, body, headers)
    answer = connection.getresponse()
    head = "".join(f"{name}: {value}\n" for name, value in answer.getheaders())
    return f"HTTP/1.1 {answer.status} {answer.reason}\n{head}\n{answer.read().decode()}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fresh")


@pytest.fixture(scope="module")
def fresh(folder: Path) -> Iterator[Printed]:
    """A service on a fresh folder, with nothing said but the folder and a free port."""
    printed = Printed(folder)
    yield printed
    if printed.process.poll() is None:
        printed.stop()


SECRETS = {
    "key": "canary-key-51c0", "plan": "canary-plan-51c0", "step": "canary-step-51c0", "sql": "canary_table_51c0",
    "param": "canary-param-51c0", "query": "canary-query-51c0",
}  # fmt: skip


def session(fresh: Printed) -> list[int]:
    """A whole session with every kind of answer; the statuses."""
    where, token = urlsplit(fresh.address), fresh.tokens[0]
    statuses = []

    def call(method: str, path: str, document: Any = None, **headers: str) -> None:
        connection = http.client.HTTPConnection(where.netloc, timeout=60)
        sent = {"Authorization": f"Bearer {token}", "Content-Type": "application/json", **headers}
        connection.request(method, path, None if document is None else json.dumps(document), sent)
        statuses.append(connection.getresponse().status)
        connection.close()

    place, key = "/v1/db/demo/audit", {"Idempotency-Key": SECRETS["key"]}
    table = {"sql": f"CREATE TABLE {SECRETS['sql']} (id TEXT PRIMARY KEY)"}
    insert = {"sql": f"INSERT INTO {SECRETS['sql']} VALUES (?)", "params": [SECRETS["param"]]}
    call("PUT", place)
    call("POST", f"{place}/query", table)
    for _ in range(2):
        call("POST", f"{place}/query", insert, **key)
    call("POST", f"{place}/query", insert)
    call("POST", f"{place}/query", table, **key)
    call("POST", f"{place}/batch", {"statements": [insert, {"sql": "SELEC"}]}, **key)
    call("POST", f"{place}/query", table, **{"Plan-Key": SECRETS["plan"], "Plan-Step": SECRETS["step"]})
    call("POST", f"{place}/query", {"sql": f"SELECT * FROM {SECRETS['sql']}x"}, **{"Idempotency-Key": "a b"})
    call("GET", f"{place}/tables?token={SECRETS['query']}")
    call("GET", f"{place}/tables", Authorization=f"Bearer {token[:-1]}")
    call("GET", f"/v1/records?after={SECRETS['query']}")
    return statuses


class TestPrinting:
    """Address, token and three lines; in this order, because the second start ends the first."""

    def test_first_the_three_lines_work_as_printed_and_the_log_keeps_secrets(
        self, fresh: Printed, folder: Path, tmp_path: Path
    ) -> None:
        """
        All three succeed, and the last one sent again says replayed. The log of a whole session is lines of JSON with
        digests: no key, token, statement or parameter. Strangers are slowed whatever they write into X-Forwarded-For,
        since no proxy is trusted. Started again, no token is printed.
        """
        answers = [typed(line) for line in (*fresh.lines, fresh.lines[-1])]
        statuses = session(fresh)
        slowed = slowed_down(fresh.address)
        token, address = fresh.tokens, fresh.address
        code = fresh.stop()
        log = fresh.log.read_text()
        again = Printed(folder)
        second = again.stop()

        assert (len(fresh.lines), len(token)) == (3, 1)
        assert re.fullmatch(r"http://127\.0\.0\.1:[0-9]+", address)
        assert '"created":true' in answers[0].replace(" ", "")
        assert '"rowsWritten":1' in answers[2] and "200 OK" in answers[2]
        assert "idempotency-replayed" not in answers[2].lower()
        assert "idempotency-replayed: true" in answers[3].lower()
        assert statuses == [201, 200, 200, 200, 409, 422, 422, 400, 400, 400, 401, 400]
        assert slowed is not None and re.fullmatch("[1-9][0-9]*", slowed)
        assert [name for name, secret in SECRETS.items() if secret in log] == []
        assert token[0].split("_")[3] not in log and token[0][:-1] not in log
        lines = [json.loads(line) for line in log.splitlines()]
        assert sum("idempotency-key" in line or "plan-key" in line or "path" in line for line in lines) > 12
        assert (code, second, again.tokens) == (0, 0, [])
        assert "onceward token" in again.text


class TestTheFirstToken:
    """Of a new service: it may do everything, so it does not lie about."""

    @pytest.mark.fault("a-first-token-ends-in-the-log")
    def test_where_stdout_is_no_terminal_it_is_in_a_private_file(self, tmp_path: Path) -> None:
        """
        A container's stdout is somebody's log. The printed lines work as they are: they read the file.
        """
        printed = Printed(tmp_path, "auto")
        try:
            answers = [typed(line) for line in printed.lines] if shutil.which("curl") else None
        finally:
            printed.stop()
        file = tmp_path / "data" / "first-token"

        assert printed.tokens == [] and str(file) in printed.text
        assert re.fullmatch(r"ow_test_[0-9a-z]{12}_[0-9A-Za-z]{39}\n", file.read_text())
        assert file.stat().st_mode & 0o777 == 0o600
        assert file.read_text().strip() not in printed.log.read_text()
        assert answers is None or '"rowsWritten":1' in answers[2]

    def test_it_goes_into_the_file_that_is_named(self, tmp_path: Path) -> None:
        """
        In place of what was there, which keeps neither its mode nor, if it is a link, its target.
        """
        (tmp_path / "target").write_text("precious")
        (tmp_path / "token").symlink_to(tmp_path / "target")
        printed = Printed(tmp_path, str(tmp_path / "token"))
        printed.stop()

        assert printed.tokens == []
        assert (tmp_path / "token").read_text().startswith("ow_test_")
        assert (tmp_path / "target").read_text() == "precious"

    def test_with_none_there_is_no_tenant_and_no_token(self, tmp_path: Path) -> None:
        """
        For services whose tenants are made by `onceward tenant`.
        """
        printed = Printed(tmp_path, "none")
        printed.stop()

        assert (printed.tokens, list((tmp_path / "data").glob("*token*"))) == ([], [])
        assert "onceward token" in printed.text


class TestTheFolder:
    """It has tokens and databases in it: it is looked at before anything is put there."""

    @pytest.mark.fault("a-linked-folder-is-followed")
    @pytest.mark.parametrize("ending", ["", "/", "/."])
    def test_a_symbolic_link_is_not_followed(
        self, tmp_path: Path, ending: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """
        Neither is what it leads to changed.
        """
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir(mode=0o755)
        (tmp_path / "data").symlink_to(elsewhere)
        code = main(["serve", "--port", "0", "--folder", f"{tmp_path / 'data'}{ending}"])

        assert (code, "symbolic link" in capsys.readouterr().err) == (2, True)
        assert (list(elsewhere.iterdir()), elsewhere.stat().st_mode & 0o777) == ([], 0o755)

    @pytest.mark.fault("a-folder-is-closed-without-a-word")
    def test_a_folder_that_others_can_read_is_refused_and_left_as_it_is(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """
        The command that closes it is in the message.
        """
        (tmp_path / "data").mkdir()
        (tmp_path / "data").chmod(0o750)
        code = main(["serve", "--port", "0", "--folder", str(tmp_path / "data")])

        assert (code, f"chmod 700 {tmp_path / 'data'}" in capsys.readouterr().err) == (2, True)
        assert (list((tmp_path / "data").iterdir()), (tmp_path / "data").stat().st_mode & 0o777) == ([], 0o750)

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
    def test_a_folder_of_somebody_else_is_refused(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """
        Who could replace what is in it.
        """
        (tmp_path / "data").mkdir(mode=0o700)
        os.chown(tmp_path / "data", 54_321, 54_321)
        code = main(["serve", "--port", "0", "--folder", str(tmp_path / "data")])

        assert (code, "belongs to another user" in capsys.readouterr().err) == (2, True)

    @pytest.mark.parametrize("name", ["databases", "records.db"])
    def test_neither_is_a_link_in_it(self, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
        """
        Workers are given what is in the folder of databases.
        """
        (tmp_path / "data").mkdir(mode=0o700)
        (tmp_path / "data" / name).symlink_to(tmp_path / "elsewhere")
        code = main(["serve", "--port", "0", "--folder", str(tmp_path / "data")])

        assert (code, "symbolic link" in capsys.readouterr().err) == (2, True)
        assert not (tmp_path / "elsewhere").exists()


def slowed_down(address: str) -> str | None:
    """Call without a token, each time from another address as far as one believes it, until that is refused."""
    for number in range(500):
        connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=60)
        connection.request("GET", "/v1/db/demo", headers={"X-Forwarded-For": f"198.51.100.{number % 250}"})
        answer = connection.getresponse()
        connection.close()
        if answer.status == 429:
            return answer.headers["retry-after"]
    return None


@pytest.mark.fault("serving-installs-everything")
def test_make_serve_is_the_same_command() -> None:
    """
    `make serve` makes an environment of its own, says so, puts what serving needs into it and no more, and starts it.
    """
    dry = ["make", "-n", "serve", "SERVE=--port 8080", "SERVE_STAMP=no-such-environment/.ready"]
    planned = subprocess.run(dry, cwd=ROOT, capture_output=True, text=True, check=True).stdout

    assert re.search(r"^\.venv-serve/bin/onceward serve --port 8080 ", planned, re.MULTILINE)
    [made] = [line for line in planned.splitlines() if "make_environment.sh .venv-serve 'what serving needs'" in line]
    assert made.endswith(" -c requirements/constraints.txt -e '.[serve]'")


WRONG: dict[str, list[Any]] = {
    "folder": ["", "  "], "store": ["redis://x", "file.db"],
    "sql": ["redis://x", "sqlite:///x.db", "store", "postgresql://x/y?onceward_pool=x"],
    "host": [""], "port": [-1, 65_536, 1.5, True, "x", ""],
    "scope_by": ["user", ""], "retain": [0, -1, "nan", "inf", "1e308", "x", True], "price": [-1, "x", 0.5],
    "statement_seconds": [0, "nan", True], "database_bytes": [0, "1 GB"], "writers": [0, "x"], "readers": [0, "x"],
    "trusted_proxies": ["everyone", "10.0.0.0/99", "10.0.0.1/8"], "flood_burst": [0, "x"],
    "metrics": ["everyone", "10.0.0.0/99"], "dashboard": ["maybe", ""], "dashboard_values": ["maybe", 1],
    "ledger_verify": ["later", ""], "ledger_late": ["never"], "ledger_customers": ["some"], "journal": ["maybe", ""],
    "worker_sandbox": ["on", ""], "worker_user": ["nobody-of-that-name"],
    "journal_retain": [0, "inf"], "hooks_threads": [-1, 1_001, "x"], "hooks_path": ["/no/such/folder"],
    "relay": ["/no/such/file.toml"], "receive_seconds": [0, "inf"], "shutdown_seconds": [0, "x"],
    "in_flight": ["maybe", "", "400"], "in_flight_seconds": [0, "inf", "x"],
    "first_token": ["", " "],
    "send_seconds": [0, "x"], "connections": [0, -1, "x", 1.5], "connections_per_address": [0, "x"],
    "body_bytes": [0, 9_999_999, "x"], "body_bytes_per_tenant": [0, 9_999_999, "x"],
    "tls_certificate": ["/no/such/file.pem"], "tls_key": ["/no/such/file.pem"], "log_rate_bytes": [0, "x"],
    "log_level": ["loud", ""], "mcp": ["maybe", "", 1, "yes"], "without_sql": ["maybe", 1],
    "charge_failed": ["maybe", ""], "databases_max": [0, "x", 1.5], "cpu_per_second": [0, "inf", "x"],
    "cpu_burst": [0, "nan", "x"],
    "seal_keys": ["/no/such/file"], "sealed_only": ["maybe", 1, "true"],
}  # fmt: skip


class TestSettings:
    """Flags, variables and a file: every wrong value names its place."""

    def test_every_setting_has_wrong_values_here(self) -> None:
        """
        A new setting is tried, too, or this fails.
        """
        assert set(Settings.__dataclass_fields__) == WRONG.keys()

    @pytest.mark.parametrize("name", WRONG)
    def test_a_wrong_value_is_told_with_its_place(self, name: str, tmp_path: Path) -> None:
        """
        58 among others: durations of zero, below, infinite, no number. From the flag, the variable and the file.
        """
        file = tmp_path / "serve.toml"
        flag, variable = f"--{name.replace('_', '-')}", PREFIX + name.upper()
        for value in WRONG[name]:
            written = json.dumps(value)
            file.write_text(f"{name} = {written}\n")
            with pytest.raises(ConfigurationError, match=re.escape(f"{file}: {name}")):
                load_settings({}, {}, str(file))
            if isinstance(value, str):
                with pytest.raises(ConfigurationError, match=f"^{variable}"):
                    load_settings({}, {variable: value})
                with pytest.raises(ConfigurationError, match=f"^{flag}"):
                    load_settings({name: value}, {})

    def test_the_place_that_wins_is_the_one_that_is_named(self, tmp_path: Path) -> None:
        """
        A good variable does not hide a bad flag; a bad value in the file is not asked about when a flag is there.
        """
        file = tmp_path / "serve.toml"
        file.write_text("port = 99999\n")

        assert load_settings({"port": "8080"}, {}, str(file)).port == 8_080
        with pytest.raises(ConfigurationError, match=r"^--port"):
            load_settings({"port": "70000"}, {f"{PREFIX}PORT": "80"}, str(file))

    @pytest.mark.parametrize(
        ("text", "words"),
        [("prot = 1", "prot"), ("port = ", "not TOML"), ("[port]\n", "port"), ("\xff", "not TOML"),
         ("trusted_proxies = [1]", "trusted_proxies")],
    )  # fmt: skip
    def test_a_file_that_is_none_is_told(self, tmp_path: Path, text: str, words: str) -> None:
        """
        A typo, no TOML, a table where a value belongs: the file is named.
        """
        file = tmp_path / "serve.toml"
        file.write_text(text, encoding="latin-1")

        with pytest.raises(ConfigurationError, match=words) as told:
            load_settings({}, {}, str(file))
        assert str(file) in str(told.value)

    def test_a_variable_that_is_none_is_told(self) -> None:
        """
        A typo in a variable is not passed over.
        """
        with pytest.raises(ConfigurationError, match="ONCEWARD_SERVE_PROT"):
            load_settings({}, {"ONCEWARD_SERVE_PROT": "1"})

    def test_a_folder_that_is_a_file_is_told(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """
        In one line, with exit code 2.
        """
        (tmp_path / "file").touch()

        assert main(["serve", "--port", "0", "--folder", str(tmp_path / "file")]) == 2
        assert re.fullmatch("onceward: the service cannot use the folder .*/file: .*\n", capsys.readouterr().err)

    def test_a_store_that_cannot_be_reached_is_told_without_its_password(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """
        Exit code 4, and the password is nowhere.
        """
        monkeypatch.setenv("ONCEWARD_PEPPER", "p" * 40)
        url = "postgresql://me:pass-canary@127.0.0.1:1/x"

        assert main(["serve", "--port", "0", "--store", url, "--folder", str(tmp_path / "data")]) == 4
        told = capsys.readouterr()
        assert (told.out, "127.0.0.1:1" in told.err, "pass-canary" in told.err) == ("", True, False)
