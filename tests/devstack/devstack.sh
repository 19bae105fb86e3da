#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# stack.sh, unstack.sh and clean.sh of DevStack, reduced to the plugins:
#
#   devstack.sh TOP stack [LAST_PHASE]|settings|unstack|clean
#
# TOP is a folder with "localrc", "stackrc" and DEST, "opt", which has the
# plugins "ironic" and "sushy-kubevirt". Of the functions of DevStack there are
# those that the plugins call; they do what DevStack's do, except that
# services.sh runs services instead of systemd, and packages are only noted.
# shellcheck disable=SC1090,SC1091,SC2034

TOP_DIR=$1
DEST=$TOP_DIR/opt
DATA_DIR=$DEST/data
SYSTEMD_DIR=$TOP_DIR/systemd
LOGDIR=$TOP_DIR/logs
TEMPEST_CONFIG=$TOP_DIR/tempest.conf
STACK_USER=$(id -un)
PYTHON=$(type -P python3)
SERVICE_TIMEOUT=60
SERVICE_PROTOCOL=http
HOST_IP=192.0.2.1
SERVICE_HOST=$HOST_IP
GIT_BASE=https://opendev.org
PRIVATE_NETWORK_NAME=private
PUBLIC_BRIDGE_MTU=1500
ENABLED_SERVICES=key,tempest
DISABLED_SERVICES=
declare -A GITREPO GITBRANCH GITDIR
mkdir -p "$LOGDIR" "$DATA_DIR"
# lib/ironic sets xtrace.
exec 4> /dev/null
BASH_XTRACEFD=4

function enable_plugin {
    :
}

function disable_service {
    local service
    for service in "$@"; do
        DISABLED_SERVICES+=,$service
    done
}

function define_plugin {
    :
}

function plugin_requires {
    :
}

function is_ubuntu {
    return 0
}

function is_fedora {
    return 1
}

function use_library_from_git {
    return 1
}

function get_python_exec_prefix {
    dirname "$PYTHON"
}

function echo_summary {
    echo "$@" | tee -a "$LOGDIR/summary" >&2
}

function warn {
    echo "[WARNING] ${BASH_SOURCE[1]}:$1 $2"
}

function sudo {
    "$@"
}

function add_user_to_group {
    echo "$1 $2" >> "$LOGDIR/groups"
}

function install_package {
    echo "$@" >> "$LOGDIR/packages"
}

function install_bindep {
    echo "$@" >> "$LOGDIR/bindep"
}


function die {
    echo "[ERROR] ${BASH_SOURCE[1]}:$1 $2" >&2
    exit 1
}

function die_if_not_set {
    if [[ -z "${!2}" ]]; then
        die "$1" "$3"
    fi
}

function trueorfalse {
    case "${!2}" in
        1|[yY]es|YES|[tT]rue|TRUE) echo True ;;
        0|[nN]o|NO|[fF]alse|FALSE) echo False ;;
        *) echo "$1" ;;
    esac
}

function is_service_enabled {
    local service
    for service in "$@"; do
        if [[ ,$ENABLED_SERVICES, =~ ,$service, ]]; then
            return 0
        fi
    done
    return 1
}

function enable_service {
    local service
    for service in "$@"; do
        if [[ ! ,$DISABLED_SERVICES, =~ ,$service, ]] \
                && ! is_service_enabled "$service"; then
            ENABLED_SERVICES+=",$service"
        fi
    done
}

# Sections may be repeated: the reader has to merge them.
function iniset {
    if [[ "$1" == "-sudo" ]]; then
        shift
    fi
    printf '[%s]\n%s = %s\n' "$2" "$3" "$4" >> "$1"
}

# run_process service command
function run_process {
    if is_service_enabled "$1"; then
        echo "start $1 $2" > "$TOP_DIR/services"
        until [[ -f $LOGDIR/$1.pid ]]; do
            sleep 0.1
        done
    fi
}

# stop_process service
function stop_process {
    if is_service_enabled "$1" && [[ -f $LOGDIR/$1.pid ]]; then
        echo "stop $1" > "$TOP_DIR/services"
        while [[ -f $LOGDIR/$1.pid ]]; do
            sleep 0.1
        done
    fi
}

# run_phase mode [phase]
function run_phase {
    local plugin
    for plugin in ironic sushy-kubevirt; do
        if [[ $plugin == sushy-kubevirt ]]; then
            source "$DEST/sushy-kubevirt/devstack/plugin.sh" "$@"
        else
            # Of Ironic's plugin.sh, which installs and starts Ironic, the
            # part that uses the nodes.
            source "$DEST/ironic/devstack/lib/ironic"
            if [[ "$1 $2" == "stack extra" ]]; then
                enroll_nodes
            fi
        fi
    done
}

source "$TOP_DIR/localrc"
if [[ "$2" == "stack" ]]; then
    set -o errexit
fi
if [[ "$2" != "clean" ]]; then
    source "$DEST/sushy-kubevirt/devstack/override-defaults"
fi
for plugin in ironic sushy-kubevirt; do
    source "$DEST/$plugin/devstack/settings"
done
if [[ "$2" == "settings" ]]; then
    # For an ironic.conf like that which lib/ironic would write.
    source "$DEST/ironic/devstack/lib/ironic"
    for name in ${!IRONIC_ENABLED_*} ${!IRONIC_DEFAULT_*} \
            IRONIC_AUTOMATED_CLEAN_ENABLED; do
        echo "$name=${!name}" >> "$TOP_DIR/variables"
    done
    exit
fi
if [[ "$2" != "stack" ]]; then
    run_phase "$2"
    exit
fi
for phase in pre-install install post-config extra test-config; do
    run_phase stack $phase
    if [[ "$3" == "$phase" ]]; then
        break
    fi
done
echo "flavor: $IRONIC_HW_NODE_CPU $IRONIC_HW_NODE_RAM $IRONIC_HW_NODE_DISK"
echo "sandbox: $SUSHY_KUBEVIRT_SANDBOX_MEMORY"
