"""Each framework has an environment of its own, which `make test-recipes` creates; nothing else runs these tests."""

import os

collect_ignore_glob = [] if os.environ.get("METIER_TEST_RECIPES") else ["test_*.py"]
