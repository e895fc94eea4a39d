# SPDX-License-Identifier: Apache-2.0
"""The command line: one file a verb; each parses, calls one public function, prints."""


def main() -> None:
    """Run the command line."""
    from litesmith.cli._app import main as run

    run()
