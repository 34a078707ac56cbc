"""``python -m cb_trace``."""

from cb_trace.cli import main

if __name__ == "__main__":
    main()
