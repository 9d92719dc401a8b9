"""
Build the site of the documentation: `make docs` (build/site), and look at it: `make docs-serve`.

    python tools/docs_site.py            build; a dead link or anchor, or anything from another host, is an error
    python tools/docs_site.py --serve    the built site on 127.0.0.1 (--port 8700)
    python tools/docs_site.py --stage    only put together what the generator reads, in build/docs

Building needs the environment of `make docs` (`.venv-docs`).
"""

from __future__ import annotations

import argparse
import functools
import http.server
import shutil
import subprocess
import sys
from pathlib import Path

from site_builder.outside import outside_loads
from site_builder.staging import BUILT, Staging

ROOT = Path(__file__).resolve().parent.parent
STAGED = ROOT / "build" / "docs"
SITE = ROOT / "build" / "site"

FILE_WORKER = "https://unpkg.com/iframe-worker/shim"
FILE_WORKER_OURS = "file_worker.js"


def main(arguments: list[str] | None = None) -> int:
    """Build, or serve what was built."""
    parser = argparse.ArgumentParser(description="The site of the documentation.")
    parser.add_argument("--serve", action="store_true", help="serve build/site on this machine")
    parser.add_argument("--port", type=int, default=8700, help="where to serve it (8700)")
    parser.add_argument("--stage", action="store_true", help="only put together what the generator reads")
    chosen = parser.parse_args(arguments)
    if chosen.serve:
        return serve(chosen.port)
    Staging(ROOT, STAGED).write()
    return 0 if chosen.stage else build()


def build() -> int:
    """Run the generator over what was put together; then look for anything that would be loaded from elsewhere."""
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean"]
    code = subprocess.run(command, cwd=STAGED, check=False).returncode
    if code:
        print(
            "make docs: the generator found what is listed above. Mend it in docs/, or in the docstring",
            file=sys.stderr,
        )
        return code
    if SITE.exists():
        shutil.rmtree(SITE)
    (STAGED / BUILT).rename(SITE)
    keep_search_here(SITE)
    loads = outside_loads(SITE)
    if loads:
        print("make docs: these pages would load something from another host:", *loads, sep="\n  ", file=sys.stderr)
        return 1
    pages = sum(1 for _ in SITE.rglob("*.html"))
    print(f"build/site: {pages} pages. Open build/site/index.html, or `make docs-serve`")
    return 0


def keep_search_here(site: Path) -> None:
    """For pages that are opened as files the generator loads a script from another host; ours does the same."""
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        up = "../" * (len(page.relative_to(site).parts) - 1)
        page.write_text(text.replace(f'src="{FILE_WORKER}"', f'src="{up}{FILE_WORKER_OURS}"'), encoding="utf-8")


def serve(port: int) -> int:
    """Serve the built site on this machine until interrupted."""
    if not (SITE / "index.html").is_file():
        print("make docs-serve: there is no site yet. Build it: make docs", file=sys.stderr)
        return 1
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(SITE))
    try:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", port), handler)
    except OSError as error:
        print(
            f"make docs-serve: port {port} cannot be used ({error}). Choose another: make docs-serve PORT=8701",
            file=sys.stderr,
        )
        return 1
    print(f"http://127.0.0.1:{port}/  (Ctrl-C ends it)", flush=True)
    with server:
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
