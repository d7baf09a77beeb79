"""`pe`, also as `python -m pe_cli`."""

from __future__ import annotations

from typing import NoReturn


def main() -> NoReturn:
    """Run `pe`; a signal during the imports ends it without a word."""
    from pe_cli.cli import main

    main()


if __name__ == "__main__":
    main()
