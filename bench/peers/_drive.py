"""Runs one driver with the interpreter of its peer: imports it, then takes the CPU time of one load, and prints JSON.

A driver with a `prepare(folder)` gets that call first, outside of the clock.
"""

import json
import platform
import runpy
import sys
import time

path, folder = sys.argv[1:]
driver = runpy.run_path(path)
if "prepare" in driver:
    driver["prepare"](folder)
start = time.process_time()
skills = driver["load"](folder)
seconds = time.process_time() - start
print(json.dumps({"seconds": seconds, "skills": skills, "python": platform.python_version()}))
