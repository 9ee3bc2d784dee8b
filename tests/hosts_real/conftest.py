"""These tests need programs from npm, which are large: `make test-hosts` and `make test-conformance` run them."""

import os

collect_ignore_glob = [] if os.environ.get("METIER_TEST_HOSTS") else ["test_*.py"]
