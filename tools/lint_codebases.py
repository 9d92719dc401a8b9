"""
Run the Python rules over real code bases from PyPI, and list the alarms, to be read by hand.

    python tools/lint_codebases.py FOLDER [NAME==VERSION ...]

FOLDER is scratch: wheels are downloaded and unpacked there, and nothing of them is run. Without names, the code bases
of docs/reference/lint-alarms.md are taken, in the versions that were read. What is printed is that page's tables: an
alarm that was read before has its verdict, a new one has `?`, and a line at the end says whether there is any.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import zipfile
from pathlib import Path

from onceward.lint.lint_run import LintReport, lint_files
from onceward.lint.python.checks import CODES, check_python
from onceward.lint.settings import LintSettings

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "lint-alarms.md"
CODE_BASES = (
    "adlfs==2026.8.0",
    "africastalking==2.0.3",
    "ag2==1.2.1",
    "agency-swarm==0.7.2",
    "agent-framework-core==1.23.0",
    "agentops==0.4.21",
    "agno==3.1.10",
    "aio-pika==10.2.1",
    "aiobotocore==3.10.0",
    "aiokafka==0.14.0",
    "apache-airflow-core==3.3.2",
    "apache-airflow-providers-amazon==9.39.0",
    "apache-airflow-providers-cncf-kubernetes==10.25.0",
    "apache-airflow-providers-google==22.8.0",
    "apache-airflow-providers-http==6.3.0",
    "apache-airflow-providers-microsoft-azure==15.2.1",
    "apache-libcloud==3.9.1",
    "apprise==2.2.0",
    "astronomer-cosmos==1.15.1",
    "atproto==0.0.73",
    "aws-lambda-powertools==3.37.0",
    "aws-sam-cli==1.170.0",
    "awswrangler==3.17.1",
    "b2sdk==2.13.2",
    "beeai-framework==0.1.85",
    "bigcommerce==0.23.4",
    "braintree==4.48.0",
    "brevo-python==5.1.0",
    "browser-use==0.13.14",
    "buildbot==4.3.0",
    "cashfree-pg==6.0.1",
    "celery==5.7.0",
    "chainlit==2.12.0",
    "chalice==1.34.0",
    "chancy==0.26.0",
    "chargebee==3.29.0",
    "checkout-sdk==4.8.1",
    "checkov==3.3.30",
    "coiled==1.135.6",
    "commercetools==2026.10.12",
    "conductor-python==2.0.0",
    "confluent-kafka==2.16.1",
    "crawl4ai==0.9.5",
    "customerio==3.2.0",
    "cylc-flow==8.5.4",
    "dagster-aws==0.29.27",
    "dask-cloudprovider==2025.9.0",
    "dask-gateway==2026.3.0",
    "databricks-sdk==0.162.0",
    "dbos==3.3.0",
    "disnake==2.12.2",
    "dj-stripe==2.11.0",
    "django-anymail==15.2",
    "django-celery-email==3.0.0",
    "django-mailer==2.3.2",
    "django-oscar-api==3.3.0",
    "django-oscar==4.2.1",
    "django-post-office==3.12.0",
    "django-q2==1.11.1",
    "django-rq==4.2.0",
    "django-salesman==1.3.0",
    "django-ses==4.8.2",
    "django-shop==1.2.4",
    "dlt==1.31.0",
    "dramatiq==2.2.1",
    "dspy==3.4.1",
    "dstack==0.22.5",
    "dwollav2==2.3.0",
    "ebaysdk==2.2.0",
    "eventsourcing==9.5.6",
    "fastapi-mail==1.6.8",
    "faststream==0.7.8",
    "faust-streaming==0.15.3",
    "fbchat==1.9.7",
    "fintoc==2.26.0",
    "firebase-admin==7.7.0",
    "firecrawl-py==4.54.0",
    "fireworks==2.1.4",
    "flask-mailman==1.1.1",
    "flytekit==1.16.31",
    "freqtrade==2026.9",
    "gpt-researcher==0.16.1",
    "hatchet-sdk==1.43.1",
    "haystack-ai==3.4.1",
    "hera==7.1.0",
    "hikari==2.7.0",
    "imbox==0.10.1",
    "indico==3.0rc1",
    "infobip-api-python-sdk==5.0.1",
    "inngest==0.5.19",
    "instagrapi==3.2.2",
    "iyzipay==1.0.46",
    "jesse==3.5.3",
    "jobflow==0.4.0",
    "jupyterhub==6.1.1",
    "kafka-python==3.0.12",
    "kedro==1.7.0",
    "kfp==2.17.3",
    "lago-python-client==1.55.0",
    "langchain-community==0.4.2",
    "lfs==0.2",
    "litellm==1.108.4",
    "llama-index-core==0.14.25",
    "llama-stack==0.7.3",
    "lnbits==1.6.2",
    "localstack-core==2026.3.0",
    "longclaw==1.0.2",
    "luigi==3.8.1",
    "lumibot==4.6.30",
    "mage-ai==0.9.80",
    "mastodon.py==2.3.3",
    "mattermostdriver==7.3.2",
    "mautrix==0.21.1",
    "mercadopago==3.6.0",
    "messagebird==2.2.0",
    "metaflow==2.19.39",
    "midtransclient==1.4.2",
    "mlflow==3.18.0",
    "modal==1.6.3",
    "moto==5.2.5",
    "nextcord==3.2.0",
    "octobot==2.1.1",
    "open-webui==0.12.4",
    "openpay==0.6",
    "posthog==7.79.0",
    "prefect==3.9.0",
    "pretix==2026.8.0",
    "pulumi==3.272.0",
    "py-cord==2.8.1",
    "pydantic-ai-slim==2.66.0",
    "pyfcm==2.1.1",
    "pyrogram==2.0.106",
    "python-telegram-bot==22.8",
    "recurly==4.79.0",
    "rq==2.12.0",
    "runpod==1.12.0",
    "schwab-py==1.5.1",
    "semantic-kernel==1.45.0",
    "sendgrid==6.12.5",
    "sentry-sdk==2.74.0",
    "skypilot==0.14.1",
    "skyvern==1.0.56",
    "slack-sdk==3.46.0",
    "smolagents==1.26.0",
    "snowflake-connector-python==5.2.0",
    "streamlink==8.6.3",
    "stripe==16.1.0",
    "svix==2.9.1",
    "swarms==16.0.3",
    "tda-api==1.6.0",
    "telethon==1.45.0",
    "temporalio==1.35.0",
    "tweepy==4.17.0",
    "vanna==2.0.2",
    "vk-api==11.10.1",
    "vnpy==4.5.0",
    "weblate==2026.10.1",
    "wechatpy==1.8.18",
    "zenml==0.98.0",
)
"""Those that the rules were put right by: payments, messages, queues, clouds, schedulers, shops, traders, agents."""
HELD_OUT = (
    "gcsfs==2026.10.1",
    "google-adk==2.13.0",
    "juju==3.6.1.3",
    "khoj==1.42.10",
    "kuyruk==10.2.2",
    "livekit-agents==1.8.9",
    "mailchimp-marketing==3.0.80",
    "mailersend==2.2.0",
    "mailgun==1.10.0",
    "mailjet-rest==1.9.1",
    "mailman==3.3.10",
    "mcp-agent==0.2.6",
    "minio==7.2.20",
    "mws==0.8.15",
    "nameko==2.14.1",
    "nats-py==2.16.0",
    "neonize==0.5.2",
    "nylas==6.18.0",
    "odoorpc==0.10.1",
    "onesignal-sdk==2.0.0",
    "open-interpreter==0.4.3",
    "openai-agents==0.24.0",
    "paddle-python-sdk==1.16.1",
    "pagarme-python==5.9.0",
    "parsl==2026.10.26",
    "payjp==1.6.1",
    "paypal-server-sdk==2.4.0",
    "pgqueuer==1.6.0",
    "pika==1.4.4",
    "pipecat-ai==1.14.0",
    "plivo==4.63.0",
    "ploomber==0.23.3",
    "polar-sdk==1.0.2",
    "postmarker==1.0",
    "praisonaiagents==1.7.17",
    "prestapyt==0.11.1",
    "pretalx==2025.2.2",
    "proxmoxer==2.3.0",
    "pulsar-client==3.13.0",
    "pymagento==2.14.0",
    "pypyr==5.9.1",
    "python-amazon-ad-api==1.2.9",
    "pywa==4.5.0",
    "pyzeebe==4.7.0",
    "qiniu==7.18.0",
    "repid==2.1.4",
    "resend==2.50.1",
    "restate-sdk==1.2.0",
    "s3fs==2026.9.0",
    "saq==0.26.4",
    "sceptre==4.7.0",
    "shipengine==2.1.1",
    "shuup==3.1.0",
    "slixmpp==1.17.0",
    "snakemake==9.27.1",
    "sopel==8.0.4",
    "telnyx==4.189.0",
    "toil==9.6.0",
    "twitchio==3.3.2",
    "wmill==1.850.0",
    "xendit-python==7.0.0",
    "zappa==0.63.0",
)
"""Those that were looked at afterwards, and not put right by; lint-alarms.md says how they were chosen."""

_ROW = re.compile(r"^\| (OW\d+) \| `([^`]+)` \| (true|false) \| (.+) \|$")


def read_verdicts(page: str) -> dict[str, dict[tuple[str, str], tuple[str, str]]]:
    """The page: code base -> (code, place) -> (verdict, words)."""
    verdicts: dict[str, dict[tuple[str, str], tuple[str, str]]] = {}
    for line in page.splitlines():
        if line.startswith("### "):
            current = verdicts.setdefault(line.split()[1].rstrip(":"), {})
        elif found := _ROW.match(line):
            current[found[1], found[2]] = found[3], found[4]
    return verdicts


def download(name: str, folder: Path) -> Path:
    """The Python files of a package's wheel, downloaded if they are not there yet."""
    target = folder / name
    if not target.is_dir():
        wheels = folder / "wheels" / name
        command = ["pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "-d", str(wheels), name]
        subprocess.run([sys.executable, "-m", *command], check=True)
        (wheel,) = wheels.iterdir()
        with zipfile.ZipFile(wheel) as opened:
            opened.extractall(target, [one for one in opened.namelist() if one.endswith(".py")])
    return target


def lint(folder: Path) -> LintReport:
    """What the Python rules say about a code base, without its tests."""
    settings = LintSettings(codes=CODES)  # Without OW9xx: a file may need a later Python, or be a template.
    return lint_files([folder], settings, suffixes=(".py",), check=check_python, codes=CODES, tests=False)


def table_of(
    name: str, folder: Path, report: LintReport, verdicts: dict[tuple[str, str], tuple[str, str]]
) -> list[str]:
    """The section of the page about one code base."""
    lines = sum(file.read_bytes().count(b"\n") for file in folder.rglob("*.py") if file.is_file())
    rows = [f"### {name}: {lines:,} lines, {len(report.findings)} alarms\n"]
    if report.findings:
        rows.append("| rule | place | verdict | |\n|---|---|---|---|")
    for finding in report.findings:
        place = f"{Path(finding.path).relative_to(folder)}:{finding.line}"
        verdict, words = verdicts.get((finding.code, place), ("?", finding.message))
        rows.append(f"| {finding.code} | `{place}` | {verdict} | {words} |")
    return [*rows, ""]


def main() -> int:
    """Download, lint, print the tables; exit code 1 if an alarm has no verdict or a verdict no alarm."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip().partition("\n")[0])
    parser.add_argument("folder", type=Path, help="a scratch folder")
    parser.add_argument("names", nargs="*", default=[*CODE_BASES, *HELD_OUT], help="NAME==VERSION on PyPI")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    verdicts = read_verdicts(PAGE.read_text(encoding="utf-8")) if PAGE.is_file() else {}
    new = gone = 0
    for name in args.names:
        folder = download(name, args.folder)
        known = verdicts.get(name, {})
        rows = table_of(name, folder, lint(folder), known)
        print("\n".join(rows))
        new += (unread := sum(" | ? | " in row for row in rows))
        gone += len(known) - (len([row for row in rows if row.startswith("| OW")]) - unread)
    print(f"{new} alarms have no verdict, {gone} verdicts have no alarm")
    return 1 if new or gone else 0


if __name__ == "__main__":
    raise SystemExit(main())
