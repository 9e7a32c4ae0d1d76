// SPDX-License-Identifier: Apache-2.0

// Command fakecloud is test code. In the lab it stands in for the services of the cloud, whose images cannot be had there:
// one static program that plays the one after which it was called (/opt/yunion/bin/keystone ...) or --service NAME names.
//
// It does what a service must do to be useful in a test: read the real configuration file and refuse one it could not use,
// log in to its database and write to it, authenticate with its account at keystone, serve TLS with its certificate on its
// ports, answer its readiness path, and the REST calls an operator makes. It manages no machines and no images.
//
// It is stricter than the real services, which only suffer from these:
//   - an option that is not in its table is refused by name;
//   - a certificate must name <cluster>-<component>, .namespace and .namespace.svc, fit ssl_ca_certs and not be expired;
//   - its clients verify certificates;
//   - two keystone endpoints for the same service, region and interface are refused;
//   - the scheduler and others that share region's database refuse to start before region made its tables.
//
// As the real services do, it decides every call by the caller's policies (package rbac), reads a body only with its length and the type
// application/json, takes bytes as arrays of numbers, and fails on the passwords that the gateway's AES-CBC cannot take.
//
// How it works out its cluster and namespace: see wire.FindOwner. For the rest: package servicespec has a row for each program.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"yunion.io/x/ocadm/test/fakecloud/program"
)

func main() {
	log.SetFlags(0)
	log.SetOutput(stamped{os.Stderr})
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	err := program.Run(ctx, program.Machine{}, os.Args)
	stop()
	if err != nil {
		log.Printf("[fatal] %v", err)
		os.Exit(1)
	}
}

// stamped writes each line with its time.
type stamped struct{ to *os.File }

func (s stamped) Write(line []byte) (int, error) {
	_, err := fmt.Fprintf(s.to, "[%s] %s", time.Now().UTC().Format("2006-01-02 15:04:05.000"), line)
	return len(line), err
}
