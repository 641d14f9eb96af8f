"""``python -m intattention``."""

from intattention.cli import main

if __name__ == "__main__":
    main()
