"""Packages of somebody else, installed into a folder: modules, and the metadata that names their stores."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

import shelf


def install(folder: Path, name: str, stores: Mapping[str, str], modules: Mapping[str, str]) -> Path:
    """Install a package as pip would leave it: modules by name, and entry points of the group `onceward.stores`."""
    folder.mkdir(parents=True, exist_ok=True)
    for module, text in modules.items():
        (folder / f"{module}.py").write_text(text, encoding="utf-8")
    metadata = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", encoding="utf-8")
    points = "".join(f"{scheme} = {value}\n" for scheme, value in stores.items())
    (metadata / "entry_points.txt").write_text(f"[onceward.stores]\n{points}", encoding="utf-8")
    return folder


def install_shelf(folder: Path) -> Path:
    """The package of docs/how-to/write-a-store.md, with the names that its own pyproject.toml has."""
    project = tomllib.loads(shelf.PROJECT)["project"]
    return install(folder, project["name"], project["entry-points"]["onceward.stores"], {"shelf": shelf.SOURCE})
