"""Makes `chakra_files` and `clos_graphs` importable."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
