#!/bin/sh
# Checks every HTML file below a folder (or one file) with check_html.py, which lies beside this script.
#
#   check.sh PATH [options of check_html.py]
#
# Exit code: 0 nothing to report, 1 findings (or a file that could not be read), 2 wrong usage.
set -eu

usage() {
    printf 'usage: check.sh PATH [options of check_html.py]\n' >&2
    exit 2
}

[ "$#" -ge 1 ] || usage
target=$1
shift

case $target in
    -h | --help)
        printf 'usage: check.sh PATH [options of check_html.py]\n'
        exit 0
        ;;
    '') usage ;;
    -*) target=./$target ;;
esac

if [ ! -e "$target" ]; then
    printf 'check.sh: %s: no such file or folder\n' "$target" >&2
    exit 2
fi

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
python=${PYTHON:-python3}
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    printf 'check.sh: Python 3.11 or newer is needed; set PYTHON to its path\n' >&2
    exit 2
fi

if [ -f "$target" ]; then
    exec "$python" -B "$here/check_html.py" "$@" -- "$target"
fi

# A first look, so that a folder without pages is an error and not a silent success.
found=$(find "$target" \( -name .git -o -name node_modules \) -prune -o \
    -type f \( -name '*.html' -o -name '*.htm' \) -print | head -n 1)
if [ -z "$found" ]; then
    printf 'check.sh: %s: no .html or .htm file below it\n' "$target" >&2
    exit 2
fi

if find "$target" \( -name .git -o -name node_modules \) -prune -o \
    -type f \( -name '*.html' -o -name '*.htm' \) -exec "$python" -B "$here/check_html.py" "$@" -- {} +; then
    exit 0
fi
exit 1
