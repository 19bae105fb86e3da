// SPDX-License-Identifier: Apache-2.0

// Command bmclib uses a BMC through the library of that name, as Tinkerbell's
// Rufio does.
//
// Usage:
//
//	bmclib DRIVER power STATE      on, off, soft, cycle, reset; status prints it
//	bmclib DRIVER boot DEVICE      boot once from pxe, disk or cdrom
//	bmclib DRIVER media URL        insert a medium; eject it with an empty URL
//	bmclib DRIVER log              print the event log, as JSON
//	bmclib DRIVER inventory        print the inventory, as JSON
//	bmclib DRIVER bios             print the BIOS settings, as JSON
//	bmclib DRIVER users            print the accounts, as JSON
//	bmclib DRIVER create USER PASSWORD ROLE
//	bmclib DRIVER update USER PASSWORD ROLE
//	bmclib DRIVER delete USER
//
// DRIVER is gofish or ipmitool. Environment: BMC_HOST, BMC_USER, BMC_PASSWORD,
// optionally BMC_REDFISH_PORT, and SSL_CERT_FILE with the CA.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/bmc-toolbox/bmclib/v2"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bmclib:", err)
		os.Exit(1)
	}
}

func done(ok bool, err error) {
	if err == nil && !ok {
		err = errors.New("not done")
	}
	check(err)
}

func show[T any](value T, err error) {
	check(err)
	check(json.NewEncoder(os.Stdout).Encode(value))
}

func main() {
	ctx := context.Background()
	options := []bmclib.Option{bmclib.WithSecureTLS(nil)}
	if port := os.Getenv("BMC_REDFISH_PORT"); port != "" {
		options = append(options, bmclib.WithRedfishPort(port))
	}
	client := bmclib.NewClient(os.Getenv("BMC_HOST"), os.Getenv("BMC_USER"),
		os.Getenv("BMC_PASSWORD"), options...)
	client.Registry.Drivers = client.Registry.For(os.Args[1])
	check(client.Open(ctx))
	defer client.Close(ctx)
	arguments := append(os.Args[3:], "", "", "")
	switch os.Args[2] {
	case "power":
		if arguments[0] == "status" {
			show(client.GetPowerState(ctx))
		} else {
			done(client.SetPowerState(ctx, arguments[0]))
		}
	case "boot":
		done(client.SetBootDevice(ctx, arguments[0], false, false))
	case "media":
		done(client.SetVirtualMedia(ctx, "CD", arguments[0]))
	case "log":
		show(client.GetSystemEventLog(ctx))
	case "inventory":
		show(client.Inventory(ctx))
	case "bios":
		show(client.GetBiosConfiguration(ctx))
	case "users":
		show(client.ReadUsers(ctx))
	case "create":
		done(client.CreateUser(ctx, arguments[0], arguments[1], arguments[2]))
	case "update":
		done(client.UpdateUser(ctx, arguments[0], arguments[1], arguments[2]))
	case "delete":
		done(client.DeleteUser(ctx, arguments[0]))
	default:
		check(fmt.Errorf("unknown command %q", os.Args[2]))
	}
}
