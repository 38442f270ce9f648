"""`python -m isim`."""

import sys

from isim.cli.main import main

sys.exit(main())
