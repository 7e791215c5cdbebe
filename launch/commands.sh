# Sourced by the scripts that start runs: how they refuse, quote, and act or only print.
# shellcheck shell=bash

dry_run=false

say() {
    echo "$(basename "$0"): $*" >&2
}

fail() { # one line and exit code 2, as everywhere in bert_jax
    say "$*"
    exit 2
}

usage() { # the comment at the head of the script, and that is all
    sed -n '2,/^[^#]/s/^# \{0,1\}//p' "launch/$(basename "$0")"
    exit
}

quoted() { # WORDS...: one line that every shell reads as these words
    local word line=""
    for word in "$@"; do
        case $word in
            "" | *[!A-Za-z0-9_@%+=:,./-]*) word="'${word//\'/\'\\\'\'}'" ;;
        esac
        line="$line$word "
    done
    printf '%s' "${line% }"
}

act() { # COMMAND...: runs it; a dry run prints it
    if "$dry_run"; then
        quoted "$@"
        echo
    else
        "$@"
    fi
}

require() { # COMMAND REMEDY: it must be installed; a dry run does without
    "$dry_run" || command -v "$1" > /dev/null || fail "$1 is not installed; $2"
}

need_value() { # OPTION COUNT: COUNT words are left, the option among them
    [ "$2" -ge 2 ] || fail "$1 needs a value; see --help"
}

need_number() { # OPTION VALUE
    case $2 in
        "" | 0* | *[!0-9]*) fail "$1 $2: not a number of at least 1" ;;
    esac
}

check_verb() { # ARGUMENTS of bert-jax...: what several processes do together
    case ${1-} in
        train | evaluate) ;;
        "") fail "what is to run? give it after --, as: -- train --config FILE --workdir RUN" ;;
        *) fail "-- $1: only train and evaluate run in several processes" ;;
    esac
}

workdir_of() { # ARGUMENTS of bert-jax...: prints the value of --workdir
    local word previous=""
    for word in "$@"; do
        [ "$previous" != --workdir ] || printf '%s' "$word"
        case $word in --workdir=*) printf '%s' "${word#--workdir=}" ;; esac
        previous=$word
    done
}

check_remote_workdir() { # ARGUMENTS of bert-jax...: machines that go away cannot keep a run
    local workdir
    workdir=$(workdir_of "$@")
    case $workdir in
        *://*) ;;
        "") fail "-- $1 needs --workdir gs://BUCKET/RUN" ;;
        *) fail "--workdir $workdir would be lost with the machine; give gs://BUCKET/RUN" ;;
    esac
}

installed_bert_jax() { # prints the command: that on the PATH, else that of launch/local.sh
    command -v bert-jax || echo .venv/bin/bert-jax
}
