"""`python -m scripts.pictures`: draws every picture."""

from __future__ import annotations

from scripts.pictures.drawings import DIRECTORY, DRAWINGS


def main() -> None:
    DIRECTORY.mkdir(exist_ok=True)
    for name, draw in DRAWINGS.items():
        (DIRECTORY / name).write_text(draw())
        print(f"docs/pictures/{name}")


if __name__ == "__main__":
    main()
