#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# plugin.sh - DevStack plugin: nodes for Ironic from VMs of KubeVirt.
#
# DevStack calls it as documented at
# https://docs.openstack.org/devstack/latest/plugins.html#plugin-sh-contract

# shellcheck source=devstack/lib/sushy-kubevirt
source "$SUSHY_KUBEVIRT_DIR/devstack/lib/sushy-kubevirt"

if is_service_enabled sushy-kubevirt; then
    if [[ "$1" == "stack" && "$2" == "pre-install" ]]; then
        check_sushy_kubevirt_settings
        echo_summary "Installing packages for sushy-kubevirt"
        install_bindep "$SUSHY_KUBEVIRT_DIR/bindep.txt" devstack
        check_sushy_kubevirt_programs
    elif [[ "$1" == "stack" && "$2" == "install" ]]; then
        echo_summary "Installing sushy-kubevirt"
        install_sushy_kubevirt
        write_sushy_kubevirt_cluster
        check_sushy_kubevirt_cluster
    elif [[ "$1" == "stack" && "$2" == "post-config" ]]; then
        # Ironic's plugin reads the hardware info file in its "extra", which
        # comes after every plugin's "post-config".
        if [[ "$SUSHY_KUBEVIRT_SANDBOX" == "True" ]]; then
            echo_summary "Starting the KubeVirt sandbox"
            start_sushy_kubevirt_sandbox
        fi
        if [[ -n "$SUSHY_KUBEVIRT_MANIFESTS" ]]; then
            echo_summary "Installing the operator of sushy-kubevirt"
            install_sushy_kubevirt_operator
        fi
        echo_summary "Creating VMs and BMCs in KubeVirt"
        create_sushy_kubevirt_nodes
    elif [[ "$1" == "stack" && "$2" == "extra" ]]; then
        echo_summary "VMs and BMCs in KubeVirt:"
        show_sushy_kubevirt_nodes
    elif [[ "$1" == "stack" && "$2" == "test-config" ]]; then
        if is_service_enabled tempest; then
            echo_summary "Configuring Tempest for VMs of KubeVirt"
            configure_tempest_sushy_kubevirt
        fi
    fi

    if [[ "$1" == "unstack" ]]; then
        cleanup_sushy_kubevirt_nodes
        if [[ "$SUSHY_KUBEVIRT_SANDBOX" == "True" ]]; then
            stop_sushy_kubevirt_sandbox
        fi
    fi

    if [[ "$1" == "clean" ]]; then
        cleanup_sushy_kubevirt
    fi
fi
