// SPDX-License-Identifier: Apache-2.0

// Command fakecloud is test code. In the lab, whose images of the cloud's services are not available, it plays these services: one static program
// that takes its role from its name (/opt/yunion/bin/keystone ...).
//
// It does what a test needs from a service: it reads the real configuration file and rejects an unusable one, logs in to its database and writes to
// it, authenticates with its account at keystone, serves TLS with its certificate on its ports, and answers its readiness path and the REST calls
// that an operator makes. It manages no machines and no images.
//
// It is stricter than the real services, which tolerate these faults:
//   - it rejects an option that is not in its table, by name;
//   - a certificate must name <cluster>-<component>, .namespace and .namespace.svc, match ssl_ca_certs and not be expired;
//   - its clients verify certificates;
//   - it refuses two keystone endpoints for the same service, region and interface;
//   - the scheduler and others that share region's database refuse to start before region has created its tables;
//   - region and cloudmon refuse to start if they may not ping; the real ones start, and region then leaves servers on a dead host.
//
// As the real services do, it authorizes every call by the caller's policies (package rest), reads a body only if it has a length and the type
// application/json, expects bytes as arrays of numbers, and fails on passwords that the gateway's AES-CBC cannot decode. The gateway accepts only an
// RSA key.
//
// rest.FindOwner derives its cluster and namespace. Package servicespec has a row for each program.
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

// stamped prefixes each line with the time.
type stamped struct{ to *os.File }

func (s stamped) Write(line []byte) (int, error) {
	_, err := fmt.Fprintf(s.to, "[%s] %s", time.Now().UTC().Format("2006-01-02 15:04:05.000"), line)
	return len(line), err
}
