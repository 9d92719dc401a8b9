#!/bin/sh
# Makes a virtual environment and installs into it; says what it does, and if it cannot, what to type.
#
#   TARGET=serve VARIABLE=SERVE_VENV PYTHON=python3 sh tools/make_environment.sh FOLDER WHAT SIZE PIP-ARGUMENTS...
#
# WHAT is what it is for, SIZE how much it takes, in words. For any shell: there may be no Python here that could say it.
set -u
folder=$1 what=$2 size=$3
shift 3
target=${TARGET:-setup} variable=${VARIABLE:-VENV} python=${PYTHON:-python3}
log=$folder/install.log
is_new_enough='import sys; sys.exit(sys.version_info < (3, 11))'

say() { printf '%s\n' "$*"; }

stop() {  # What happened, then what to type.
    printf '\nmake %s: %s\n' "$target" "$1" >&2
    shift
    printf '  %s\n' "$@" >&2
    exit 1
}

newer() {  # A Python on the PATH that is new enough, and runs.
    for one in python3.14 python3.13 python3.12 python3.11; do
        if "$one" -c "$is_new_enough" >/dev/null 2>&1; then
            say "$one"
            return
        fi
    done
}

how_to_get_python() {
    say "Debian 12, Ubuntu 24.04 and later:  sudo apt install python3 python3-venv"
    say "  Fedora:  sudo dnf install python3.13      macOS:  brew install python@3.13"
    say "  then:  make $target PYTHON=python3.13   (or whatever it is called)"
}

check_python() {
    other=$(newer)
    if ! version=$("$python" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null); then
        [ -z "$other" ] || stop "there is no $python that runs. Type:" "make $target PYTHON=$other"
        stop "there is no $python that runs. Install Python 3.11 or later:" "$(how_to_get_python)"
    fi
    if ! "$python" -c "$is_new_enough"; then
        [ -z "$other" ] || stop "$python is Python $version, and Onceward needs 3.11 or later. Type:" "make $target PYTHON=$other"
        stop "$python is Python $version, and Onceward needs 3.11 or later. Install one:" "$(how_to_get_python)"
    fi
    if ! "$python" -c 'import venv, ensurepip' >/dev/null 2>&1; then
        minor=${version%.*}
        stop "$python (Python $version) has no module to make virtual environments with; Debian and Ubuntu have it in a package of its own. Type:" \
            "sudo apt install python$minor-venv" "make $target"
    fi
}

check_folder() {
    if ! refusal=$(mkdir -p "$folder" 2>&1) || ! refusal=$({ : >"$log"; } 2>&1); then
        more=
        [ "$target" != serve ] || more=" SERVE='--folder ~/onceward-data'"
        stop "cannot write to $folder: ${refusal##*: }. Put it elsewhere, or make this folder yours:" \
            "make $target $variable=~/.cache/onceward/$target$more" "sudo chown -R \"\$USER\" '$(pwd)'"
    fi
}

make_it() {
    "$folder/bin/python" -c "$is_new_enough" >/dev/null 2>&1 && "$folder/bin/python" -m pip --version >/dev/null 2>&1 && return
    # Without pip, or by a Python that is gone: what is left of an earlier try.
    say "  1 of 2: an environment of its own in $folder, with $python (Python $version)"
    said=$("$python" -m venv --clear "$folder" 2>&1) ||
        stop "$python could not make an environment in $folder. It said:" "$(say "$said" | tail -n 5)"
}

install() {
    say "  2 of 2: $what ($size)"
    packages=0
    { "$folder/bin/python" -m pip install --no-compile --disable-pip-version-check --progress-bar off "$@" 2>&1; echo "exit $?"; } |
        while IFS= read -r line; do
            say "$line" >>"$log"
            case $line in
            Collecting* | Processing*.whl*)
                packages=$((packages + 1))
                [ ! -t 2 ] || printf '\r          %d packages found' "$packages" >&2
                ;;
            "Installing collected"*)
                [ ! -t 2 ] || printf '\r          %d packages found; unpacking' "$packages" >&2
                ;;
            esac
        done
    [ ! -t 2 ] || printf '\r%60s\r' '' >&2
    [ "$(tail -n 1 "$log")" = "exit 0" ] || stop "pip could not install $what. It said:" \
        "$(grep -iE '^ *(error|.*(timed out|refused|resolution|unreachable))' "$log" | head -n 5)" \
        "All of it is in $log. Without a network, or behind a proxy, pip needs to be told (PIP_PROXY, PIP_INDEX_URL); then:" \
        "make $target"
}

began=$(date +%s)
check_python
check_folder
say "make $target: setting itself up, once"
make_it
install "$@"
: >"$folder/.ready"
say "  ready: $(du -sm "$folder" | cut -f 1) MB in $folder, $(($(date +%s) - began)) s"
