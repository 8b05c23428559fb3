"""`python -m scripts.reference`: writes every generated page."""

from __future__ import annotations

from scripts.reference.pages import DIRECTORY, PAGES


def main() -> None:
    DIRECTORY.mkdir(exist_ok=True)
    for name, page in PAGES.items():
        (DIRECTORY / name).write_text(page())
        print(f"docs/reference/{name}")


if __name__ == "__main__":
    main()
