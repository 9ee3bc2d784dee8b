#!/bin/sh
# Proves that a host ran a script of a skill: prints a marker, then its arguments, one a line.
# It reads nothing, writes nothing but its output, and needs no network.
set -eu

printf '%s\n' 'METIER-VALIDATION-SCRIPT-6J1X'
printf 'arguments: %d\n' "$#"
for argument in "$@"; do
    printf 'argument: [%s]\n' "$argument"
done
