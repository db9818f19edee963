"""`python -m keras_introspect`."""

import sys

from keras_introspect.cli import main

if __name__ == "__main__":
    sys.exit(main())
