"""Check every link of the built site without the network.

    python docs/check_links.py docs/_build/html

A link inside the site must lead to a file that exists and, where it names a place, to that place.
Links to elsewhere are listed in ``external_links.txt`` beside the site and never fetched.
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

#: What a browser asks for or a reader may click, by the name of its tag.
ATTRIBUTES = {"a": "href", "link": "href", "img": "src", "script": "src", "iframe": "src"}


class Page(HTMLParser):
    """The links of a page and the places in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the link and the place of a tag."""
        found = dict(attrs)
        self.places |= {value for name in ("id", "name") if (value := found.get(name))}
        link = found.get(ATTRIBUTES.get(tag, ""))
        if link:
            self.links.add(link)


def read(folder: Path) -> dict[Path, Page]:
    """Return the pages of a site by their files; ``_static`` holds parts of the theme."""
    files = [file for file in sorted(folder.rglob("*.html")) if "_static" not in file.parts]
    return {file.resolve(): Page(file.read_text(encoding="utf-8")) for file in files}


def broken(file: Path, link: str, pages: dict[Path, Page]) -> str | None:
    """Return what is wrong with a link inside the site, None if nothing is."""
    parts = urlsplit(link)
    target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
    if not target.exists():
        return f"{file.name}: {link} leads to no file"
    place = unquote(parts.fragment)
    if place and target in pages and place not in pages[target].places:
        return f"{file.name}: {link} names a place that {target.name} does not have"
    return None


def main(folder: Path) -> int:
    """Print what is broken, write the list of external links, return the exit code."""
    pages = read(folder)
    external: set[str] = set()
    faults: list[str] = []
    for file, page in pages.items():
        for link in sorted(page.links):
            if urlsplit(link).scheme or link.startswith("//"):
                external.add(link)
            elif fault := broken(file, link, pages):
                faults.append(fault)
    (folder.parent / "external_links.txt").write_text("\n".join(sorted(external)) + "\n")
    for fault in faults:
        print(fault)
    count = sum(len(page.links) for page in pages.values())
    print(f"{len(pages)} pages, {count} links, {len(faults)} broken, {len(external)} external.")
    return 1 if faults or not pages else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
