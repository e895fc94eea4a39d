# SPDX-License-Identifier: Apache-2.0
"""`python -m litesmith` is the command line."""

from litesmith.cli import main

if __name__ == "__main__":
    main()
