"""These tests need a real language model, which is built for them: `make test-model` runs them, nothing else does."""

import os

collect_ignore_glob = [] if os.environ.get("METIER_TEST_MODEL") else ["test_*.py"]
